#!/usr/bin/env python3
"""Speed and memory of conversions.

Usage: measure.py plain CONVERT CHECKPOINT              seconds and peak memory of a conversion to BF16, and of dd writing as many bytes with
                                                        fsync, in turn, medians of 5
       measure.py onepass CONVERT QUANTIZE CHECKPOINT   the checkpoint to Q4_K_M in one pass, and gguf-quantize from the BF16 file, in turn
       measure.py stack CONVERT MODEL                   stacks of 2 GiB, with the settings and tokenizer of a small Qwen3-MoE checkpoint, to
                                                        BF16 and Q4_K_M with an address space of 300 MiB
Outputs go into the current folder.
"""
import json, math, os, shutil, statistics, struct, subprocess, sys, time

TURNS = 5

def run(*command):
    """Seconds, seconds of processors and MiB of one run."""
    start = time.perf_counter()
    child = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    assert status == 0, command
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024

def show(name, runs):
    times, processors, memory = zip(*runs)
    print(f"{name:28} {statistics.median(times):6.2f} s (best {min(times):.2f}), processors {statistics.median(processors):5.2f} s, {max(memory):6.1f} MiB", flush=True)

def turns(commands):
    runs = {name: [] for name in commands}
    for _ in range(TURNS):
        for name, command in commands.items(): runs[name].append(run(*command))
    for name in commands: show(name, runs[name])

def plain(convert, model):
    convert_to = lambda *more: (convert, model, "-o", "measured.gguf", "--outtype", "bf16", "--force", "-q", *more)
    run(*convert_to())
    mib = os.path.getsize("measured.gguf") >> 20
    turns({
        "BF16, 2 threads": convert_to("-t", "2"),
        "BF16, 1 thread": convert_to("-t", "1"),
        "dd conv=fsync": ("dd", "if=measured.gguf", "of=measured.dd", "bs=1M", "conv=fsync", f"count={mib}"),
    })
    os.remove("measured.gguf"); os.remove("measured.dd")

def onepass(convert, quantize, model):
    run(convert, model, "-o", "measured-BF16.gguf", "--outtype", "bf16", "--force", "-q")
    turns({
        "one pass, 2 threads": (convert, model, "-o", "one.gguf", "--outtype", "Q4_K_M", "--force", "-q", "-t", "2"),
        "quantize alone, 2 threads": (quantize, "--force", "-q", "measured-BF16.gguf", "two.gguf", "Q4_K_M", "2"),
        "one pass, 1 thread": (convert, model, "-o", "one.gguf", "--outtype", "Q4_K_M", "--force", "-q", "-t", "1"),
        "quantize alone, 1 thread": (quantize, "--force", "-q", "measured-BF16.gguf", "two.gguf", "Q4_K_M", "1"),
    })
    for name in "measured-BF16.gguf", "one.gguf", "two.gguf": os.remove(name)

def stack(convert, model):
    """One layer of 64 experts of 2048 x 8192, fused: `down` is 2 GiB and `gate_up` 4 GiB. The zeros take no space on disk."""
    os.makedirs("stack", exist_ok=True)
    config = json.load(open(os.path.join(model, "config.json")))
    config.update(hidden_size=2048, num_hidden_layers=1, num_attention_heads=16, num_key_value_heads=2, head_dim=128, moe_intermediate_size=8192, num_experts=64, num_local_experts=64, tie_word_embeddings=True)
    json.dump(config, open("stack/config.json", "w"))
    for name in "tokenizer.json", "tokenizer_config.json": shutil.copy(os.path.join(model, name), "stack")
    layer = "model.layers.0."
    tensors = {"model.embed_tokens.weight": [config["vocab_size"], 2048], "model.norm.weight": [2048], layer + "input_layernorm.weight": [2048],
        layer + "post_attention_layernorm.weight": [2048], layer + "self_attn.q_norm.weight": [128], layer + "self_attn.k_norm.weight": [128],
        layer + "self_attn.q_proj.weight": [2048, 2048], layer + "self_attn.k_proj.weight": [256, 2048], layer + "self_attn.v_proj.weight": [256, 2048],
        layer + "self_attn.o_proj.weight": [2048, 2048], layer + "mlp.gate.weight": [64, 2048], layer + "mlp.experts.down_proj": [64, 2048, 8192],
        layer + "mlp.experts.gate_up_proj": [64, 16384, 2048]}
    header, end = {}, 0
    for name, shape in tensors.items():
        n = 2 * math.prod(shape); header[name] = dict(dtype="BF16", shape=shape, data_offsets=[end, end + n]); end += n
    header = json.dumps(header).encode()
    with open("stack/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header); f.truncate(8 + len(header) + end)
    for kind in "Q4_K_M", "bf16":
        limited = f'ulimit -v {300 << 10}; exec "$0" "$1" -o stack.gguf --outtype {kind} --max-memory 128M --force -q -t 2'
        show(f"2 GiB stacks to {kind}", [run("sh", "-c", limited, convert, "stack")])
    os.remove("stack.gguf"); shutil.rmtree("stack")

{"plain": plain, "onepass": onepass, "stack": stack}[sys.argv[1]](*sys.argv[2:])
