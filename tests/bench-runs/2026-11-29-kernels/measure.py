#!/usr/bin/env python3
"""Our gguf-bench and the peer in turn: tokens per second of a prompt of 256 tokens and of 32 generated ones.

measure.py MODELS_DIR [--bench gguf-bench] [--only SHAPE:TYPE:THREADS:DEPTH] [--turns 7] [--commit ID] [--out results.jsonl]

MODELS_DIR holds SHAPE-TYPE.gguf (shapes: big of make_big.py, dense and mla of make_models.py). --only takes patterns (*, ?), and
what is left out at its end is anything. --commit is that of gguf-bench [default: that of this folder]. A case that the output
file has already is passed over. Run it with a Python that has xllamacpp.
"""
import argparse
import contextlib
import datetime
import fnmatch
import importlib.metadata
import itertools
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPES = ["big", "dense", "mla"]
TYPES = ["Q4_K_M", "Q8_0", "Q4_0", "Q6_K", "IQ4_XS", "Q2_K", "F16"]
THREADS = [2, 1]
DEPTHS = [0, 4096]
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


def seconds_of(process):
    """Seconds of all processors that a process has used."""
    with open(f"/proc/{process.pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK


class Program:
    """A program that measures once for each line that it gets, and waits in between."""

    def __init__(self, command, **pipes):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, **pipes)

    def say(self, line):
        # What ends a program shows in its answer.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()

    def turn(self, test):
        """Tokens per second, and what others used meanwhile."""
        quiet = Quiet(lambda: seconds_of(self.process))
        speed = self.ask(test)
        return speed, quiet.check()

    def end(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()


class Ours(Program):
    """gguf-bench: the tests in their order, for each number of threads, with one context for all."""

    def __init__(self, bench, path, threads, depth):
        super().__init__([bench, "-m", path, "-p", str(N_PROMPT), "-n", str(N_GEN), "-t", ",".join(map(str, threads)), "-d",
                          str(depth), "-r", "1000", "-o", "csv", "--in-turn", "--no-bandwidth", "--no-warmup"],
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def ask(self, test):
        self.say("")
        said = ""
        for line in self.process.stderr:
            said = line
            if found := re.search(rf"repetition \d+ of {test}.*: ([0-9.]+) tokens/s", line):
                return float(found.group(1))
        raise LeftOut(f"gguf-bench ended with status {self.process.wait()}: {said.strip()}")

    def next(self):
        self.say("next")


class Peer(Program):
    """The peer, for one number of threads. The context is the one of CONTEXT, made there if it is not there yet."""

    def __init__(self, path, threads, depth, context):
        # What it says is of interest only where it ends.
        self.messages = tempfile.TemporaryFile("w+", errors="replace")
        super().__init__([sys.executable, os.path.join(HERE, "peer_server.py"), path, str(threads), str(depth), context],
                         stdout=subprocess.PIPE, stderr=self.messages)

    def ask(self, test):
        self.say(f"{test} {TESTS[test]}")
        answer = self.process.stdout.readline()
        if not answer:
            self.messages.seek(0)
            raise LeftOut(f"the peer ended with status {self.process.wait()}: {self.messages.read()[-500:]}")
        speed = json.loads(answer)["speed"]
        if speed is None:
            raise LeftOut("the peer computed more than it was asked for")
        return speed


def turns(ours, peer, test, n):
    """n turns of both that nothing disturbed, the share that others had in each, and how often a turn was dropped."""
    kept, others, dropped = [], [], 0
    # Threads up, pages in, context made.
    ours.ask(test)
    peer.ask(test)
    while len(kept) < n:
        try:
            (one, a), (other, b) = ours.turn(test), peer.turn(test)
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


def measure(ours, peer, n):
    """What a line of results says of one case."""
    record, all_turns, noisy = dict(turns=n, dropped=0, others=[]), dict(ours={}, peer={}), None
    for test in TESTS:
        try:
            if noisy:
                # A test cannot be passed over.
                ours.ask(test)
            else:
                kept, others, dropped = turns(ours, peer, test, n)
        except Noisy as why:
            noisy = why
        ours.next()
        if noisy:
            continue
        record["dropped"] += dropped
        record["others"] += others
        for i, who in enumerate(("ours", "peer")):
            speeds = [round(turn[i], 2) for turn in kept]
            all_turns[who][test] = speeds
            record[f"{who}_{test}"] = round(statistics.median(speeds), 2)
    if noisy:
        raise noisy
    for test in TESTS:
        record[f"ratio_{test}"] = round(record[f"ours_{test}"] / record[f"peer_{test}"], 3)
    record["all"] = all_turns
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


def files(a):
    """Shape, type and depth of what is asked for and not done, the numbers of threads, and the model."""
    known = done(a.out)
    for depth, shape, kind in itertools.product(DEPTHS, SHAPES, TYPES):
        path = os.path.join(a.models, f"{shape}-{kind}.gguf")
        cases = [(shape, kind, threads, depth) for threads in THREADS]
        wanted = [c for c in cases if fnmatch.fnmatch(":".join(map(str, c)), a.only + "*") and c not in known]
        if wanted and os.path.exists(path):
            yield shape, kind, depth, [c[2] for c in wanted], path


def file(a, known, contexts, shape, kind, depth, threads, path):
    """Measures one model; gives the names of the cases that were left out."""
    left_out, rest = [], list(threads)
    ours = Ours(a.bench, path, threads, depth)
    while rest:
        n = rest.pop(0)
        name, start = f"{shape}:{kind}:{n}:{depth}", time.monotonic()
        peer = Peer(path, n, depth, os.path.join(contexts, f"{shape}-{depth}"))
        try:
            found = measure(ours, peer, a.turns)
        except LeftOut as why:
            left_out.append(name)
            print(f"{name} left out: {why}", file=sys.stderr, flush=True)
            if isinstance(why, Noisy):
                continue
            # Where gguf-bench stands is not known.
            left_out += [f"{shape}:{kind}:{n}:{depth}" for n in rest]
            break
        finally:
            peer.end()
        record = dict(shape=shape, type=kind, threads=n, depth=depth, **known, **found)
        with open(a.out, "a") as f:
            f.write(json.dumps(record) + "\n")
        shown = " ".join(f"{key} {record[key]}" for key in record if key[:5] in ("ours_", "peer_", "ratio"))
        print(f"{name} {shown} dropped {record['dropped']} in {time.monotonic() - start:.0f} s", flush=True)
    ours.end()
    return left_out


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
    with tempfile.TemporaryDirectory() as contexts:
        for case in files(a):
            left_out += file(a, known, contexts, *case)
    if left_out:
        sys.exit(f"error: left out: {' '.join(left_out)}: run again, when the machine is quiet")


if __name__ == "__main__":
    main()
