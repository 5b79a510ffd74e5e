#!/usr/bin/env python3
"""How well the step of every sharding is predicted, where the data-parallel wire takes the predicted times.

  tests/bench/shardings.py
  tests/bench/shardings.py --transports local,gloo --schedules alone,1f1b,zb-h1 --rounds 3 --json rows.json

Four data-parallel ranks, alone or in pipelines of two stages, with the same model under every sharding, on a machine
whose ports are so slow that sums and gathers are hidden in part. `plumb-exec compare --emulate` alternates all plans of
a row's schedule in one run. Per plan and transport: the predicted step (`plumb simulate`) and the measured one, the
median of all rounds; by how much it is off; by how much a step rebuilt from its own durations is (the furthest of all
rounds); what is hidden of the gradients' sums, predicted and measured; and the step over that of DDP, predicted and as
`plumb-exec compare` has it, with the difference in points. Needs an otherwise idle machine. Prints one table; asserts
nothing.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

BIN = Path(__file__).resolve().parents[2] / "build/bin"
DATA_RANKS = 4
SCENARIO = """\
model: {{name: sharded, vocabulary: 1024, hidden: 1024, heads: 16, ffn: 2816, layers: "full/dense*8"}}
cluster:
  machine:
    like: local-cpu
    name: slow-ports
    cores: {ranks}
    device:
      peak: {{fp32: {{value: 600 GFLOP/s, source: "assumed: made up"}}}}
      memory_bandwidth: {{value: 200 GB/s, source: "assumed: made up"}}
      memory: {{value: 16 GiB, source: "assumed: made up"}}
    inside:
      latency: {{value: 20 us, source: "assumed: made up"}}
      bandwidth: {{value: 40 GB/s, source: "assumed: made up"}}
    collective_bandwidth: {{value: {bandwidth} GB/s, source: "assumed: made up"}}
    collective_latency: {{value: 30 us, source: "assumed: made up"}}
    collective_latency_per_rank: {{value: 2 us, source: "assumed: made up"}}
  ranks: {ranks}
training: {{sequence: 64, global_batch: {batch}, microbatch: 1, precision: fp32, optimizer: adamw}}
layout: {{pipeline: {pipeline}, data: {{degree: 4, sharding: {sharding}}}}}
software: {{like: plumb, name: overlapping, data_overlap: true}}
schedule: {schedule}
split: uniform
"""
# GB/s of collectives, with which about half of DDP's sums is hidden: by a B of eight layers, or of four, or by a W.
BANDWIDTH = {"alone": 5.0, "1f1b": 5.0, "zb-h1": 10.0}
AT_USE = "fsdp, reshard_after_forward: true, reduce: each_microbatch, prefetch: "
# Files' names and what stands behind `sharding`; the first is what all are compared with.
SHARDINGS = {"ddp": "none", "zero1": "zero1", "zero2": "zero2", "zero3": "zero3", "fsdp": "fsdp",
             "hsdp": "{kind: hsdp, shard: 2}", "fsdp-pre0": AT_USE + "0", "fsdp-pre1": AT_USE + "1",
             "fsdp-pre2": AT_USE + "2", "fsdp-unit2": AT_USE + "1, layers_per_unit: 2"}


def run(*words):
    quiet = {**os.environ, "PLUMB_PROGRESS": "off"}
    done = subprocess.run([*map(str, words)], stdout=subprocess.PIPE, env=quiet, text=True)
    if done.returncode != 0:
        sys.exit(f"shardings: {' '.join(map(str, words))} ended with exit status {done.returncode}")
    return done.stdout


class Planned:
    def __init__(self, folder, schedule, sharding, args):
        pipeline = 1 if schedule == "alone" else 2
        self.plan = folder / f"{sharding}.json"
        self.timeline = folder / f"{sharding}.predicted.json"
        scenario = folder / f"{sharding}.yaml"
        scenario.write_text(SCENARIO.format(
            ranks=DATA_RANKS * pipeline, pipeline=pipeline, batch=DATA_RANKS * 2 * pipeline,
            sharding=SHARDINGS[sharding], schedule="1f1b" if schedule == "alone" else schedule,
            bandwidth=BANDWIDTH[schedule]))
        run(BIN / "plumb", "plan", scenario, "-o", self.plan)
        predicted = run(BIN / "plumb", "simulate", self.plan, "-o", self.timeline, "--json")
        self.step_s = json.loads(predicted)["iteration_s"]


def hidden_shares(predicted, measured):
    """Of the gradients' sums once a step; None of both where actions make them all."""
    sums = json.loads(run(BIN / "plumb", "diff", predicted, measured, "--json"))["communication"]["gradients"]
    if sums["predicted"]["on_its_way_s"] == 0:
        return None, None
    return [of["hidden_s"] / of["on_its_way_s"] for of in (sums["predicted"], sums["measured"])]


def measure(folder, plans, transport, args):
    """By sharding: the measured steps, ratios to the first, replay errors and hidden shares of all rounds."""
    found = {name: {"steps": [], "ratios": [], "replays": [], "hidden": []} for name in plans}
    for _ in range(args.rounds):
        answer = json.loads(run(BIN / "plumb-exec", "compare", *(of.plan for of in plans.values()), "--emulate",
                                "--transport", transport, "--steps", args.steps, "-o", folder / "measured", "--json"))
        ratios = [1.0, *(ratio["median"] for ratio in answer["ratios"])]
        for name, of, ratio in zip(plans, answer["plans"], ratios, strict=True):
            row = found[name]
            row["steps"] += of["step_s"]
            row["ratios"].append(ratio)
            row["replays"].append(of["replay_error_fraction"])
            row["hidden"].append(hidden_shares(plans[name].timeline, folder / "measured" / f"{name}.measured.json"))
    return found


def rows_of(schedule, transport, plans, found):
    for name, of in plans.items():
        row = found[name]
        step = median(row["steps"])
        shares = [None if shares[0] is None else median(shares) for shares in zip(*row["hidden"])]
        ratio = of.step_s / plans["ddp"].step_s
        yield {"schedule": schedule, "transport": transport, "sharding": name, "predicted_s": of.step_s, "step_s": step,
               "error": step / of.step_s - 1, "replay": max(row["replays"], key=abs), "hidden_predicted": shares[0],
               "hidden": shares[1], "ratio_predicted": ratio, "ratio": median(row["ratios"]),
               "points": 100 * (median(row["ratios"]) - ratio)}


def share_text(share):
    return f"{'':>9}" if share is None else f"{share:>9.1%}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", default=",".join(BANDWIDTH), help="alone: without a pipeline")
    parser.add_argument("--transports", default="local,gloo")
    parser.add_argument("--shardings", default=",".join(SHARDINGS), help="beside ddp, with which they are compared")
    parser.add_argument("--steps", type=int, default=5, help="per round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="the rows into this file")
    args = parser.parse_args()

    rows = []
    print(f"{'schedule':<10}{'transport':<11}{'sharding':<12}{'predicted':>11}{'step':>11}{'off':>8}{'replay':>9}"
          f"{'hidden':>9}{'measured':>9}{'to ddp':>9}{'measured':>10}{'points':>8}")
    names = ["ddp", *(name for name in args.shardings.split(",") if name != "ddp")]
    for schedule in args.schedules.split(","):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            plans = {sharding: Planned(folder, schedule, sharding, args) for sharding in names}
            for transport in args.transports.split(","):
                for row in rows_of(schedule, transport, plans, measure(folder, plans, transport, args)):
                    rows.append(row)
                    print(f"{schedule:<10}{transport:<11}{row['sharding']:<12}{row['predicted_s'] * 1e3:>8.1f} ms"
                          f"{row['step_s'] * 1e3:>8.1f} ms{row['error']:>+8.2%}{row['replay']:>+9.2%}"
                          f"{share_text(row['hidden_predicted'])}{share_text(row['hidden'])}"
                          f"{row['ratio_predicted']:>9.3f}{row['ratio']:>10.3f}{row['points']:>+8.2f}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
