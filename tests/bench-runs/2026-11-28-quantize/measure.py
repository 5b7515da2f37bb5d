#!/usr/bin/env python3
"""Speed of the encoders beside the reference's, and of the whole program.

Usage: measure.py encoders SHARED [TYPE ...]   million weights a second on one thread: the reference (tools/peer_quantize.py) and ours
                                               (cargo bench, bench `rate`) in turn, medians of 3 turns
       measure.py program QUANTIZE IN TYPE     seconds and peak memory of the whole program with 1 and 2 threads, medians of 5
"""
import os, resource, statistics, subprocess, sys, time

TYPES = "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS IQ3_S IQ3_XXS IQ2_S IQ2_XS IQ2_XXS IQ1_M IQ1_S TQ1_0 TQ2_0 MXFP4".split()
TURNS = 3

def lines(command):
    text = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    return {w[0]: w[1:3] for w in (line.split() for line in text.splitlines()) if len(w) == 3}

def number(text):
    try: return float(text)
    except ValueError: return None

def encoders(shared, types):
    subprocess.run(["cargo", "bench", "-q", "-p", "gguf-blocks", "--bench", "rate", "--no-run"], check=True)
    runs = []
    for _ in range(TURNS):
        peer = lines(["taskset", "-c", "0", sys.executable, f"{shared}/tools/peer_quantize.py", "--rows", "256", *types])
        ours = lines(["taskset", "-c", "0", "cargo", "bench", "-q", "-p", "gguf-blocks", "--bench", "rate", "--", *types])
        runs.append((peer, ours))
    print(f"{'type':8} {'peer':>8} {'ours':>8} {'ratio':>6}   {'peer +i':>8} {'ours +i':>8} {'ratio':>6}")
    for t in types:
        cells = []
        for i in (0, 1):
            p, o = ([number(run[side].get(t, ("-", "-"))[i]) for run in runs] for side in (0, 1))
            if None in p or None in o: cells.append(f"{'-':>8} {'-':>8} {'-':>6}"); continue
            p, o = statistics.median(p), statistics.median(o)
            cells.append(f"{p:8.1f} {o:8.1f} {o / p:6.1f}")
        print(f"{t:8} {cells[0]}   {cells[1]}", flush=True)

def program(quantize, source, kind):
    out = os.path.join(os.path.dirname(os.path.abspath(source)), "measured.gguf")
    for threads in (1, 2):
        times, memory = [], []
        for _ in range(TURNS):
            start = time.perf_counter()
            child = subprocess.Popen([quantize, "--quiet", "--force", source, out, kind, str(threads)])
            _, status, usage = os.wait4(child.pid, 0)
            assert status == 0
            times.append(time.perf_counter() - start); memory.append(usage.ru_maxrss / 1024)
        print(f"{kind} {threads} thread(s): {statistics.median(times):.2f} s (best {min(times):.2f}), {statistics.median(memory):.1f} MiB", flush=True)
    os.remove(out)

if sys.argv[1] == "encoders": encoders(sys.argv[2], sys.argv[3:] or TYPES)
else: program(*sys.argv[2:5])
