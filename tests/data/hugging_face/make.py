"""Makes the tiny checkpoints beside this file with Hugging Face's own classes, and what these compute of them.

    pip install torch transformers safetensors
    python tests/data/hugging_face/make.py

Each folder gets what save_pretrained writes (config.json, model.safetensors or shards with their index) and
expected.json: tokens, the losses of three steps of torch.optim.SGD over them (fp32, eager attention, no dropout), and
the versions. Weights are
drawn large, norms and biases off their usual 1 and 0, and numbers such as epsilon, theta and windows far from what is
usual, so that a wrong layout, bias or number shows in the loss.
"""

import json
import pathlib
import shutil

import torch
import transformers
from transformers import (AutoModelForCausalLM, GPT2Config, GPTJConfig, LlamaConfig, MistralConfig, MixtralConfig,
                          Qwen2Config, Qwen2MoeConfig, Qwen3Config, Qwen3MoeConfig)

HERE = pathlib.Path(__file__).parent
TOKENS = 33  # 32 inputs, each with the next as its target
STEPS = 3
LEARNING_RATE = 0.02

SMALL = dict(vocab_size=256, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, attention_dropout=0.0)


def with_theta(theta, **more):
    """The block that transformers 5 has in place of rope_theta and rope_scaling."""
    return dict(rope_parameters=dict(rope_type="default", rope_theta=theta, **more))


CONFIGS = {
    "llama": LlamaConfig(**SMALL, intermediate_size=24, rms_norm_eps=0.02, **with_theta(500.0)),
    # Llama 3.1's positions; the waves of these four frequencies lie on both sides of its two limits and between them.
    "llama3": LlamaConfig(
        **dict(SMALL, num_hidden_layers=1, max_position_embeddings=128), intermediate_size=24, rms_norm_eps=0.01,
        head_dim=8, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="llama3", rope_theta=1000.0, factor=8.0, low_freq_factor=1.0,
                             high_freq_factor=4.0, original_max_position_embeddings=64)),
    "mistral": MistralConfig(**SMALL, intermediate_size=24, rms_norm_eps=0.03, sliding_window=5, head_dim=4,
                             tie_word_embeddings=True, **with_theta(300.0)),
    "qwen2": Qwen2Config(**SMALL, intermediate_size=24, rms_norm_eps=0.01, tie_word_embeddings=True,
                         **with_theta(200.0)),
    "qwen3": Qwen3Config(**SMALL, intermediate_size=24, rms_norm_eps=0.02, head_dim=6, tie_word_embeddings=True,
                         **with_theta(400.0)),
    "mixtral": MixtralConfig(**SMALL, intermediate_size=12, rms_norm_eps=0.02, num_local_experts=4,
                             num_experts_per_tok=2, sliding_window=None, tie_word_embeddings=True,
                             **with_theta(600.0)),
    "qwen2_moe": Qwen2MoeConfig(**dict(SMALL, num_hidden_layers=1), intermediate_size=24, moe_intermediate_size=8,
                                shared_expert_intermediate_size=12, num_experts=4, num_experts_per_tok=2,
                                norm_topk_prob=False, rms_norm_eps=0.02, tie_word_embeddings=True,
                                **with_theta(700.0)),
    "qwen3_moe": Qwen3MoeConfig(**SMALL, intermediate_size=24, moe_intermediate_size=8, num_experts=4,
                                num_experts_per_tok=2, norm_topk_prob=True, rms_norm_eps=0.02, head_dim=8,
                                mlp_only_layers=[0], tie_word_embeddings=True, **with_theta(800.0)),
    "gpt2": GPT2Config(vocab_size=256, n_embd=16, n_layer=2, n_head=4, n_positions=40, layer_norm_epsilon=0.02,
                       resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
    "gptj": GPTJConfig(vocab_size=256, n_embd=16, n_layer=1, n_head=2, rotary_dim=4, n_positions=40,
                       layer_norm_epsilon=0.02, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
}
SHARDED = {"mistral": "12KB"}
NARROW = {"qwen2": torch.bfloat16, "qwen3": torch.float16}


def redraw(model):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.3)
            elif "norm" in name or "ln_" in name:
                parameter.normal_(1.0 if name.endswith("weight") else 0.0, 0.2)
            else:
                parameter.normal_(0.0, 0.2)


def make(name, config):
    torch.manual_seed(sum(map(ord, name)))
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    redraw(model)
    model = model.to(NARROW.get(name, torch.float32))
    model.save_pretrained(folder, max_shard_size=SHARDED.get(name, "1GB"))
    for file in folder.iterdir():
        file.unlink() if file.name == "generation_config.json" else file.chmod(0o644)

    # What a user has of the folder, in fp32 whatever its type.
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    tokens = torch.randint(0, 256, (1, TOKENS))
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    expected = {
        "transformers": transformers.__version__,
        "torch": torch.__version__.split("+")[0],
        "tokens": tokens[0].tolist(),
        "learning_rate": LEARNING_RATE,
        "losses": losses,
    }
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")
    print(f"{name}: losses {losses}, {sum(p.numel() for p in model.parameters())} parameters")


if __name__ == "__main__":
    for name, config in CONFIGS.items():
        make(name, config)
