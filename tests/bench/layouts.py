#!/usr/bin/env python3
"""How every executed layout runs: what its timeline, memory and traffic are beside what plumb says of them.

  tests/bench/layouts.py
  tests/bench/layouts.py --transports local,gloo --schedules zb-h1 --steps 10 --json rows.json
  tests/bench/layouts.py --tied --sharding zero1
  tests/bench/layouts.py --precisions fp32,bf16 --layouts 1,1,4 --sharding zero3 "{kind: hsdp, shard: 2, replicate: 2}"
  tests/bench/layouts.py --layouts 1,1,1 2,1,2 --offload optimizer+activations
  tests/bench/layouts.py --layouts 1,2,1,async 1,4,1,async 2,2,1,async --transports local,gloo --precisions fp32,bf16
  tests/bench/layouts.py --emulate --scale 4 --layouts 1,2,1,async 1,4,1,async 2,2,1,async --wire 0.4
  tests/bench/layouts.py --layouts 1,4,1,2d 2,8,1,2.5d 2,8,1,3d --schedules 1f1b,zb-h1
  tests/bench/layouts.py --emulate --scale 8 --layouts 2,4,1,async 4,1,1,vocabulary-2 --transports local,gloo --processes 8

Per layout, schedule, precision, sharding and transport a small model is planned, trained and compared: the median step;
by how much that step rebuilt from its own measured durations differs (replay); of the rank that is furthest off, measured
over predicted peak memory; and the bytes that ranks receive, measured minus predicted, summed over ranks and axes without
sign. Times of predictions are not compared: they need a calibration, see tests/demo. Where more ranks compute than there
are cores, a rank that could go on waits for a core, which no graph knows: --emulate lets them wait the predicted times
instead, and only step, replay and by how much the step is longer than the predicted one are told then. Prints one table;
asserts nothing.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from statistics import median

BIN = Path(__file__).resolve().parents[2] / "build/bin"
SCENARIO = """\
model: {{name: small, vocabulary: 1024, hidden: {hidden}, heads: 8, kv_heads: 4, ffn: {ffn}, layers: "full/dense*{layers}", tied_embeddings: {tied}}}
cluster: {{machine: {machine}, ranks: {ranks}}}
training: {{sequence: 128, global_batch: 16, microbatch: {microbatch}, precision: {precision}, optimizer: adamw{offload}}}
layout: {{pipeline: {pipeline}, tensor: {{{kind}, degree: {tensor}}}, data: {{degree: {data}, sharding: {sharding}}}{vocabulary}}}
software: {{like: plumb, data_overlap: {overlap}}}
schedule: {schedule}
split: uniform
"""
# Pipeline, tensor and data degree, and the tensor layout: on the command line 2,2,1 and 2,2,1,sp.
LAYOUTS = [(1, 2, 1, "1d"), (1, 2, 1, "sp"), (1, 4, 1, "1d"), (1, 4, 1, "sp"), (1, 1, 2, "1d"), (1, 1, 4, "1d"),
           (2, 1, 1, "1d"), (4, 1, 1, "1d"), (2, 2, 1, "1d"), (2, 2, 1, "sp"), (2, 1, 2, "1d"), (2, 2, 2, "1d"),
           (2, 2, 2, "sp")]
# As a scenario has it, and of how many sequences a microbatch is: a grid's ranks share them out.
FORMS = {"1d": ("kind: 1d", 1), "sp": ("kind: 1d, sequence_parallel: true", 1),
         "async": ("kind: 1d, sequence_parallel: true, asynchronous: true", 1), "2d": ("kind: 2d", 2),
         "2.5d": ("kind: 2.5d, depth: 2", 4), "3d": ("kind: 3d", 4),
         "vocabulary-1": ("kind: 1d", 1), "vocabulary-2": ("kind: 1d", 1),  # over the pipeline, so many barriers
         "sp-vocabulary-1": ("kind: 1d, sequence_parallel: true", 1),
         "sp-vocabulary-2": ("kind: 1d, sequence_parallel: true", 1),
         "2d-async": ("kind: 2d, asynchronous: true", 4), "2.5d-async": ("kind: 2.5d, depth: 2, asynchronous: true", 4)}
FOLDED = ("vocabulary-1", "vocabulary-2", "sp-vocabulary-1", "sp-vocabulary-2", "2d", "2.5d", "3d", "2d-async", "2.5d-async")
AXES = ("tensor", "data", "pipeline")


def run(*words):
    quiet = {**os.environ, "PLUMB_PROGRESS": "off"}
    done = subprocess.run([*map(str, words)], stdout=subprocess.PIPE, env=quiet, text=True)
    if done.returncode != 0:
        sys.exit(f"layouts: {' '.join(map(str, words))} ended with exit status {done.returncode}")
    return done.stdout


def layout_of(text):
    words = text.split(",")
    return int(words[0]), int(words[1]), int(words[2]), words[3] if words[3:] else "1d"


def machine_of(ranks, options):
    """Where ranks only wait, each has a core of its own, and the wire may be slower or faster than this host's."""
    if not options.emulate:
        return "local-cpu"
    wire = f", collective_bandwidth: {options.wire} GB/s" if options.wire else ""
    return f"{{like: local-cpu, name: emulated, cores: {ranks}{wire}}}"


def write_plan(folder, layout, schedule, precision, sharding, options):
    pipeline, tensor, data, form = layout
    kind, microbatch = FORMS[form]
    scenario, plan = folder / "scenario.yaml", folder / "plan.json"
    scenario.write_text(SCENARIO.format(layers=4 if pipeline < 4 else 8, ranks=pipeline * tensor * data,
                                        machine=machine_of(pipeline * tensor * data, options), hidden=256 * options.scale, ffn=512 * options.scale,
                                        pipeline=pipeline, tensor=tensor, data=data, kind=kind, microbatch=microbatch,
                                        schedule=schedule, precision=precision,
                                        tied=str(options.tied).lower(), sharding=sharding,
                                        overlap=str(options.overlap).lower(),
                                        vocabulary=f", vocabulary: {{over: pipeline, barriers: {form[-1]}}}" if "vocabulary" in form else "",
                                        offload=f", offload: {options.offload}" if options.offload else ""))
    run(BIN / "plumb", "plan", scenario, "-o", plan)
    return plan


def predicted_ranks(plan, form, of_pipeline):
    """Of each rank; some are folded: all of a stage have the same."""
    fold = form in FOLDED
    answer = json.loads(run(BIN / "plumb", "simulate", plan, *([] if fold else ["--unfold"]), "--json"))["ranks"]
    return [answer[of] for of in of_pipeline] if fold else answer


def measure(plan, layout, transport, steps, emulate):
    answer = json.loads(run(BIN / "plumb-exec", "run", plan, "--transport", transport, "--steps", steps, "--json",
                            *(["--emulate"] if emulate else [])))
    row = {"step_s": median(answer["step_s"]), "replay": answer["replay_error_fraction"]}
    if emulate:
        predicted = json.loads(run(BIN / "plumb", "simulate", plan, "--json"))
        return {**row, "longer": row["step_s"] / predicted["iteration_s"] - 1}
    pipeline, tensor, data, form = layout
    of_pipeline = [rank // (tensor * data) for rank in range(pipeline * tensor * data)]
    predicted = predicted_ranks(plan, form, of_pipeline)
    peak, off = 0.0, 0
    for rank, of in zip(answer["ranks"], predicted, strict=True):
        error = rank["peak_bytes"] / of["peak_bytes"] - 1
        peak = error if abs(error) > abs(peak) else peak
        off += sum(abs(rank["traffic"][f"{axis}_bytes"] - of["traffic"][f"{axis}_bytes"]) for axis in AXES)
    received = sum(rank["received_bytes"] for rank in answer["ranks"])
    return {**row, "peak": peak, "received_bytes": received, "received_off_bytes": off}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layouts", nargs="+", type=layout_of, default=LAYOUTS, metavar="P,T,D[,KIND]",
                        help="pipeline, tensor and data degrees, and a form such as sp, async or 2.5d; without it a list of 1d ones")
    parser.add_argument("--schedules", default="1f1b,zb-h1,interleaved-1f1b", help="where there are several stages")
    parser.add_argument("--transports", default="local")
    parser.add_argument("--processes", type=int, default=4, help="layouts of more ranks run on threads alone")
    parser.add_argument("--precisions", default="fp32")
    parser.add_argument("--tied", action="store_true", help="embedding and head share their table")
    parser.add_argument("--sharding", nargs="+", default=["none"], help="of the states, over data-parallel ranks")
    parser.add_argument("--overlap", action="store_true", help="weights and gradients move beside what is computed")
    parser.add_argument("--offload", help="as a scenario has it: optimizer, activations, or optimizer+activations")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--emulate", action="store_true", help="ranks wait the predicted times: for more ranks than cores")
    parser.add_argument("--wire", type=float, help="and collectives move so many GB/s")
    parser.add_argument("--scale", type=int, default=1, help="a model so many times as wide, whose parts take longer")
    parser.add_argument("--json", type=Path, help="the rows into this file")
    args = parser.parse_args()

    rows = []
    print(f"{'layout':<28}{'schedule':<18}{'transport':<11}{'step':>9}{'replay':>9}"
          + (f"{'longer':>9}" if args.emulate else f"{'peak':>8}{'received':>12}{'off':>8}") + "  of")
    with tempfile.TemporaryDirectory() as folder:
        for layout, precision in product(args.layouts, args.precisions.split(",")):
            pipeline, tensor, data, form = layout
            ranks = pipeline * tensor * data
            name = f"pp{pipeline} tp{tensor} dp{data}{'' if form == '1d' else ', ' + form}"
            schedules = args.schedules.split(",") if pipeline > 1 else ["1f1b"]
            for schedule, sharding in product(schedules, args.sharding if data > 1 else ["none"]):
                plan = write_plan(Path(folder), layout, schedule, precision, sharding, args)
                of = precision + (f", {sharding}" if data > 1 else "")
                for transport in args.transports.split(","):
                    if transport != "local" and ranks > args.processes:
                        continue
                    row = measure(plan, layout, transport, args.steps, args.emulate)
                    rows.append({"layout": name, "schedule": schedule, "transport": transport, "precision": precision,
                                 "sharding": sharding, **row})
                    print(f"{name:<28}{schedule:<18}{transport:<11}{row['step_s'] * 1e3:>6.0f} ms{row['replay']:>+9.2%}"
                          + (f"{row['longer']:>+9.2%}" if args.emulate else f"{row['peak']:>+8.1%}{row['received_bytes'] / 2**20:>8.2f} MiB"
                             f"{row['received_off_bytes']:>6} B") + f"  {of}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
