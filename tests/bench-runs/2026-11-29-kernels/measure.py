#!/usr/bin/env python3
"""Our gguf-bench and the peer in turn: tokens per second of a prompt of 256 tokens and of 32 generated ones.

measure.py MODELS_DIR [--bench gguf-bench] [--only SHAPE:TYPE:THREADS:DEPTH] [--turns 7] [--commit ID] [--out results.jsonl]

MODELS_DIR holds SHAPE-TYPE.gguf (shapes: big of make_big.py, dense and mla of make_models.py). --only takes patterns (*, ?), and
what is left out at its end is anything. --commit is that of gguf-bench [default: that of this folder]. A case that the output
file has already is passed over. Run it with a Python that has xllamacpp.
"""
import argparse
import contextlib
import csv
import datetime
import fnmatch
import importlib.metadata
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPES = ["big", "dense", "mla"]
TYPES = ["Q4_K_M", "Q8_0", "Q4_0", "Q6_K", "IQ4_XS", "Q2_K", "F16"]
CASES = [(2, 0), (1, 0), (2, 4096), (1, 4096)]
N_PROMPT, N_GEN = 256, 32
TESTS = {"pp": N_PROMPT, "tg": N_GEN}
# Cores that all other processes may use on average while a program is measured.
QUIET = 0.15
# Turns that are begun for each that is wanted, at most.
TRIES = 4
TICK = 1 / os.sysconf("SC_CLK_TCK")


class LeftOut(Exception):
    """Why a case has no result."""


class Noisy(LeftOut):
    """Other processes used too much of the machine."""


def used():
    """Seconds of all processors in processes, and those that the host took away, since the start of the machine."""
    with open("/proc/stat") as f:
        user, nice, system, _idle, _wait, irq, soft, stolen = map(int, f.readline().split()[1:9])
    return (user + nice + system + irq + soft) * TICK, stolen * TICK


class Quiet:
    """Watches, from its making to [check], that only one program works; own() is the seconds that one has used."""

    def __init__(self, own):
        self.own, self.start, self.begin, (self.all, self.stolen) = own, own(), time.monotonic(), used()

    def check(self):
        wall, (all_of, stolen) = time.monotonic() - self.begin, used()
        own = self.own() - self.start
        # What the host takes away is not told apart from what others use: both slow a program down.
        others = (all_of - self.all - own + stolen - self.stolen) / wall
        if others > QUIET:
            raise Noisy(f"others used {others:.2f} cores")
        return others


def children():
    t = os.times()
    return t.children_user + t.children_system


class Ours:
    """gguf-bench, which starts anew each time: a short prompt ahead brings threads up and pages in."""

    def __init__(self, bench, path, threads, depth):
        self.command = [bench, "-m", path, "-p", f"16,{N_PROMPT}", "-n", str(N_GEN), "-t", str(threads), "-d", str(depth),
                        "-r", "1", "-q", "-o", "csv", "--no-bandwidth", "--no-warmup"]

    def turn(self):
        quiet = Quiet(children)
        done = subprocess.run(self.command, stdout=subprocess.PIPE, text=True, timeout=900, check=True)
        others = quiet.check()
        rows = {r["test"].split()[0]: float(r["median_ts"]) for r in csv.DictReader(done.stdout.splitlines())}
        return {test: rows[f"{test}{n}"] for test, n in TESTS.items()}, others


class Peer:
    """The peer, which loads a model once, keeps the context and sleeps while ours runs."""

    def __init__(self, path, threads, depth):
        command = [sys.executable, os.path.join(HERE, "peer_server.py"), path, str(threads), str(depth + 512)]
        self.depth = depth
        self.messages = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.messages, text=True)
        # Threads up, pages in, context made.
        self.ask("pp", 16)

    def ask(self, test, n):
        # What ends the peer shows in the answer.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{test} {self.depth} {n}\n")
            self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            self.messages.seek(0)
            raise LeftOut(f"the peer ended with status {self.process.wait()}: {self.messages.read()[-500:]}")
        return json.loads(answer)["speed"]

    def seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * TICK

    def turn(self):
        quiet = Quiet(self.seconds)
        speeds = {test: self.ask(test, n) for test, n in TESTS.items()}
        return speeds, quiet.check()

    def end(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()


def turns(ours, peer, n):
    """n turns of both that nothing disturbed, the share that others had in each, and how often a turn was dropped."""
    kept, others, dropped = [], [], 0
    while len(kept) < n:
        try:
            (one, a), (other, b) = ours.turn(), peer.turn()
        except Noisy as why:
            dropped += 1
            if len(kept) + dropped >= TRIES * n:
                raise Noisy(f"{dropped} of {len(kept) + dropped} turns were disturbed, {why} in the last") from why
            # What disturbs may be short.
            time.sleep(1)
            continue
        kept.append((one, other))
        others.append(round(max(a, b), 3))
    return kept, others, dropped


def measure(case, path, a, facts):
    shape, kind, threads, depth = case
    peer = Peer(path, threads, depth)
    try:
        kept, others, dropped = turns(Ours(a.bench, path, threads, depth), peer, a.turns)
    finally:
        peer.end()
    found = {who: {test: [round(turn[i][test], 2) for turn in kept if turn[i][test]] for test in TESTS}
             for i, who in enumerate(("ours", "peer"))}
    record = dict(shape=shape, type=kind, threads=threads, depth=depth, **facts, turns=a.turns, dropped=dropped, others=others)
    for who, tests in found.items():
        for test, speeds in tests.items():
            record[f"{who}_{test}"] = round(statistics.median(speeds), 2) if speeds else None
    for test in TESTS:
        o, p = record[f"ours_{test}"], record[f"peer_{test}"]
        record[f"ratio_{test}"] = round(o / p, 3) if o and p else None
    record["all"] = found
    return record


def output(*command):
    return subprocess.run(command, cwd=HERE, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def facts(a):
    with open("/proc/cpuinfo") as f:
        names = [line.split(":")[1].strip() for line in f if line.startswith("model name")]
    return dict(date=datetime.date.today().isoformat(), machine=f"{names[0]}, {len(names)} processors", system=platform.system(),
                bench=output(a.bench, "--version"), commit=a.commit or output("git", "rev-parse", "HEAD"),
                peer=f"xllamacpp {importlib.metadata.version('xllamacpp')}")


def done(path):
    if not os.path.exists(path):
        return set()
    with open(path) as f:
        return {(r["shape"], r["type"], r["threads"], r["depth"]) for r in map(json.loads, f)}


def cases(a):
    """The cases that are asked for and not done, each with its model."""
    known = done(a.out)
    for threads, depth in CASES:
        for shape in SHAPES:
            for kind in TYPES:
                case = (shape, kind, threads, depth)
                path = os.path.join(a.models, f"{shape}-{kind}.gguf")
                wanted = fnmatch.fnmatch(":".join(map(str, case)), a.only + "*")
                if wanted and case not in known and os.path.exists(path):
                    yield case, path


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("models")
    ap.add_argument("--bench", default="gguf-bench")
    ap.add_argument("--only", default="*")
    ap.add_argument("--turns", type=int, default=7)
    ap.add_argument("--commit")
    ap.add_argument("--out", default=os.path.join(HERE, "results.jsonl"))
    a = ap.parse_args()
    bench = shutil.which(a.bench)
    if bench is None:
        sys.exit(f"error: `{a.bench}` is no program: --bench says where gguf-bench is")
    a.bench = os.path.abspath(bench)
    known, left_out = facts(a), []
    for case, path in cases(a):
        name, start = ":".join(map(str, case)), time.monotonic()
        try:
            record = measure(case, path, a, known)
        except LeftOut as why:
            left_out.append(name)
            print(f"{name} left out: {why}", file=sys.stderr, flush=True)
            continue
        with open(a.out, "a") as f:
            f.write(json.dumps(record) + "\n")
        shown = " ".join(f"{key} {record[key]}" for key in record if key[:5] in ("ours_", "peer_", "ratio"))
        print(f"{name} {shown} dropped {record['dropped']} in {time.monotonic() - start:.0f} s", flush=True)
    if left_out:
        sys.exit(f"error: left out: {' '.join(left_out)}: run again, when the machine is quiet")


if __name__ == "__main__":
    main()
