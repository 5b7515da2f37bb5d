#!/usr/bin/env python3
"""Speed and memory of conversions.

Usage: measure.py plain CONVERT CHECKPOINT              seconds and peak memory of a conversion to BF16, and of dd writing as many bytes with
                                                        fsync, in turn, medians of 5
       measure.py onepass CONVERT QUANTIZE CHECKPOINT   the checkpoint to Q4_K_M in one pass, and gguf-quantize from the BF16 file, in turn
       measure.py stack CONVERT FOLDER                  a fused expert tensor of 2 GiB to BF16 and Q4_K_M with an address space of 300 MiB
Outputs go into the current folder.
"""
import os, statistics, subprocess, sys, time

TURNS = 5

def run(*command):
    """Seconds and MiB of one run."""
    start = time.perf_counter()
    child = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    assert status == 0, command
    return time.perf_counter() - start, usage.ru_maxrss / 1024

def show(name, runs):
    times, memory = zip(*runs)
    print(f"{name:28} {statistics.median(times):6.2f} s (best {min(times):.2f}) {max(memory):7.1f} MiB", flush=True)

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

def stack(convert, folder):
    for kind in "bf16", "f16", "Q4_K_M":
        limited = f'ulimit -v {300 << 10}; exec "$0" "$1" -o stack.gguf --outtype {kind} --max-memory 128M --force -q -t 2'
        show(f"2 GiB stack to {kind}", [run("sh", "-c", limited, convert, folder)])
    os.remove("stack.gguf")

{"plain": plain, "onepass": onepass, "stack": stack}[sys.argv[1]](*sys.argv[2:])
