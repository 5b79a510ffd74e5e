#!/usr/bin/env python3
"""Checkpoints there and back: from transformers through plumb-exec to transformers again.

  python tests/peers/hugging_face.py [build/bin/plumb]

Each tiny checkpoint of tests/data/hugging_face is trained for two steps by plumb-exec, on two ranks where it has two
layers, and written with --export. transformers reads that folder, finds no weight missing or left over, and computes the
loss that it had itself after two steps (expected.json): equal to a few units in the last place of fp32.

Needs a Python that has torch and transformers (5.24). Without one it says so and ends with status 77, which test
programs take for skipped. Exit status: 0 all losses are equal, 1 some differ.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Losses are about 6, a unit in the last place 4.8e-7: 4 of these, as tests/exec/commands/test_hugging_face.cpp says why.
TOLERANCE = 4 * 4.8e-7

SCENARIO = """
model: {config}
cluster: {{machine: local-cpu, ranks: {ranks}}}
training: {{sequence: 32, global_batch: 2, microbatch: 1, precision: fp32, optimizer: sgd, learning_rate: {rate}}}
layout: {{pipeline: {ranks}}}
schedule: 1f1b
split: uniform
"""


def trained(programs, checkpoint, expected, folder):
    """The folder that plumb-exec exports after two steps."""
    scenario, plan, text, out = (folder / name for name in ("scenario.yaml", "plan.json", "tokens.bin", "out"))
    config = json.loads((checkpoint / "config.json").read_text())
    ranks = min(2, config.get("num_hidden_layers", config.get("n_layer")))
    scenario.write_text(SCENARIO.format(config=checkpoint / "config.json", rate=expected["learning_rate"], ranks=ranks))
    text.write_bytes(bytes(expected["tokens"]))
    out.mkdir()
    for command in (["plumb", "plan", scenario, "-o", plan],
                    ["plumb-exec", "run", plan, "--weights", checkpoint, "--data", text, "--warm-up", "0", "--steps",
                     "2", "--export", out]):
        subprocess.run([programs / command[0], *command[1:]], check=True, stdout=subprocess.DEVNULL)
    return out


def loss_of(folder, tokens):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    tokens = torch.tensor([tokens])
    with torch.no_grad():
        return model.eval()(input_ids=tokens, labels=tokens, use_cache=False).loss.item()


def main():
    programs = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/bin/plumb").resolve().parent
    wrong = 0
    for checkpoint in sorted((ROOT / "tests/data/hugging_face").iterdir()):
        if not checkpoint.is_dir():
            continue
        expected = json.loads((checkpoint / "expected.json").read_text())
        with tempfile.TemporaryDirectory() as folder:
            found = loss_of(trained(programs, checkpoint, expected, pathlib.Path(folder)), expected["tokens"])
        # What was exported are fp32 weights, whatever the checkpoint's type.
        difference = abs(found - expected["losses"][2])
        wrong += difference > TOLERANCE
        print(f"{checkpoint.name:10} loss {found:.7f}, transformers' own {expected['losses'][2]:.7f}, "
              f"apart by {difference:.1e}{'' if difference <= TOLERANCE else '  TOO FAR'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
