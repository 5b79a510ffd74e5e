#!/usr/bin/env python3
"""Counts comments, test names and sentences that are hard to read, per folder, and holds them to a committed record.

usage: prose.py [--places] [--update]

Each count may only fall. Exit status 1 names the folders where one rose; --places lists every line that is counted;
--update writes the lower counts into tests/house/prose.json.
"""
import collections
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORD = ROOT / "tests/house/prose.json"
CODE_FOLDERS = ("common", "sim", "exec", "kernels", "tests")
CODE = (".cpp", ".hpp", ".cu", ".cuh")
FRONTED = re.compile(r"(?:^|\s)//+\s*(of|what|whatever|whose|whoever|who|whether|which|how|where|as many)\b(?!\s+(?:course|if))", re.I)
SENTINEL_FIRST = re.compile(r"//.*[;:,]\s*(none|null|empty|else)\s*:\s", re.I)
FRONTED_NAME = re.compile(r'TEST_CASE\("(what|of|who|whoever|whatever|as many)\b', re.I)
LONGEST_SENTENCE = 30  # words
LONGEST_CELL = 25  # words


def files():
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, text=True, check=False)
    if listed.returncode != 0:  # no clone, or no git
        return sorted(str(f.relative_to(ROOT)) for top in (*CODE_FOLDERS, "docs", "scenarios")
                      for f in (ROOT / top).rglob("*") if f.is_file())
    return sorted(f for f in listed.stdout.split("\0") if f and (ROOT / f).is_file())


def folder_of(name):
    """The two outermost folders: "common/search", "tests/sim"; the root's own files are "."."""
    return "/".join(pathlib.PurePath(name).parts[:-1][:2]) or "."


def faults_of_code(text):
    """Pairs of a kind of fault and the number of its line."""
    for number, line in enumerate(text.splitlines(), 1):
        if FRONTED.search(line) and not re.search(r"https?://", line):
            yield "fronted comment", number
        elif SENTINEL_FIRST.search(line):
            yield "special value first", number
        if FRONTED_NAME.search(line):
            yield "fronted test name", number


def faults_of_page(text):
    prose = re.sub(r"```.*?```", lambda block: "\n" * block[0].count("\n"), text, flags=re.S)
    for number, line in enumerate(prose.splitlines(), 1):
        if line.startswith("|") and any(len(cell.split()) > LONGEST_CELL for cell in line.split("|")):
            yield "long table cell", number
    prose = re.sub(r"^\s*\|.*$", "", prose, flags=re.M)
    number = 1
    for block in re.split(r"(\n\s*\n|\n\s*[-*#]\s|\n\s*\d+\.\s)", prose):
        for sentence in re.split(r"(?<=[.!?:;])\s+", block):
            if len(sentence.split()) > LONGEST_SENTENCE:
                yield "long sentence", number
        number += block.count("\n")


def faults():
    for name in files():
        if name.endswith(CODE) and name.split("/")[0] in CODE_FOLDERS:
            find = faults_of_code
        elif name.endswith(".md"):
            find = faults_of_page
        else:
            continue
        for kind, number in find((ROOT / name).read_text(errors="replace")):
            yield kind, name, number


def main(arguments):
    counts = collections.defaultdict(collections.Counter)
    for kind, name, number in faults():
        counts[kind][folder_of(name)] += 1
        if "--places" in arguments:
            print(f"{name}:{number}: {kind}")
    now = {kind: dict(sorted(folders.items())) for kind, folders in sorted(counts.items())}
    before = json.loads(RECORD.read_text()) if RECORD.exists() else None
    rose = [(kind, folder, count, before.get(kind, {}).get(folder, 0))
            for kind, folders in now.items() for folder, count in folders.items()
            if before is not None and count > before.get(kind, {}).get(folder, 0)]
    for kind, folder, count, limit in rose:
        print(f"prose: {folder}: {count} times '{kind}', at most {limit}; see CONTRIBUTING.md, or run with --places")
    if not rose and now != before and "--update" in arguments:
        RECORD.write_text(json.dumps(now, indent=1) + "\n")
        print(f"prose: wrote lower counts into {RECORD.relative_to(ROOT)}")
    return 1 if rose else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
