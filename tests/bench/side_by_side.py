#!/usr/bin/env python3
"""Whether one program is slower than another: side_by_side.py BEFORE AFTER [ARGUMENT…]

Runs both in turns, so that the machine's mood is shared, and prints the ratio of their times; then, where valgrind is
installed, counts their instructions, which no mood changes. Prints, asserts nothing.

    ninja -C build bench_runner
    tests/bench/side_by_side.py ../before/build/tests/bench/bench_runner build/tests/bench/bench_runner 100
"""
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ALTERNATIONS = 21


def seconds(command):
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def instructions(command):
    with tempfile.NamedTemporaryFile() as out:
        callgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out.name}"]
        done = subprocess.run(callgrind + command, check=True, capture_output=True, text=True)
    return int(re.search(r"Collected : (\d+)", done.stderr).group(1))


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    before, after = ([program, *sys.argv[3:]] for program in sys.argv[1:3])
    ratios = []
    for turn in range(ALTERNATIONS):
        order = (before, after) if turn % 2 == 0 else (after, before)
        times = {program[0]: seconds(program) for program in order}
        ratios.append(times[after[0]] / times[before[0]])
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"time after / before: {middle:.3f}, quartiles {low:.3f} to {high:.3f}, of {ALTERNATIONS} turns")
    if shutil.which("valgrind") is None:
        return
    counts = [instructions(before), instructions(after)]
    print(f"instructions: {counts[0]:,} before, {counts[1]:,} after, {counts[1] / counts[0]:.3f} times")


if __name__ == "__main__":
    main()
