#!/usr/bin/env python3
"""Runs every exported schedule in PyTorch's own pipeline runtime and compares each gradient with one process.

  python tests/peers/torch_schedules.py [build/bin/plumb] [--ranks 4] [--microbatches 8] [NAME…]

Needs a Python that has torch (2.6 or newer); no GPU. Without one it says so and ends with status 77, which test
programs take for skipped. Exit status: 0 all gradients are bitwise equal, 1 some differ.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

HIDDEN, ROWS = 16, 2
FORMS = {"compute_only": "pytorch-csv", "compute_comms": "pytorch-csv-comms"}


def export(plumb, name, form, args, path):
    """True if the schedule can be written and PyTorch, which holds a stage on one rank, can run it."""
    command = [plumb, "schedule", "export", name, "--ranks", str(args.ranks), "--microbatches", str(args.microbatches)]
    done = subprocess.run([*command, "--format", FORMS[form]], capture_output=True, text=True)
    if done.returncode != 0 or "two rows" in done.stderr:
        print(f"{name:18} {form:14} not for PyTorch: {done.stderr.splitlines()[0]}")
        return False
    path.write_text(done.stdout)
    return True


def stage_module(stage):
    torch.manual_seed(stage)
    return torch.nn.Sequential(torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, HIDDEN))


def data(microbatches):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, microbatches * ROWS, HIDDEN, generator=generator)


def cells(path):
    """Per row (stage, letter, microbatch) of the compute actions."""
    rows = []
    for line in path.read_text().splitlines():
        text = line.replace("(", "").replace(")OVERLAP_F_B", "").replace(";", ",")
        found = []
        for cell in filter(None, text.split(",")):
            stage = cell[: len(cell) - len(cell.lstrip("0123456789"))]
            letters = cell[len(stage) :].rstrip("0123456789")
            if letters in ("F", "B", "I", "W"):
                found.append((int(stage), letters, int(cell[len(stage) + len(letters) :])))
        rows.append(found)
    return rows


def reference(rows, stages, microbatches):
    """Gradients of one process; each stage adds its microbatches in the schedule's order."""
    modules = [stage_module(stage) for stage in range(stages)]
    inputs, targets = data(microbatches)
    parts = []
    for x, y in zip(inputs.chunk(microbatches), targets.chunk(microbatches)):
        for module in modules:
            module.zero_grad()
            x = module(x)
        torch.nn.functional.mse_loss(x, y).backward()
        parts.append([[w.grad for w in module.parameters()] for module in modules])
    sums = {}
    for stage, letter, microbatch in (cell for row in rows for cell in row):
        if letter in "BW":
            part = parts[microbatch][stage]
            sums[stage] = [a + b for a, b in zip(sums[stage], part)] if stage in sums else part
    return {stage: [g / microbatches for g in part] for stage, part in sums.items()}


def run(path, form, rank):
    """How many of this rank's gradients there are, and how many of them differ."""
    rows = cells(path)
    microbatches = 1 + max(microbatch for row in rows for _, _, microbatch in row)  # slices count as such
    owner = {stage: at for at, row in enumerate(rows) for stage, _, _ in row}
    stages = [
        PipelineStage(stage_module(stage), stage, len(owner), torch.device("cpu"))
        for stage in sorted(owner)
        if owner[stage] == rank
    ]
    schedule = _PipelineScheduleRuntime(stages, microbatches, loss_fn=torch.nn.functional.mse_loss)
    schedule._load_csv(str(path), format=form)
    inputs, targets = data(microbatches)
    last = any(stage.is_last for stage in stages)
    schedule.step(
        *((inputs,) if any(stage.is_first for stage in stages) else ()),
        target=targets if last else None,
        losses=[] if last else None,
    )
    expected = reference(rows, len(owner), microbatches)
    pairs = [
        (weight.grad, gradient)
        for stage in stages
        for weight, gradient in zip(stage.submod.parameters(), expected[stage.stage_index])
    ]
    return len(pairs), sum(got is None or not torch.equal(got, want) for got, want in pairs)


def worker(rank, jobs, folder, args):
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", args.ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=args.ranks)
    for name, form in jobs:
        counts = torch.tensor(run(pathlib.Path(folder) / f"{name}.{form}.csv", form, rank))
        dist.all_reduce(counts)
        if rank != 0:
            continue
        total, different = counts.tolist()
        print(f"{name:18} {form:14} {total - different} of {total} gradients bitwise equal", flush=True)
        if different:
            (pathlib.Path(folder) / "differs").touch()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("plumb", nargs="?", default="build/bin/plumb")
    parser.add_argument("names", nargs="*", help="default: all of plumb schedule list")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--microbatches", type=int, default=8)
    args = parser.parse_args()
    listed = json.loads(subprocess.check_output([args.plumb, "schedule", "list", "--json"]))
    names = args.names or [entry["name"] for entry in listed["schedules"]]
    with tempfile.TemporaryDirectory() as folder:
        jobs = [
            (name, form)
            for name in names
            for form in FORMS
            if export(args.plumb, name, form, args, pathlib.Path(folder) / f"{name}.{form}.csv")
        ]
        mp.spawn(worker, (jobs, folder, args), nprocs=args.ranks)
        return 1 if (pathlib.Path(folder) / "differs").exists() else 0


if __name__ == "__main__":
    sys.exit(main())
