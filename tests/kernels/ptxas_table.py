#!/usr/bin/env python3
"""Compiles each kernel for sm_90 and prints, as a table, what ptxas says of its registers, shared memory and spills.

usage: python3 tests/kernels/ptxas_table.py [ARCHITECTURE]      (needs nvcc and c++filt; no GPU)
"""
import pathlib
import re
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parents[2]
arch = sys.argv[1] if len(sys.argv) > 1 else "90"


def demangled(name):
    text = subprocess.run(["c++filt", name], capture_output=True, text=True, check=True).stdout.strip()
    text = text.replace("plumb::kernels::(anonymous namespace)::", "").replace("(int)", "").replace("__nv_bfloat16", "bf16")
    text = re.sub(r"^void ", "", text.replace("__half", "fp16").replace("float", "fp32"))
    return re.sub(r"\(.*", "", text)


def kernels_of(source):
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            ["nvcc", "-std=c++20", "-O3", f"--generate-code=arch=compute_{arch},code=sm_{arch}", "-Xptxas", "-v", "-I",
             str(root), "-cubin", "-o", f"{folder}/out.cubin", str(source)], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr)
    name = spills = None
    for line in run.stderr.splitlines():
        if found := re.search(r"Compiling entry function '(\S+)'", line):
            name = found[1]
        elif found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spills = [int(number) for number in found.groups()]
        elif (found := re.search(r"Used (\d+) registers", line)) and name:
            shared = re.search(r"(\d+) bytes smem", line)
            yield demangled(name), int(found[1]), int(shared[1]) if shared else 0, spills
            name = None


print("| kernel | registers | static shared bytes | stack, spill stores, spill loads |")
print("| --- | --- | --- | --- |")
for source in sorted((root / "kernels").glob("*.cu")):
    for name, registers, shared, spills in sorted(kernels_of(source)):
        print(f"| {source.stem}: `{name}` | {registers} | {shared} | {', '.join(map(str, spills))} |")
