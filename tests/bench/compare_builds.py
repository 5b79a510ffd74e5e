#!/usr/bin/env python3
"""Compares the answers of two builds of plumb: compare_builds.py BEFORE AFTER [--scenarios FOLDER] [--long]

BEFORE and AFTER are two `plumb` programs. Both answer the same questions: `show`, `simulate` and `plan` of every shipped
scenario, `schedule export` of every schedule in several shapes, and `validate` of the published tables. Numbers may
differ by a relative 1e-9; keys may be added, never removed. Prints each difference with its place in the answer; exit
status 1 if there is one. --long adds searches of minutes.
"""
import argparse
import json
import math
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOLERANCE = 1e-9
SHAPES = [(2, 4), (4, 8), (4, 12), (8, 16)]  # ranks, microbatches
LIMIT_S = 120
LONG_LIMIT_S = 1800
COUNTS_OF_A_SEARCH = {"pruned", "bounded", "evaluated", "simulated", "explanation", "unproven", "left"}
SLOW = {"qwen3-next-dgx-h100-vocabulary.yaml", "tensor-grids.yaml", "qwen3-next-64-h100.yaml"}  # searches of minutes


def ask(program, arguments, limit):
    """Exit status and output: JSON if it is some."""
    try:
        done = subprocess.run([program, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return "took too long", None
    try:
        return done.returncode, json.loads(done.stdout)
    except json.JSONDecodeError:
        return done.returncode, done.stdout


def differences(before, after, place=""):
    """Yields one line for each value of `before` that `after` lacks or has otherwise."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key in COUNTS_OF_A_SEARCH:
                continue
            if key not in after:
                yield f"{place}.{key}: removed, was {str(value)[:60]}"
            else:
                yield from differences(value, after[key], f"{place}.{key}")
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield f"{place}: {len(before)} entries before, {len(after)} after"
        for index, (one, other) in enumerate(zip(before, after)):
            yield from differences(one, other, f"{place}[{index}]")
    elif isinstance(before, float) or isinstance(after, float):
        same = isinstance(after, (int, float)) and isinstance(before, (int, float)) and math.isclose(
            before, after, rel_tol=TOLERANCE, abs_tol=1e-15)
        if not same:
            yield f"{place}: {before} before, {after} after"
    elif before != after:
        yield f"{place}: {str(before)[:60]!r} before, {str(after)[:60]!r} after"


def questions(folder, programs, long):
    for scenario in sorted(folder.glob("*.yaml")) + sorted((folder / "roadmap").glob("*.yaml")) + sorted(
            (folder / "single-gpu").glob("*.yaml")) + sorted((folder / "which-layout").glob("*.yaml")):
        name = str(scenario)
        yield ["show", name, "--json"]
        if scenario.name in SLOW and not long:
            continue
        yield ["simulate", name, "--json"]
        yield ["simulate", name, "--json", "--engine", "path"]
        yield ["plan", name, "--json"]
    for model in sorted((folder / "models").glob("*.yaml")):
        yield ["show", str(model), "--json"]
    _, schedules = ask(programs[0], ["schedule", "list", "--json"], LIMIT_S)
    for entry in schedules["schedules"]:
        for ranks, microbatches in SHAPES:
            shape = ["--ranks", str(ranks), "--microbatches", str(microbatches)]
            yield ["schedule", "show", entry["name"], *shape, "--times", "1,1.25,0.75,0.1", "--json"]
            yield ["schedule", "export", entry["name"], *shape, "--format", "json"]
    yield ["validate", str(folder / "published"), "--json"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--scenarios", type=pathlib.Path, default=ROOT / "scenarios")
    parser.add_argument("--long", action="store_true", help="also searches of minutes")
    arguments = parser.parse_args()
    programs = [str(pathlib.Path(p).resolve()) for p in (arguments.before, arguments.after)]
    limit = LONG_LIMIT_S if arguments.long else LIMIT_S
    asked = different = 0
    for question in questions(arguments.scenarios.resolve(), programs, arguments.long):
        answers = [ask(program, question, limit) for program in programs]
        found = list(differences(list(answers[0]), list(answers[1]), "answer"))
        asked += 1
        different += bool(found)
        for line in found[:8]:
            print(f"{' '.join(question)}: {line}")
    print(f"{asked} questions, {different} answered differently")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
