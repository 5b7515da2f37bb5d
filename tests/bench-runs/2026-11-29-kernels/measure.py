#!/usr/bin/env python3
"""Our gguf-bench and the peer in turn: tokens per second of a prompt of 256 tokens and of 32 generated ones.

measure.py MODELS_DIR [--bench gguf-bench] [--only SHAPE:TYPE:THREADS:DEPTH] [--turns 7] [--out results.jsonl]

MODELS_DIR holds SHAPE-TYPE.gguf (shapes: big of make_big.py, dense and mla of make_models.py). The peer loads a model once and
sleeps while ours runs. A case that the output file has already is passed over.
"""
import argparse
import csv
import datetime
import fnmatch
import json
import os
import platform
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPES = ["big", "dense", "mla"]
TYPES = ["Q4_K_M", "Q8_0", "Q4_0", "Q6_K", "IQ4_XS", "Q2_K", "F16"]
CASES = [(2, 0), (1, 0), (2, 4096), (1, 4096)]

a = argparse.ArgumentParser()
a.add_argument("models")
a.add_argument("--bench", default="gguf-bench")
a.add_argument("--only", default="*")
a.add_argument("--turns", type=int, default=7)
a.add_argument("--out", default=os.path.join(HERE, "results.jsonl"))
a = a.parse_args()


def cpu():
    with open("/proc/cpuinfo") as f:
        names = [line.split(":")[1].strip() for line in f if line.startswith("model name")]
    return f"{names[0]}, {len(names)} processors"


def done():
    if not os.path.exists(a.out):
        return set()
    with open(a.out) as f:
        return {(r["shape"], r["type"], r["threads"], r["depth"]) for r in map(json.loads, f)}


def main():
    known = done()
    for threads, depth in CASES:
        for shape in SHAPES:
            for kind in TYPES:
                case = (shape, kind, threads, depth)
                path = os.path.join(a.models, f"{shape}-{kind}.gguf")
                name = ":".join(map(str, case))
                if case in known or not fnmatch.fnmatch(name, a.only + "*") or not os.path.exists(path):
                    continue
                measure(case, path)


def measure(case, path):
    shape, kind, threads, depth = case
    peer = subprocess.Popen(
        [sys.executable, os.path.join(HERE, "peer_server.py"), path, str(threads), str(depth + 512)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )

    def ask():
        peer.stdin.write(f"{depth} 256 32\n")
        peer.stdin.flush()
        return json.loads(peer.stdout.readline())

    ask()
    found = {"ours": {"pp": [], "tg": []}, "peer": {"pp": [], "tg": []}}
    load = os.getloadavg()[0]
    for _ in range(a.turns):
        for who, one in (("ours", speeds(path, threads, depth)), ("peer", ask())):
            for test in ("pp", "tg"):
                if one[test] is not None:
                    found[who][test].append(round(one[test], 2))
    peer.stdin.close()
    peer.wait()
    record = dict(shape=shape, type=kind, threads=threads, depth=depth, date=datetime.date.today().isoformat(),
                  machine=cpu(), system=platform.system(), load=load, turns=a.turns)
    for who, tests in found.items():
        for test, all_of in tests.items():
            record[f"{who}_{test}"] = statistics.median(all_of) if all_of else None
    record["all"] = found
    for test in ("pp", "tg"):
        o, p = record[f"ours_{test}"], record[f"peer_{test}"]
        record[f"ratio_{test}"] = round(o / p, 3) if o and p else None
    with open(a.out, "a") as f:
        f.write(json.dumps(record) + "\n")
    print(shape, kind, threads, depth, {k: record[k] for k in record if k[:4] in ("ours", "peer", "rati")}, flush=True)


def speeds(path, threads, depth):
    """Medians of three runs in a process of their own."""
    command = [a.bench, "-m", path, "-p", "256", "-n", "32", "-t", str(threads), "-d", str(depth), "-r", "3", "-q", "-o", "csv",
               "--no-bandwidth", "--no-warmup"]
    lines = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True).stdout.splitlines()
    return {r["test"][:2]: float(r["median_ts"]) for r in csv.DictReader(lines)}


main()
