#!/usr/bin/env python3
"""Prints the tables of docs/reference/which-layout.md, from `plumb layout compare`.

  tests/demo/which_layout.py                              # the tables
  tests/demo/which_layout.py --scenario dgx-h100 gpt-39b 16   # the scenario of one row, to look into

Each row is a scenario of scenarios/which-layout with another machine and tensor degree. All its ranks are one tensor
group. The last cell is what `plumb plan` finds for as many ranks with all degrees and kinds open. Each layout has its
fastest microbatch and recompute that fit. Predictions are by the longest path, so they are equal on every machine.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

MODELS = ("gpt-1.3b", "gpt-6.7b", "gpt-39b", "gpt-175b")
MACHINES = ("dgx-1-v100", "dgx-a100", "dgx-h100", "gb200-nvl72", "pcie-rtx4090")
DEGREES = (4, 8, 16, 64)
FOLDER = Path("scenarios/which-layout")
OPEN = ("layout: {pipeline: auto, data: auto, tensor: {degree: auto, kind: auto, sequence_parallel: auto, "
        "asynchronous: auto, reshard_after_forward: auto}}")
HEADER = ("| model | GPUs | fastest | step | beside it | why | all axes open |",
          "| --- | --: | --- | --: | --- | --- | --- |")


def text_of(machine):
    return Path(f"scenarios/machines/{machine}.yaml").read_text()


def devices_of(machine):
    return int(re.search(r"^devices: (\d+)", text_of(machine), re.M).group(1))


def replaced(text, pattern, by):
    text, count = re.subn(pattern, by, text, flags=re.M)
    assert count == 1, f"{pattern} stands {count} times"
    return text


def scenario(machine, model, degree):
    text = (FOLDER / f"{model}.yaml").read_text()
    nodes = -(-degree // devices_of(machine))
    if "bf16" not in text_of(machine):
        text = replaced(text, "precision: bf16", "precision: fp16")
    text = replaced(text, r"^cluster: .*$", f"cluster: {{machine: {machine}, nodes: {nodes}, ranks: {degree}}}")
    return replaced(text, r"degree: \d+", f"degree: {degree}")



def ask(plumb, command, text, nothing):
    """A command's answer about a scenario; none where it says `nothing`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scenario.yaml"
        file.write_text(text)
        answer = subprocess.run([plumb, *command, file, "--engine", "path", "--json"], capture_output=True, text=True)
    if answer.returncode == 0:
        return json.loads(answer.stdout)
    if answer.returncode != 2 or nothing not in answer.stderr:
        sys.exit(f"{text}\n{answer.stderr}")
    return None


def compare(plumb, machine, model, degree):
    return ask(plumb, ["layout", "compare"], scenario(machine, model, degree), "none could be built")


def plan(plumb, machine, model, degree):
    text = replaced(scenario(machine, model, degree), r"^layout: .*$", OPEN)
    answer = ask(plumb, ["plan"], text, "nothing fits in memory")
    return answer["candidates"][answer["chosen"]] if answer else None


def is_grid(row):
    return row["kind"] != "1d"


def name(row):
    depth = f", depth {row['depth']}" if row["kind"] == "2.5d" else ""
    marks = {"sequence_parallel": ", sp", "asynchronous": ", async", "reshard_after_forward": ", reshard"}
    return row["kind"] + depth + "".join(mark for key, mark in marks.items() if row[key])


def digits(number, unit):
    return f"{number:.3g} {unit}" if number < 1000 else f"{number:.0f} {unit}"


def seconds(time):
    return digits(time, "s") if time >= 1 else digits(time * 1e3, "ms")


def mebibytes(amount):
    return digits(amount / 2**20, "MiB")


def gibibytes(amount):
    return digits(amount / 2**30, "GiB")


def moved(row):
    """Bytes that a rank receives for a layer and a sequence, and those over ranks on several machines."""
    layer, sequences = row["layer"], row["microbatch"]
    parts = ("forward_bytes", "input_gradient_bytes", "weight_gradient_bytes")
    return sum(layer[part] for part in parts) / sequences, layer["across_machines_bytes"] / sequences


def traffic(row):
    whole, across = moved(row)
    return mebibytes(whole) + (f", {mebibytes(across)} of it between machines" if 0 < across < whole else "")


def computing(row):
    return row["iteration_s"] - row["exposed_communication_s"]


def why(best, other):
    """The larger of two differences between the steps: waits for collectives, or all else."""
    waits = other["exposed_communication_s"] - best["exposed_communication_s"]
    computes = computing(other) - computing(best)
    if waits >= computes:
        hidden = best["tensor_communication_s"] - best["tensor_exposed_s"]
        text = f"waits {seconds(best['exposed_communication_s'])}, not {seconds(other['exposed_communication_s'])}"
        if moved(best)[0] > moved(other)[0]:
            text += f", and hides {seconds(hidden)} more" if hidden > 0 else ", in fewer collectives"
        return f"{text}; receives {traffic(best)}, not {traffic(other)}"
    text = f"computes {seconds(computing(best))}, not {seconds(computing(other))}"
    if best["recompute"] != other["recompute"]:
        return text + f": recompute {best['recompute']}, not {other['recompute']}, fits"
    if best["microbatch"] != other["microbatch"]:
        return text + f": matmuls of {best['microbatch']} sequences, not {other['microbatch']}"
    return text + ": its matmuls have other shapes"


def planned(candidate):
    if candidate is None:
        return "none fits"
    tokens = ", sp" if candidate["sequence_parallel"] else ""
    return f"{candidate['layout']}{tokens}: {seconds(candidate['iteration_s'])}"


def cells(compared):
    """One row's cells: fastest, step, beside it, why."""
    if compared is None:
        return "none", "", "", "none can be built"
    rows, memory = compared["layouts"], compared["memory_bytes"]
    fits = [row for row in rows if row["built"] and row["fits"]]
    built = [row for row in rows if row["built"]]
    if not fits:
        least = min(built, key=lambda row: row["peak_bytes"])
        needs = f"{gibibytes(least['peak_bytes'])} of {gibibytes(memory)}"
        return "none fits", "", "", f"{name(least)} needs least, {needs}"
    best = fits[0]
    step = seconds(best["iteration_s"])
    others = [row for row in rows if is_grid(row) != is_grid(best)]
    family = "1d" if is_grid(best) else "grids"
    fitting = [row for row in others if row["built"] and row["fits"]]
    if fitting:
        other = fitting[0]
        longer = other["iteration_s"] / best["iteration_s"] - 1
        return name(best), step, f"{name(other)} +{100 * longer:.1f}%", why(best, other)
    too_large = [row for row in others if row["built"]]
    if too_large:
        least = min(too_large, key=lambda row: row["peak_bytes"])
        return (name(best), step, f"{family}: none fits",
                f"{name(least)} needs {gibibytes(least['peak_bytes'])} of {gibibytes(memory)}, "
                f"{name(best)} {gibibytes(best['peak_bytes'])}")
    reason = others[0]["reason"] if others else f"{len(rows)} layouts, no grid of so many ranks"
    return name(best), step, f"{family}: none", reason


def tables(plumb):
    places = [(machine, model, degree) for machine in MACHINES for model in MODELS for degree in DEGREES]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compared = dict(zip(places, pool.map(lambda place: compare(plumb, *place), places)))
        plans = dict(zip(places, pool.map(lambda place: plan(plumb, *place), places)))
    lines = []
    fastest = []
    grids = 0  # that are planned where all axes are open
    for machine in MACHINES:
        lines += [f"## {machine}", "", *HEADER]
        nothing = []
        for model in MODELS:
            for degree in DEGREES:
                place = machine, model, degree
                row = cells(compared[place])
                fastest.append(row[0].split(",")[0])
                grids += plans[place] is not None and plans[place]["tensor_kind"] != "1d"
                if fastest[-1] == "none fits" and plans[place] is None:
                    nothing.append(f"{model} on {degree} ({row[3]})")
                else:
                    lines.append("| " + " | ".join((model, str(degree), *row, planned(plans[place]))) + " |")
        lines += ["", f"Nothing fits for {'; '.join(nothing)}.", ""] if nothing else [""]
    kinds = ("1d", "2d", "2.5d", "3d", "none fits", "none")
    counted = ", ".join(f"{kind} in {fastest.count(kind)}" for kind in kinds if kind in fastest)
    some = sum(found is not None for found in plans.values())
    lines.append(f"The fastest of {len(places)} rows is {counted}. With all axes open {some} have a plan that fits, "
                 f"{grids} of them with a grid.")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plumb", default="build/bin/plumb")
    parser.add_argument("--scenario", nargs=3, metavar=("MACHINE", "MODEL", "DEGREE"))
    options = parser.parse_args()
    if options.scenario:
        machine, model, degree = options.scenario
        print(scenario(machine, model, int(degree)), end="")
    else:
        print(tables(options.plumb), end="")


if __name__ == "__main__":
    main()
