#!/usr/bin/env python3
"""The ladder: one model in the layouts of scenarios/roadmap, each predicted and run, in one table of time and memory.

  tests/demo/roadmap.py
  tests/demo/roadmap.py --rounds 3 --steps 10 --json build/roadmap/rows.json

In each round shapes are calibrated, their rungs planned, predicted, run and checked against a single device, and shapes
calibrated again; then the rungs on as many ranks as the first train their steps in alternation. The table has the
medians of the rounds: the step; the step to the first rung's, of neighbouring steps; the peak of the fullest rank; and
what a rank received per step, the one that received most. `moved` is by how much the machine changed between the two
calibrations: a step that is off by no more tells nothing of the prediction, while neighbouring steps share what else
the machine did. Exit status 1 if a check failed, or if a peak or the bytes are not as predicted; times are told, not
judged.
"""

import argparse
import json
import sys
from pathlib import Path
from statistics import median

import demo

FOLDER = Path("scenarios/roadmap")
OUT = Path("build/roadmap")
MEMORY_LIMIT = 0.05  # of the predicted against the measured peak of the fullest rank

# Rungs whose blocks have the same shapes, so that one calibration measures them all: of its first.
SHAPES = [
    ("1-ddp", "2-zero3", "3-fsdp2", "4-pipeline-uniform", "5-pipeline-dynamic"),
    ("6-tensor",),
    ("7-lora",),
]
RUNGS = [rung for rungs in SHAPES for rung in rungs]
TITLES = {
    "1-ddp": "DDP",
    "2-zero3": "ZeRO-3",
    "3-fsdp2": "FSDP2",
    "4-pipeline-uniform": "pipeline, uniform split",
    "5-pipeline-dynamic": "pipeline, dynamic split",
    "6-tensor": "… with tensor parallelism",
    "7-lora": "pipeline, dynamic split, with LoRA",
}


def scenario(rung):
    return FOLDER / f"{rung}.yaml"


def path(rung, of):
    return OUT / f"{rung}.{of}.json"


def most(ranks, key):
    return max(rank[key] for rank in ranks)


def climb(rungs, steps):
    """One calibration's rungs, once: what `row_of` needs of each."""
    before, after = OUT / f"{rungs[0]}.before.yaml", OUT / f"{rungs[0]}.after.yaml"
    demo.ask("plumb-exec", "calibrate", scenario(rungs[0]), "-o", before)
    prediction, run = {}, {}
    for rung in rungs:
        plan = path(rung, "plan")
        demo.ask("plumb", "plan", scenario(rung), "--profile", before, "-o", plan)
        prediction[rung] = demo.ask("plumb", "simulate", plan, "-o", path(rung, "predicted"))
        run[rung] = demo.ask("plumb-exec", "run", plan, "--steps", steps, "--check", "-o", path(rung, "measured"))
    demo.ask("plumb-exec", "calibrate", scenario(rungs[0]), "-o", after)
    return {
        rung: (prediction[rung], run[rung],
               demo.ask("plumb", "diff", path(rung, "predicted"), path(rung, "measured"),
                        "--profile-before", before, "--profile-after", after))
        for rung in rungs
    }


def alternate(climbed, steps):
    """The step to the first rung's, of those on as many ranks: predicted, and of neighbouring measured steps."""
    first = RUNGS[0]
    alike = [rung for rung in RUNGS if len(climbed[rung][1]["ranks"]) == len(climbed[first][1]["ranks"])]
    compared = demo.ask("plumb-exec", "compare", *(path(rung, "plan") for rung in alike), "--steps", steps)
    predicted = {rung: climbed[rung][0]["iteration_s"] / climbed[first][0]["iteration_s"] for rung in alike[1:]}
    return {rung: (predicted[rung], ratio["median"]) for rung, ratio in zip(alike[1:], compared["ratios"], strict=True)}


def row_of(prediction, run, diff, ratio=(None, None)):
    """What one round has of a rung. Folded ranks stand for those that do the same, so `most` is of all ranks."""
    return {
        "ranks": len(run["ranks"]),
        "predicted_s": diff["predicted_s"],
        "measured_s": diff["measured_s"],
        "off_fraction": diff["predicted_s"] / diff["measured_s"] - 1,
        "replay_off_fraction": diff["replay_s"] / diff["measured_s"] - 1,
        "predicted_to_first": ratio[0],
        "measured_to_first": ratio[1],
        "moved_fraction": diff["moved_fraction"],
        "inconclusive": diff["inconclusive"] or diff["uneven_profile"],
        "predicted_peak_bytes": most(prediction["ranks"], "peak_bytes"),
        "measured_peak_bytes": most(run["ranks"], "peak_bytes"),
        "predicted_received_bytes": most(prediction["ranks"], "received_bytes"),
        "measured_received_bytes": most(run["ranks"], "received_bytes"),
        "passed": run["passed"],
    }


def median_row(rows):
    """Of a rung's rounds. Errors are the medians of the rounds' own, each against its own calibration."""
    row = {key: None if rows[0][key] is None else median(each[key] for each in rows)
           for key in rows[0] if key not in ("inconclusive", "passed")}
    row["moved_fraction"] = max(each["moved_fraction"] for each in rows)
    return row | {
        "inconclusive": any(each["inconclusive"] for each in rows),
        "passed": all(each["passed"] for each in rows),
        "rounds": rows,
    }


def peak_off(row):
    return row["predicted_peak_bytes"] / row["measured_peak_bytes"] - 1


def faults(rungs):
    """What is not as predicted, whatever the machine did meanwhile: a line for each."""
    found = []
    for name, row in rungs.items():
        if not row["passed"]:
            found.append(f"{name}: losses or gradients are not those of a single device")
        for of in row["rounds"]:
            if abs(peak_off(of)) > MEMORY_LIMIT:
                found.append(f"{name}: the peak is off by {peak_off(of):+.1%}, above {MEMORY_LIMIT:.0%}")
            if of["predicted_received_bytes"] != of["measured_received_bytes"]:
                found.append(f"{name}: {of['predicted_received_bytes']} B received were predicted, "
                             f"{of['measured_received_bytes']} measured")
    return found


def table(rungs):
    """As Markdown."""
    head = ("", "ranks", "step, predicted", "measured", "off by", "moved", "step to DDP, predicted", "measured",
            "peak, predicted", "measured", "off by", "received per step")
    to_first = lambda ratio: "" if ratio is None else demo.change(ratio)
    lines = [head, ("---",) * len(head)]
    for name, row in rungs.items():
        mark = " !" if row["inconclusive"] else ""
        lines.append((TITLES[name], f"{row['ranks']:.0f}", f"{row['predicted_s']:.3f} s", f"{row['measured_s']:.3f} s",
                      f"{row['off_fraction']:+.1%}", f"{row['moved_fraction']:.1%}{mark}",
                      to_first(row["predicted_to_first"]), to_first(row["measured_to_first"]),
                      demo.mebibytes(row["predicted_peak_bytes"]), demo.mebibytes(row["measured_peak_bytes"]),
                      f"{peak_off(row):+.1%}", demo.mebibytes(row["measured_received_bytes"])))
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1, help="of all that is measured")
    parser.add_argument("--steps", type=int, default=5, help="of each run")
    parser.add_argument("--json", type=Path, help="all rounds' rows into this file")
    args = parser.parse_args()

    OUT.mkdir(parents=True, exist_ok=True)
    measured = {rung: [] for rung in RUNGS}
    for _ in range(args.rounds):
        climbed = {}
        for rungs in SHAPES:
            climbed |= climb(rungs, args.steps)
        ratios = alternate(climbed, args.steps)
        for rung, answers in climbed.items():
            measured[rung].append(row_of(*answers, ratios.get(rung, (None, None))))
    rows = {rung: median_row(of) for rung, of in measured.items()}
    print(f"\n{table(rows)}\n\nMedians of {args.rounds} round(s) of {args.steps} steps each. moved: the most that the "
          "machine changed between two calibrations;\n!: by more than 2%, or it was measured too unevenly: the step "
          "tells nothing then.")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    wrong = faults(rows)
    for line in wrong:
        print(f"NO: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
