#!/usr/bin/env python3
"""Parameter counts of plumb beside those of transformers.

  python tests/peers/model_counts.py [build/bin/plumb]
  python tests/peers/model_counts.py --write tests/data/models/NAME.config.json ...

Compares two sets of files. First the configurations of tests/data/models; then the configuration that transformers
saves by default for each family that plumb reads. transformers builds every model on the meta device, without memory.
--write builds the named configurations and writes NAME.counts.json beside each, the exact counts that the tests of
plumb compare.

Needs a Python with torch and transformers (5.24); without them it prints a line and ends with status 77, which test
programs take for skipped. Exit status: 0 if all counts are equal, 1 if some differ.
"""

import json
import pathlib
import re
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
MODELS = ROOT / "tests/data/models"
# Files of these types have the tensors of another class; the others of plumb's families are no part of transformers.
SAME_CLASS = {"kimi_k2": "deepseek_v3"}
ABSENT = {"mimo", "minimax_text_01", "minimax_m1"}
# The default is no model: its number of chosen experts is null.
NO_MODEL = {"deepseek_v2"}
LAYER = re.compile(r"(?:^|\.)(?:layers|layer|h)\.(\d+)\.")


def text_config(config):
    inner = config.get("text_config")
    if inner is None:
        return dict(config)
    tied = {"tie_word_embeddings": config["tie_word_embeddings"]} if "tie_word_embeddings" in config else {}
    return {"model_type": config.get("model_type"), **inner, **tied}


def with_floats(value):
    """transformers writes an infinite number as {"__float__": "Infinity"}."""
    if isinstance(value, dict):
        return float(value["__float__"]) if "__float__" in value else {k: with_floats(v) for k, v in value.items()}
    return [with_floats(one) for one in value] if isinstance(value, list) else value


def build(config):
    """The language model of a configuration, on the meta device. Some classes have a body alone."""
    fields = with_floats(text_config(config))
    fields["model_type"] = SAME_CLASS.get(fields["model_type"], fields["model_type"])
    config = transformers.AutoConfig.for_model(**fields)
    auto = transformers.AutoModelForImageClassification if config.model_type == "vit" else \
        transformers.AutoModelForCausalLM
    with torch.device("meta"):
        try:
            model = auto.from_config(config)
            model.tie_weights()
        except ValueError:
            model = transformers.AutoModel.from_config(config)
            if not fields.get("tie_word_embeddings", getattr(config, "tie_word_embeddings", False)):
                model.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
    return model


def total(model):
    return sum(parameter.numel() for parameter in model.parameters())


def is_matmul(name, parameter):
    """Weights that multiply a token: no tables, convolutions or decays."""
    return parameter.dim() >= 2 and "conv1d" not in name and "conv." not in name and not name.endswith("A_log")


def kind_of(names):
    """A layer's kind in the words of plumb, by its tensors."""
    text = " ".join(names)
    mixers = [("kv_b_proj", "mla"), ("in_proj_qkv", "linear"), ("f_a_proj", "kda"), ("x_proj", "mamba"),
              ("conv1d", "mamba2"), ("q_proj", "softmax"), ("qkv_proj", "softmax")]
    mixer = next((word for part, word in mixers if part in text), "none")
    moe = "experts" in text
    dense = any(part in text for part in ("up_proj", "input_linear", "gate_up_proj"))
    return f"{mixer}/{'moe' if moe else 'dense' if dense else 'none'}"


def counts(model):
    config = model.config
    chosen = getattr(config, "num_experts_per_tok", None) or getattr(config, "num_experts_per_token", 0)
    layers, outside = {}, {"embedding": 0, "head": 0, "final_norm": 0}
    for name, parameter in model.named_parameters():
        found = LAYER.search(name)
        if found:
            layers.setdefault(int(found.group(1)), []).append((name, parameter))
        elif "embed" in name:
            outside["embedding"] += parameter.numel()
        elif "lm_head" in name:
            outside["head"] += parameter.numel()
        else:
            outside["final_norm"] += parameter.numel()

    def active(name, parameter):
        routed = "experts" in name and "shared" not in name and parameter.dim() == 3
        routed = routed or "block_sparse_moe.input_linear" in name or "block_sparse_moe.output_linear" in name
        return parameter.numel() // parameter.shape[0] * chosen if routed else parameter.numel()

    ordered = [layers[i] for i in sorted(layers)]
    matmul = [sum(active(n, p) for n, p in layer if is_matmul(n, p)) for layer in ordered]
    table = config.vocab_size * config.hidden_size
    used = sum(active(n, p) for layer in ordered for n, p in layer)
    return {"total": total(model), **outside, "tied": bool(config.tie_word_embeddings),
            "layers": [sum(p.numel() for _, p in layer) for layer in ordered],
            "layer_kinds": [kind_of([n for n, _ in layer]) for layer in ordered],
            "layer_matmul_active": matmul, "matmul_active_per_token": sum(matmul) + table,
            "active_per_token": used + sum(outside.values())}


def plumb(program, path):
    result = subprocess.run([program, "show", "--json", path], capture_output=True, text=True, check=False)
    return json.loads(result.stdout) if result.returncode == 0 else result.stderr.strip()


def families(program):
    """All names that plumb reads: it lists them where it knows none."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "config.json"
        path.write_text(json.dumps({"model_type": "no family has a name like this"}))
        text = plumb(program, path)
    return re.findall(r"[a-z0-9_]+", text.split("one of:")[1])


def compare(name, found, expected):
    equal = isinstance(found, dict) and found["parameters"] == expected
    ours = found if isinstance(found, str) else f"{found['parameters']:,}"
    print(f"{name:30} {expected:>18,}" + ("" if equal else f"  DIFFERS, plumb: {ours}"))
    return 0 if equal else 1


def main():
    transformers.logging.set_verbosity_error()
    if len(sys.argv) > 2 and sys.argv[1] == "--write":
        for path in map(pathlib.Path, sys.argv[2:]):
            written = {"transformers": transformers.__version__, **counts(build(json.loads(path.read_text())))}
            path.with_name(path.name.replace(".config.json", ".counts.json")).write_text(json.dumps(written, indent=1) + "\n")
        return 0
    program = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/bin/plumb").resolve()
    wrong = 0
    for path in sorted(MODELS.glob("*.config.json")):
        config = json.loads(path.read_text())
        if text_config(config)["model_type"] in ABSENT:
            continue
        wrong += compare(path.name.removesuffix(".config.json"), plumb(program, path), total(build(config)))
    for family in families(program):
        if family in ABSENT | NO_MODEL or family in SAME_CLASS:
            continue
        with tempfile.TemporaryDirectory() as folder:
            config = transformers.AutoConfig.for_model(family)
            config.save_pretrained(folder)
            path = pathlib.Path(folder) / "config.json"
            wrong += compare(f"default of {family}", plumb(program, path), total(build(json.loads(path.read_text()))))
    print(f"{wrong} differ" if wrong else "all counts are equal")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
