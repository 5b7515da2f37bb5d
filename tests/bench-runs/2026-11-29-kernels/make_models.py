#!/usr/bin/env python3
"""Writes the random checkpoints that the speeds are measured on beside the mixture of experts of make_big.

Usage: make_models.py dense|mla OUT_DIR TOKENIZER_DIR

dense: 0.50e9 parameters, Qwen3: 16 layers of 1536, feed-forward 4096, 12 query and 4 key heads of 128, vocabulary 32000.
mla:   0.41e9 parameters, DeepSeek-V2: 10 layers of 1024, the first dense, the others with 16 experts of 512 of which 4 are used
       and two shared ones; 16 heads, queries of rank 512, latent rows of 512 and 64 rotated columns. The peer takes a file
       without a rank of queries for DeepSeek-V2-Lite, by whose number of layers it knows it, and refuses others.

Rows are whole numbers of 256 weights, but those of the latent keys of `mla` (128), where K types fall back. Weights are BF16, heavy-tailed from row
to row as those of trained models are; the same seed gives the same bytes. TOKENIZER_DIR is a checkpoint with a tokenizer
of at most 32000 tokens, whose files are copied. Only numpy is needed.
"""
import json, os, shutil, struct, sys
import numpy as np

VOCAB = 32000
SHARD = 512 << 20
COMMON = dict(vocab_size=VOCAB, hidden_act="silu", attention_bias=False, tie_word_embeddings=False, torch_dtype="bfloat16",
    max_position_embeddings=32768, rms_norm_eps=1e-6, rope_theta=10000.0, bos_token_id=507, eos_token_id=508)
DENSE = dict(architectures=["Qwen3ForCausalLM"], model_type="qwen3", hidden_size=1536, num_hidden_layers=16, intermediate_size=4096,
    num_attention_heads=12, num_key_value_heads=4, head_dim=128, **COMMON)
MLA = dict(architectures=["DeepseekV2ForCausalLM"], model_type="deepseek_v2", hidden_size=1024, num_hidden_layers=10, intermediate_size=2816,
    num_attention_heads=16, num_key_value_heads=16, q_lora_rank=512, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
    qk_head_dim=192, head_dim=64, v_head_dim=128, first_k_dense_replace=1, moe_layer_freq=1, n_routed_experts=16, num_experts_per_tok=4,
    n_shared_experts=2, moe_intermediate_size=512, norm_topk_prob=False, routed_scaling_factor=1.0, scoring_func="softmax",
    topk_method="greedy", n_group=None, topk_group=None, **COMMON)


def ffn(prefix, width, hidden):
    yield f"{prefix}gate_proj.weight", (width, hidden)
    yield f"{prefix}up_proj.weight", (width, hidden)
    yield f"{prefix}down_proj.weight", (hidden, width)


def dense_layer(c, _, p):
    h, d = c["hidden_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    yield p + "self_attn.q_proj.weight", (q, h)
    yield p + "self_attn.k_proj.weight", (kv, h)
    yield p + "self_attn.v_proj.weight", (kv, h)
    yield p + "self_attn.o_proj.weight", (h, q)
    yield p + "self_attn.q_norm.weight", (d,)
    yield p + "self_attn.k_norm.weight", (d,)
    yield from ffn(p + "mlp.", c["intermediate_size"], h)


def mla_layer(c, layer, p):
    h, n, latent, rope = c["hidden_size"], c["num_attention_heads"], c["kv_lora_rank"], c["qk_rope_head_dim"]
    nope, v = c["qk_nope_head_dim"], c["v_head_dim"]
    yield p + "self_attn.q_a_proj.weight", (c["q_lora_rank"], h)
    yield p + "self_attn.q_a_layernorm.weight", (c["q_lora_rank"],)
    yield p + "self_attn.q_b_proj.weight", (n * (nope + rope), c["q_lora_rank"])
    yield p + "self_attn.kv_a_proj_with_mqa.weight", (latent + rope, h)
    yield p + "self_attn.kv_a_layernorm.weight", (latent,)
    yield p + "self_attn.kv_b_proj.weight", (n * (nope + v), latent)
    yield p + "self_attn.o_proj.weight", (h, n * v)
    if layer < c["first_k_dense_replace"]:
        yield from ffn(p + "mlp.", c["intermediate_size"], h)
        return
    width = c["moe_intermediate_size"]
    yield p + "mlp.gate.weight", (c["n_routed_experts"], h)
    for e in range(c["n_routed_experts"]):
        yield from ffn(f"{p}mlp.experts.{e}.", width, h)
    yield from ffn(p + "mlp.shared_experts.", c["n_shared_experts"] * width, h)


def shapes(c, layer):
    h = c["hidden_size"]
    yield "model.embed_tokens.weight", (VOCAB, h)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", (h,)
        yield p + "post_attention_layernorm.weight", (h,)
        yield from layer(c, i, p)
    yield "model.norm.weight", (h,)
    yield "lm_head.weight", (VOCAB, h)


def bf16(x):
    u = x.astype("<f4").view("<u4")
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype("<u2")


def values(rng, shape):
    normal = lambda *s: rng.standard_normal(s, dtype=np.float32)
    if len(shape) == 1:
        return bf16(1 + 0.05 * normal(*shape))
    r, c = shape
    return bf16(normal(r, c) * np.float32(0.8 / c ** 0.5) * np.exp(np.float32(0.4) * normal(r, 1)))


def shards(tensors):
    """Tensors in runs that have at most SHARD bytes."""
    run, size = [], 0
    for name, shape in tensors:
        n = 2 * int(np.prod(shape))
        if run and size + n > SHARD:
            yield run
            run, size = [], 0
        run.append((name, shape, n))
        size += n
    yield run


def write(path, run, rng):
    head, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape, n in run:
        head[name] = dict(dtype="BF16", shape=list(shape), data_offsets=[at, at + n])
        at += n
    head = json.dumps(head).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        for _, shape, _ in run:
            f.write(values(rng, shape).tobytes())


def main(kind, out, tokenizer):
    config, layer = dict(dense=(DENSE, dense_layer), mla=(MLA, mla_layer))[kind]
    os.makedirs(out, exist_ok=True)
    rng = np.random.default_rng(0)
    runs = list(shards(shapes(config, layer)))
    where, total = {}, 0
    for i, run in enumerate(runs):
        name = f"model-{i + 1:05d}-of-{len(runs):05d}.safetensors"
        write(os.path.join(out, name), run, rng)
        where.update({tensor: name for tensor, _, _ in run})
        total += sum(n for _, _, n in run)
    with open(os.path.join(out, "model.safetensors.index.json"), "w") as f:
        json.dump(dict(metadata=dict(total_size=total), weight_map=where), f, indent=1)
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if os.path.exists(os.path.join(tokenizer, name)):
            shutil.copy(os.path.join(tokenizer, name), out)
    print(f"{total / 2e9:.3f}e9 parameters, {len(where)} tensors, {len(runs)} shards")


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in ("dense", "mla"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
