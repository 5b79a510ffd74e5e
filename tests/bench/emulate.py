#!/usr/bin/env python3
"""What the executor costs on its own: ranks that only wait the predicted times.

  tests/bench/emulate.py --ranks 8 --microbatches 32 --milliseconds 5 --bytes 1024
  tests/bench/emulate.py --peer 'python3 peer_torch_emulated.py'      # a program with that command line, alternated

Per schedule and transport, medians over the steps of all rounds: the measured makespan; the prediction, which is the
longest path through the asked pauses with free messages; the same path with the pauses as they really took (a sleep
ends late); the difference between makespan and the latter, which is what the executor adds, per F, I, W or B of a rank.
Needs an otherwise idle machine. Prints one table; asserts nothing.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

BIN = Path(__file__).resolve().parents[2] / "build/bin"
SCENARIO = """\
model: {{name: emulated, vocabulary: 256, hidden: 64, heads: 4, ffn: 128, layers: "full/dense*{ranks}"}}
cluster: {{machine: local-cpu, ranks: {ranks}}}
training: {{sequence: 8, global_batch: {microbatches}, microbatch: 1}}
layout: {{pipeline: {ranks}}}
schedule: {schedule}
split: uniform
"""
PEER_NAMES = {"gpipe": "GPipe", "1f1b": "1F1B"}  # those that torch has with one stage per rank


def run(*words):
    done = subprocess.run([*map(str, words)], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"emulate: {' '.join(map(str, words))} ended with exit status {done.returncode}")
    return done.stdout


def write_plan(folder, schedule, args):
    scenario, plan = folder / f"{schedule}.yaml", folder / f"{schedule}.json"
    scenario.write_text(SCENARIO.format(ranks=args.ranks, microbatches=args.microbatches, schedule=schedule))
    run(BIN / "plumb", "plan", scenario, "-o", plan)
    content = json.loads(plan.read_text())
    for stage in content["costs"]["stages"]:
        for part in ("forward_s", "input_gradient_s", "weight_gradient_s"):
            stage[part] = args.milliseconds / 1e3
        stage["optimizer_s"] = 0.0
    for port in ("inside", "outside"):
        content["costs"][port] = {"latency_s": 0.0, "bandwidth_bytes_per_s": 1e18}
    plan.write_text(json.dumps(content))
    return plan


def longest_path(order, stages, duration):
    """`order`: per rank its (kind, stage, microbatch); messages are free."""
    end, position, free = {}, [0] * len(order), [0.0] * len(order)
    moved = True
    while moved:
        moved = False
        for rank, actions in enumerate(order):
            while position[rank] < len(actions):
                kind, stage, microbatch = actions[position[rank]]
                needs = []
                if kind == "F" and stage > 0:
                    needs = [("F", stage - 1, microbatch)]
                if kind in "BI" and stage + 1 < stages:
                    needs = [("BI", stage + 1, microbatch)]
                if any(need not in end for need in needs):
                    break
                begin = max([free[rank], *(end[need] for need in needs)])
                free[rank] = begin + duration(rank, actions[position[rank]])
                end["BI" if kind in "BI" else kind, stage, microbatch] = free[rank]
                position[rank] += 1
                moved = True
    return max(free)


def compute_events(trace, ranks):
    """Per step, per rank: {(kind, stage, microbatch): seconds} in the order in which they ran."""
    steps = {}
    for event in sorted((e for e in trace["traceEvents"] if e.get("cat") == "compute"), key=lambda e: e["ts"]):
        what = event["args"]
        if what["kind"] in "FBIW":
            rows = steps.setdefault(what["step"], [{} for _ in range(ranks)])
            rows[event["pid"]][what["kind"], what["stage"], what["microbatch"]] = what["end_s"] - what["start_s"]
    return steps


def measure(plan, transport, folder, args):
    out = folder / "measured.json"
    answer = json.loads(
        run(BIN / "plumb-exec", "run", plan, "--emulate", "--emulate-bytes", args.bytes, "--transport", transport,
            "--steps", args.steps, "-o", out, "--json"))
    pauses = args.milliseconds / 1e3
    rows = []
    for step, ranks in sorted(compute_events(json.loads(out.read_text()), args.ranks).items()):
        order = [list(rank) for rank in ranks]
        asked = longest_path(order, args.ranks, lambda rank, action: pauses * (2 if action[0] == "B" else 1))
        taken = longest_path(order, args.ranks, lambda rank, action: ranks[rank][action])
        rows.append((answer["step_s"][step], asked, taken, max(map(len, order))))
    return rows


def measure_peer(schedule, folder, args):
    out = folder / "peer.json"
    run(*shlex.split(args.peer), "--ranks", args.ranks, "--microbatches", args.microbatches, "--schedule",
        PEER_NAMES[schedule], "--forward-ms", args.milliseconds, "--backward-input-ms", args.milliseconds,
        "--backward-weight-ms", args.milliseconds, "--bytes", args.bytes, "--steps", args.steps, "--out", out)
    answer = json.loads(out.read_text())
    return [(answer["makespan_seconds"]["median"], answer["ideal_seconds"], answer["replayed_seconds"],
             answer["actions_per_rank"])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--microbatches", type=int, default=32)
    parser.add_argument("--milliseconds", type=float, default=5.0, help="each of F, I and W")
    parser.add_argument("--bytes", type=int, default=1024, help="of a message")
    parser.add_argument("--steps", type=int, default=5, help="per round")
    parser.add_argument("--rounds", type=int, default=3, help="in which all rows take turns")
    parser.add_argument("--schedules", default="1f1b,zb-h1")
    parser.add_argument("--transports", default="local,gloo")
    parser.add_argument("--peer", help="a program to run beside, with the command line of the torch baseline")
    args = parser.parse_args()

    rows = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        schedules = args.schedules.split(",")
        plans = {schedule: write_plan(folder, schedule, args) for schedule in schedules}
        for _ in range(args.rounds):
            for schedule in schedules:
                for transport in args.transports.split(","):
                    rows.setdefault((schedule, transport), []).extend(measure(plans[schedule], transport, folder, args))
                if args.peer and schedule in PEER_NAMES:
                    rows.setdefault((schedule, "peer"), []).extend(measure_peer(schedule, folder, args))

    print(f"{args.ranks} ranks, {args.microbatches} microbatches, {args.milliseconds} ms each of F, I, W, "
          f"messages of {args.bytes} bytes; {args.rounds} rounds of {args.steps} steps; medians")
    print(f"{'schedule':<10}{'transport':<10}{'measured':>11}{'predicted':>11}{'off':>8}{'replayed':>11}{'off':>8}"
          f"{'own cost per action':>21}")
    for (schedule, transport), values in rows.items():
        took, asked, taken, count = (median(column) for column in zip(*values))
        own = median((row[0] - row[2]) / row[3] for row in values)
        print(f"{schedule:<10}{transport:<10}{took * 1e3:>8.1f} ms{asked * 1e3:>8.1f} ms{(took / asked - 1) * 100:>7.1f}%"
              f"{taken * 1e3:>8.1f} ms{(took / taken - 1) * 100:>7.1f}%{own * 1e6:>18.0f} µs")


if __name__ == "__main__":
    main()
