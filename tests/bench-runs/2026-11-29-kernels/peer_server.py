#!/usr/bin/env python3
"""The public llama.cpp (PyPI package xllamacpp) as a black box that waits between questions.

peer_server.py MODEL.gguf THREADS DEPTH CONTEXT: for each line "TEST N" on stdin, a line of JSON on stdout with tokens per
second. TEST is pp, a prompt of N tokens behind a context of DEPTH, or tg, N tokens generated behind it. The context is that
of the file CONTEXT, which is made first where it is not there. speed is null where more was computed than was
asked for.
"""
import json
import os
import random
import sys
import urllib.request

import xllamacpp as x

model, threads, depth, saved = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
# What the library prints must not meet the answers.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
p = x.CommonParams()
p.model.path = model
p.n_ctx, p.n_batch, p.n_ubatch, p.n_parallel = depth + 512, 2048, 512, 1
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
p.warmup, p.verbosity = True, -1
folder, name = os.path.split(saved)
p.slot_save_path = os.path.join(folder, "")
p.endpoint_slots = True
server = x.Server(p)
rnd = random.Random(0)


def tokens(n):
    # Whole words of every vocabulary that is measured.
    return [rnd.randrange(260, 500) for _ in range(n)]


def ask(ids, n, keep):
    """Evaluates what of ids is not in the cache already, then generates: the first token is of that, not timed."""
    question = dict(prompt=ids, n_predict=n, temperature=0, cache_prompt=keep, ignore_eos=True, return_tokens=True)
    answer = server.handle_completions(question)
    answer = answer if isinstance(answer, dict) else json.loads(answer)
    if "timings" not in answer:
        sys.exit(f"the library answered {answer}")
    return answer["timings"]


def slot(action):
    """Writes the context to the file, or reads it."""
    question = urllib.request.Request(f"{server.listening_address}/slots/0?action={action}",
                                      json.dumps(dict(filename=name)).encode(), {"Content-Type": "application/json"})
    # Not by way of a proxy that the environment may name.
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(question) as answer:
        json.load(answer)


def fill():
    # Drawn in either case: the tokens of tests are to be other ones.
    first = context + tokens(1)
    if os.path.exists(saved):
        slot("restore")
    else:
        ask(first, 1, True)
        slot("save")


def speed(test, n):
    if test == "pp":
        t = ask(context + tokens(n), 1, depth > 0)
        # The last token of the context may be computed again, the first of the prompt be there by chance.
        return t["prompt_per_second"] if abs(t["prompt_n"] - n) <= 1 else None
    t = ask(context + tokens(1), n + 1, depth > 0)
    return n * 1000 / t["predicted_ms"] if t["predicted_n"] == n + 1 else None


context = tokens(depth)
if depth:
    fill()
for line in sys.stdin:
    test, n = line.split()
    answers.write(json.dumps(dict(speed=speed(test, int(n)))) + "\n")
    answers.flush()
