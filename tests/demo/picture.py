#!/usr/bin/env python3
"""Draws docs/demo.svg: the demo's training step as predicted, and below it as measured.

  tests/demo/picture.py                  runs the README's commands, draws, and quotes their output in the pages
  tests/demo/picture.py --draw-only      draws the timelines that are in build/demo

The README and the tutorial quote the run that the picture shows. Run this on an idle machine.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

import demo

OUT = Path("build/demo")
PICTURE = Path("docs/demo.svg")
PAGES = (Path("README.md"), Path("docs/tutorials/predict-run-diff.md"))
LETTERS = {"F": "F", "B": "B", "I": "I", "W": "W", "R": "R", "STEP": "step"}
NAMES = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient", "R": "recompute",
         "step": "optimizer"}
LEFT, WIDTH, LANE, GAP = 62, 940, 26, 4
STYLE = """svg { --paper: #ffffff; --ink: #1d2329; --quiet: #68727d; --lane: #f0f1f0; --F: #4a7fd4; --B: #2a9a8a; --I: #45b3c4;
  --W: #e2a33c; --R: #9b73c4; --step: #7b8794; font: 13px sans-serif; }
@media (prefers-color-scheme: dark) { svg { --paper: #14171a; --ink: #e4e7ea; --quiet: #939da7; --lane: #22272c; } }
text { fill: var(--ink); } .quiet { fill: var(--quiet); font-size: 11px; } .in { fill: #ffffff; font-size: 10px;
  text-anchor: middle; } .lane { fill: var(--lane); }
""" + "\n".join(f".{name} {{ fill: var(--{name}); }}" for name in NAMES)


def median_step(path):
    """The step of median duration in a timeline: its length and its compute events by rank."""
    trace = json.loads(path.read_text())
    lengths = [step["duration_s"] for step in trace["plumb"]["steps"]]
    chosen = sorted(range(len(lengths)), key=lengths.__getitem__)[len(lengths) // 2]
    ranks = [[] for _ in trace["plumb"]["ranks"]]
    for event in trace["traceEvents"]:
        args = event.get("args", {})
        if event["ph"] == "X" and args["step"] == chosen and args["kind"] in LETTERS:
            ranks[event["pid"]].append((LETTERS[args["kind"]], args.get("microbatch"), args["start_s"], args["end_s"]))
    return lengths[chosen], ranks


def lanes(ranks, top, scale):
    for rank, events in enumerate(ranks):
        y = top + rank * (LANE + GAP)
        yield f'<text x="8" y="{y + 18}">rank {rank}</text>'
        yield f'<rect class="lane" x="{LEFT}" y="{y}" width="{WIDTH}" height="{LANE}"/>'
        for letter, microbatch, start, end in events:
            x, width = LEFT + start * scale, max(0.5, (end - start) * scale - 0.5)
            yield f'<rect class="{letter}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{LANE}"/>'
            if microbatch is not None and width > 10:
                yield f'<text class="in" x="{x + width / 2:.1f}" y="{y + 17}">{microbatch}</text>'


def picture(predicted, measured):
    """One SVG: both steps on one time axis, the letters of its actions below."""
    longest = max(predicted[0], measured[0])
    scale = WIDTH / longest
    lines, top = [], 8
    for title, (length, ranks) in (("predicted", predicted), ("measured", measured)):
        lines.append(f'<text x="{LEFT}" y="{top + 14}">{title}: {length:.3f} s</text>')
        lines += lanes(ranks, top + 22, scale)
        top += 22 + len(ranks) * (LANE + GAP) + 14
    used = {event[0] for _, ranks in (predicted, measured) for events in ranks for event in events}
    x = LEFT
    for name in (name for name in NAMES if name in used):
        lines.append(f'<rect class="{name}" x="{x}" y="{top}" width="12" height="12"/>')
        lines.append(f'<text class="quiet" x="{x + 17}" y="{top + 10}">{NAMES[name]}</text>')
        x += 110
    lines.append(f'<text class="quiet" x="{x}" y="{top + 10}">numbers: microbatch</text>')
    size = f"{LEFT + WIDTH + 8} {top + 22}"
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}">', f"<style>\n{STYLE}\n</style>",
                      f'<rect width="100%" height="100%" style="fill: var(--paper)"/>', *lines, "</svg>"]) + "\n"


def answer(*words):
    """Runs a command and shows its output, which is returned."""
    command = [str(demo.BIN / words[0]), *map(str, words[1:])]
    print(f"\n$ {' '.join(command)}", flush=True)
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    print(ended.stdout, end="", flush=True)
    if ended.returncode != 0:
        sys.exit(f"picture: '{words[0]} {words[1]}' ended with exit status {ended.returncode}")
    return ended.stdout


def run():
    """The README's commands, from calibration to diff: their output by subcommand."""
    OUT.mkdir(parents=True, exist_ok=True)
    profile, plan, after = OUT / "profile.yaml", OUT / "dynamic.json", OUT / "profile-after.yaml"
    predicted, measured = OUT / "predicted.json", OUT / "measured.json"
    answers = {"calibrate": answer("plumb-exec", "calibrate", demo.SCENARIO, "-o", profile),
               "plan": answer("plumb", "plan", demo.SCENARIO, "--profile", profile, "-o", plan),
               "simulate": answer("plumb", "simulate", plan, "-o", predicted),
               "run": answer("plumb-exec", "run", plan, "--check", "-o", measured)}
    answer("plumb-exec", "calibrate", demo.SCENARIO, "-o", after)
    return answers | {"diff": answer("plumb", "diff", predicted, measured, "--profile-before", profile,
                                     "--profile-after", after)}


def key_of(line):
    """The words by which a line of one run is found in the output of another."""
    words = line.split() or [""]
    if words[0] == "rank" or words[0].isdigit():
        return " ".join(words[:2])
    return {"slower": "faster"}.get(words[0], words[0]) if words[0][:1].isalnum() else words[0][:1]


def cut(line):
    """A line of a diff without its last columns, and a cause without its explanation."""
    cells = re.findall(r"\S+(?: \S+)*", line)[:3]
    if len(cells) == 3 and (cells[2].endswith("%") or cells[0] == "cause"):
        return f"  {re.sub(r' [(].*[)]$', '', cells[0]):26} {cells[1]:>12} {cells[2]:>12}"
    return line


def excerpt(output, quoted):
    """The lines of an output that begin with the same words as those quoted before."""
    wanted = {key_of(line) for line in quoted} - {""}
    if "cause" in wanted:
        wanted |= {"faster", "everything", "sends", "order"}
    lines = [line for line in output.splitlines() if key_of(line) in wanted and "+0 s " not in line]
    return list(dict.fromkeys((cut(line) if "sum" in wanted else line).rstrip() for line in lines))


def quote(page, answers):
    """Puts the answers in place of the output that a page quotes of the same commands."""
    lines, out, at = page.read_text().splitlines(), [], 0
    while at < len(lines):
        out.append(lines[at])
        command = re.match(r"\$ plumb(?:-exec)? (\w+) .*(?:build/demo/|demo\.yaml)", lines[at])
        at += 1
        if command is None or command[1] not in answers:
            continue
        quoted = []
        while at < len(lines) and not lines[at].startswith(("$ ", "```")):
            quoted.append(lines[at])
            at += 1
        out += excerpt(answers[command[1]], quoted) if quoted else []
    page.write_text("\n".join(out) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draw-only", action="store_true", help="draw the timelines that are in build/demo")
    answers = {} if parser.parse_args().draw_only else run()
    PICTURE.write_text(picture(median_step(OUT / "predicted.json"), median_step(OUT / "measured.json")))
    for page in PAGES:
        quote(page, answers)
    print(f"\n{PICTURE}")


if __name__ == "__main__":
    main()
