#!/usr/bin/env python3
"""The demo: one model, two splits, predicted and measured. Shows every command that it runs, ends with a verdict.

Exit status 1 if a claim does not hold. Where two calibrations show that the machine itself changed meanwhile, or came out
too unevenly to trust what is predicted from them, what is said of its times is `inconclusive` and not counted: the exit
status is 0 if memory and bits are as claimed.
"""

import json
import subprocess
import sys
from pathlib import Path

SCENARIO = "scenarios/demo.yaml"
BIN = Path("build/bin")
OUT = Path("build/demo")
PLANS = ("uniform", "dynamic")

REPLAY_LIMIT = 0.01  # the step rebuilt from its own measured durations
STEP_LIMIT = 0.05  # predicted against measured step
MEMORY_LIMIT = 0.05  # predicted against measured peak, worst rank
RATIO_LIMIT = 0.05  # predicted against measured dynamic/uniform, in points
STEP_CHANGE_AT_MOST = 1 / 1.15 - 1  # 15% more tokens per second
STEPS = 15


def show(*words):
    """Runs a plumb command for the reader: its line, then what it prints."""
    command = [str(BIN / words[0]), *map(str, words[1:])]
    print(f"\n$ {' '.join(command)}", flush=True)
    status = subprocess.run(command).returncode
    if status != 0:
        sys.exit(f"{Path(sys.argv[0]).stem}: '{words[0]} {words[1]}' ended with exit status {status}")


def ask(*words):
    """A command's answer as an object."""
    command = [str(BIN / words[0]), *map(str, words[1:]), "--json"]
    print(f"\n$ {' '.join(command)}", flush=True)
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if answer.returncode not in (0, 1):
        sys.exit(f"{Path(sys.argv[0]).stem}: '{words[0]} {words[1]}' ended with exit status {answer.returncode}")
    return json.loads(answer.stdout)


def title(text):
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n== {text}", flush=True)


class Verdict:
    """Claims with what was predicted, measured, and whether the limit held."""

    def __init__(self):
        self.rows = []

    def add(self, claim, predicted, measured, limit, holds):
        self.rows.append((claim, predicted, measured, limit, {True: "yes", False: "NO", None: "inconclusive"}[holds]))

    def print(self):
        rows = [("claim", "predicted", "measured", "limit", "holds?"), *self.rows]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        for row in rows:
            print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())

    def inconclusive(self):
        return any(row[4] == "inconclusive" for row in self.rows)

    def holds(self):
        return all(row[4] != "NO" for row in self.rows)


def milliseconds(seconds):
    return f"{seconds * 1e3:.1f} ms"


def mebibytes(count):
    return f"{count / 2**20:.1f} MiB"


def percent(fraction):
    return f"{fraction * 100:.1f}%"


def change(ratio):
    """One step against another, as plumb prints it: below zero is faster."""
    return f"{(ratio - 1) * 100:+.1f}%"


def print_comparison(comparison):
    for name, answer in zip(PLANS, comparison["plans"]):
        print(f"{name}: {milliseconds(answer['median_s'])}, the median of {STEPS} steps")
    ratio = comparison["ratios"][-1]
    uniform, dynamic = (answer["median_s"] for answer in comparison["plans"])
    print(f"dynamic to uniform: {change(ratio['median'])}, the median of the ratios of neighbouring steps; "
          f"their middle half {change(ratio['low'])} to {change(ratio['high'])}")
    print(f"(The two medians alone would say {change(dynamic / uniform)}. Neighbours share what else the machine did "
          "meanwhile: their ratios are judged.)")


def judge(verdict, prediction, run, diff, comparison):
    moved = next(iter(diff.values()))["moved_fraction"]
    steady = not any(answer["inconclusive"] or answer["uneven_profile"] for answer in diff.values())
    # While others take the cores, a missed limit tells nothing about the prediction.
    unless_moved = lambda holds: holds or (False if steady else None)
    for plan in PLANS:
        error = abs(diff[plan]["predicted_s"] / diff[plan]["measured_s"] - 1)
        verdict.add(f"step, {plan}, trained alone: off by {percent(error)}", milliseconds(diff[plan]["predicted_s"]),
                    milliseconds(diff[plan]["measured_s"]), f"{STEP_LIMIT:.0%}", error <= STEP_LIMIT if steady else None)
    for plan in PLANS:
        replay = abs(diff[plan]["replay_s"] / diff[plan]["measured_s"] - 1)
        verdict.add(f"step, {plan}, rebuilt from its own durations: off by {percent(replay)}",
                    milliseconds(diff[plan]["replay_s"]), milliseconds(diff[plan]["measured_s"]),
                    f"{REPLAY_LIMIT:.0%}", unless_moved(replay <= REPLAY_LIMIT))
    for plan in PLANS:
        pairs = [(p["peak_bytes"], m["peak_bytes"]) for p, m in zip(prediction[plan]["ranks"], run[plan]["ranks"])]
        predicted, measured = max(pairs, key=lambda pair: abs(pair[0] / pair[1] - 1))
        error = abs(predicted / measured - 1)
        verdict.add(f"peak memory, {plan}, of the rank that errs most: off by {percent(error)}", mebibytes(predicted),
                    mebibytes(measured), f"{MEMORY_LIMIT:.0%}", error <= MEMORY_LIMIT)
    predicted = prediction["dynamic"]["iteration_s"] / prediction["uniform"]["iteration_s"]
    measured = comparison["ratios"][-1]["median"]
    verdict.add("dynamic over uniform, median of neighbouring steps' ratios", f"{predicted:.3f}", f"{measured:.3f}",
                f"{RATIO_LIMIT * 100:.0f} points", unless_moved(abs(predicted - measured) <= RATIO_LIMIT))
    verdict.add("dynamic to uniform, as the plan says it: below zero is faster", change(predicted), change(measured),
                f"below {STEP_CHANGE_AT_MOST:+.1%}", unless_moved(measured - 1 <= STEP_CHANGE_AT_MOST))
    for plan in PLANS:
        equal = run[plan]["bitwise_equal"]
        verdict.add(f"losses and gradients, {plan}, as on one device", "all bits", "all bits" if equal else "differ",
                    "equal", equal)
    return moved


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    before, after = OUT / "profile.yaml", OUT / "profile-after.yaml"
    plan = {name: OUT / f"{name}.json" for name in PLANS}
    predicted = {name: OUT / f"{name}.predicted.json" for name in PLANS}
    measured = {name: OUT / f"{name}.measured.json" for name in PLANS}

    title("1. Measure this machine: F, I, W of every distinct layer, and the transport")
    show("plumb-exec", "calibrate", SCENARIO, "-o", before)
    title("2. Plan: the same layers on every rank, and the same time on every rank")
    for name in PLANS:
        show("plumb", "plan", SCENARIO, "--split", name, "--profile", before, "-o", plan[name])
    title("3. Predict both")
    prediction = {}
    for name in PLANS:
        show("plumb", "simulate", plan[name], "-o", predicted[name])
        prediction[name] = ask("plumb", "simulate", plan[name])
        print(f"{name}: {milliseconds(prediction[name]['iteration_s'])}")
    title("4. Run both, their steps alternating, so that they share the machine's mood")
    comparison = ask("plumb-exec", "compare", plan["uniform"], plan["dynamic"], "--steps", STEPS)
    print_comparison(comparison)
    title("5. Train with each, and check losses and gradients against a single device")
    run = {name: ask("plumb-exec", "run", plan[name], "--check", "-o", measured[name]) for name in PLANS}
    for name in PLANS:
        losses = run[name]["loss"]
        print(f"{name}: loss {losses[0]:.4f} to {losses[-1]:.4f}, bitwise equal: {run[name]['bitwise_equal']}")
    title("6. Measure the machine again, and say where predicted and measured differ")
    show("plumb-exec", "calibrate", SCENARIO, "-o", after)
    diff = {}
    for name in PLANS:
        words = ("plumb", "diff", predicted[name], measured[name], "--profile-before", before, "--profile-after", after)
        show(*words)
        diff[name] = ask(*words)
    title("7. One page about it")
    show("plumb", "report", *predicted.values(), *measured.values(), "--profile-before", before, "--profile-after",
         after, "-o", OUT / "report.html")

    title("Verdict")
    verdict = Verdict()
    moved = judge(verdict, prediction, run, diff, comparison)
    verdict.print()
    print(f"\n  Between the two calibrations the machine moved by {percent(moved)}.")
    print(f"  The page: {OUT / 'report.html'}. The timelines, {OUT}/*.measured.json, open in Perfetto as they are.")
    if verdict.inconclusive():
        uneven = any(answer["uneven_profile"] for answer in diff.values())
        why = "was measured too unevenly to trust" if uneven else "changed while it was measured"
        print(f"\n  Inconclusive: the machine {why}. Run it again on an idle machine.")
    return 0 if verdict.holds() else 1


if __name__ == "__main__":
    sys.exit(main())
