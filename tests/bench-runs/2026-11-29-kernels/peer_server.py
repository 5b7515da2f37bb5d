#!/usr/bin/env python3
"""The public llama.cpp (PyPI package xllamacpp) as a black box that waits between questions.

peer_server.py MODEL.gguf THREADS N_CTX: for each line "TEST DEPTH N" on stdin, a line of JSON on stdout with tokens per second.
TEST is pp, a prompt of N tokens behind a context of DEPTH, or tg, N tokens generated behind it. The context is computed
at the first question and kept for the others of the same depth. speed is null where more was computed than was asked for.
"""
import json
import os
import random
import sys

import xllamacpp as x

model, threads, n_ctx = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
# What the library prints must not meet the answers.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
p = x.CommonParams()
p.model.path = model
p.n_ctx, p.n_batch, p.n_ubatch, p.n_parallel = n_ctx, 2048, 512, 1
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
p.warmup, p.verbosity = True, -1
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


def speed(test, depth, n):
    if depth and depth not in context:
        context[depth] = tokens(depth)
        ask(context[depth] + tokens(1), 1, True)
    before = context.get(depth, [])
    if test == "pp":
        t = ask(before + tokens(n), 1, depth > 0)
        # The last token of the context may be computed again.
        return t["prompt_per_second"] if n <= t["prompt_n"] <= n + 1 else None
    t = ask(before + tokens(1), n + 1, depth > 0)
    return n * 1000 / t["predicted_ms"] if t["predicted_n"] == n + 1 else None


context = {}
for line in sys.stdin:
    test, depth, n = line.split()
    answers.write(json.dumps(dict(speed=speed(test, int(depth), int(n)))) + "\n")
    answers.flush()
