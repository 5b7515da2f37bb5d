#!/usr/bin/env python3
"""The public llama.cpp (PyPI package xllamacpp) as a black box that waits between questions.

peer_server.py MODEL.gguf THREADS N_CTX: for each line "DEPTH PROMPT GEN" on stdin, a line of JSON on stdout with tokens per
second of a prompt of PROMPT tokens behind a context of DEPTH, and of GEN generated ones behind DEPTH + PROMPT.
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


def ask(ids, n, keep):
    question = dict(prompt=ids, n_predict=n, temperature=0, cache_prompt=keep, ignore_eos=True, return_tokens=True)
    answer = server.handle_completions(question)
    return (answer if isinstance(answer, dict) else json.loads(answer))["timings"]


context = {}
for line in sys.stdin:
    depth, n_prompt, n_gen = map(int, line.split())
    if depth and depth not in context:
        context[depth] = [rnd.randrange(260, 500) for _ in range(depth)]
    before = context.get(depth, [])
    prompt = [rnd.randrange(260, 500) for _ in range(n_prompt)]
    if depth:
        # In the cache, all but its last token at most, which would be computed again.
        ask(before + [rnd.randrange(260, 500)], 1, True)
    t = ask(before + prompt, n_gen, bool(depth))
    if t["prompt_n"] > n_prompt + 1:
        t["prompt_per_second"] = None
    answers.write(json.dumps(dict(pp=t["prompt_per_second"], tg=t["predicted_per_second"], prompt_n=t["prompt_n"])) + "\n")
    answers.flush()
