#!/usr/bin/env python3
"""Runs the commands that the README and docs quote, and checks links of all pages.

  test_pages.py FOLDER_OF_PROGRAMS [PAGE…]      runs the commands of the pages (default: README and all of docs)
  test_pages.py --links                         checks that each relative link leads to a file and each #anchor to a heading

A line that begins with `$ ` in a fenced block is a command. It must end with status 0. The lines below it are its
output, shortened: each must appear in the real output, in order. A line of `…` stands for any lines. Spacing and
drawings are not compared. Comments before a block change that:

  <!-- run: no, REASON -->          the block is not run
  <!-- run: --steps 3, REASON -->   these options are appended to its plumb-exec commands, to make them short
  <!-- output: measured -->         numbers differ from run to run: only words are compared
  <!-- file: NAME -->               the block is written to this file, and not run

Commands run in a folder of their own with `scenarios` and `tests` of the sources, one shell for each page.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2]
DIRECTIVE = re.compile(r"^<!-- (run|output|file): (.*?) -->$")
PROGRAMS = ("plumb", "plumb-exec")
CHANCE = ("faster", "slower")  # words of measured output that differ from run to run


class Block:
    """A fenced block: its lines, the number of its first line, and the comments before it."""

    def __init__(self, place, directives):
        self.place, self.directives, self.lines = place, directives, []

    def commands(self):
        """Each command with the lines quoted below it."""
        found = []
        for line in self.lines:
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif found:
                found[-1][1].append(line)
        return found


def blocks_of(text, name):
    blocks, directives, block = [], {}, None
    for number, line in enumerate(text.splitlines(), 1):
        directive = DIRECTIVE.match(line.strip())
        if line.startswith("```"):
            if block is None:
                block = Block(f"{name}:{number + 1}", directives)
            else:
                blocks.append(block)
                block, directives = None, {}
        elif block is not None:
            block.lines.append(line)
        elif directive:
            directives[directive[1]] = directive[2]
        elif line.strip():
            directives = {}
    return blocks


def words_of(line, numbers):
    """What is compared of a line: words of three letters or more, and numbers if they are the same everywhere."""
    line = re.split(r"│", line)[0] if "│" in line else line
    tokens = re.findall(r"[^\s·▒…()\[\],;:]+", line)
    keep = []
    for token in tokens:
        word = re.fullmatch(r"[A-Za-z][\w'./-]{2,}", token)
        number = re.fullmatch(r"[-+−]?\d[\w.%/-]*", token)
        if (word and (numbers or token not in CHANCE)) or (numbers and number):
            keep.append(token)
    return keep


def contains_in_order(line, tokens):
    rest = iter(words_of(line, True))
    return all(any(token == other for other in rest) for token in tokens)


def missing_line(quoted, output, numbers):
    """The first quoted line that the output does not have behind the ones before it; None if it has all."""
    lines = iter(output.splitlines())
    for line in quoted:
        tokens = words_of(line, numbers)
        if tokens and not any(contains_in_order(real, tokens) for real in lines):
            return line
    return None


class Shell:
    """One bash for a page, so that folders and variables last from command to command."""

    def __init__(self, folder, programs):
        environment = dict(os.environ, PATH=f"{programs}:{os.environ['PATH']}", PLUMB_PROGRESS="off")
        self.bash = subprocess.Popen(["bash"], cwd=folder, env=environment, stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, command):
        self.bash.stdin.write(f"{{ {command}\n}} < /dev/null\necho \"status:$?\"\n")
        self.bash.stdin.flush()
        lines = []
        for line in self.bash.stdout:
            if ended := re.fullmatch(r"(.*)status:(\d+)\n", line, re.S):
                return int(ended[2]), "".join(lines) + ended[1]
            lines.append(line)
        return self.bash.wait(), "".join(lines)

    def close(self):
        self.bash.stdin.close()
        self.bash.wait()


def as_run(command, directive):
    """The command with the options of `run: OPTIONS, REASON` appended to plumb-exec's commands."""
    command = re.sub(r"\s+#\s.*$", "", command)
    if directive is None or not command.startswith("plumb-exec"):
        return command
    return f"{command} {directive.split(', ', 1)[0]}"


def faults_of_page(page, programs):
    faults = []
    with tempfile.TemporaryDirectory(prefix="plumb-pages-") as folder:
        for name in ("scenarios", "tests"):
            (Path(folder) / name).symlink_to(SOURCES / name)
        (Path(folder) / "build").mkdir()
        shell = Shell(folder, programs)
        for block in blocks_of(page.read_text(), page.name):
            run = block.directives.get("run")
            if run is not None and len(run.split(", ", 1)) < 2:
                faults.append(f"{block.place}: 'run: {run}' gives no reason")
            if name := block.directives.get("file"):
                (Path(folder) / name).write_text("\n".join(block.lines) + "\n")
                continue
            if run is not None and run.startswith("no,"):
                continue
            for command, quoted in block.commands():
                if command.startswith("export PATH="):
                    continue  # set by this script, so that builds elsewhere are tested too
                command = as_run(command, run)
                status, output = shell.run(command)
                print(f"{page.name}: $ {command}  [{status}]", flush=True)
                if status != 0:
                    faults.append(f"{block.place}: '{command}' ended with status {status}:\n{output[-3000:]}")
                    break
                line = missing_line(quoted, output, block.directives.get("output") != "measured")
                if line is not None:
                    faults.append(f"{block.place}: '{command}' does not print\n{line}\nbut\n{output[-4000:]}")
        shell.close()
    return faults


def anchor(heading):
    """The name that GitHub gives to a heading."""
    text = re.sub(r"[`*]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def prose_of(page):
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.S)


def link_faults():
    listed = subprocess.run(["git", "-C", SOURCES, "ls-files", "-co", "--exclude-standard", "*.md"], check=True,
                            capture_output=True, text=True).stdout.split()
    pages = [SOURCES / name for name in listed if (SOURCES / name).is_file()]
    anchors = {page: {anchor(heading) for heading in re.findall(r"^#+ (.*)$", prose_of(page), re.M)} for page in pages}
    faults, links = [], 0
    for page in pages:
        for target in re.findall(r"\]\(([^)\s]+)\)", prose_of(page)):
            if re.match(r"[a-z]+:", target):
                continue
            links += 1
            path, _, place = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if not file.exists():
                faults.append(f"{page.relative_to(SOURCES)}: no file {target}")
            elif place and file in anchors and place not in anchors[file]:
                faults.append(f"{page.relative_to(SOURCES)}: no heading for {target}")
    print(f"{links} links in {len(pages)} pages")
    if links == 0:
        faults.append("no links found")
    return faults


def main():
    if sys.argv[1:] == ["--links"]:
        faults = link_faults()
    else:
        programs = Path(sys.argv[1]).resolve()
        if absent := [name for name in PROGRAMS if not (programs / name).exists()]:
            sys.exit(f"{programs} has no {' and no '.join(absent)}")
        pages = [Path(name) for name in sys.argv[2:]]
        pages = pages or [SOURCES / "README.md", *sorted((SOURCES / "docs").rglob("*.md"))]
        faults = [fault for page in pages for fault in faults_of_page(page, programs)]
    print("\n".join(faults) if faults else "no faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
