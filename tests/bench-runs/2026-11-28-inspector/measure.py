#!/usr/bin/env python3
"""Median time and largest memory of commands, run in turn: measure.py N < COMMANDS, one command a line."""

import os
import statistics
import subprocess
import sys
import time

n = int(sys.argv[1])
commands = [line.split() for line in sys.stdin if line.strip()]
times = [[] for _ in commands]
peak = [0] * len(commands)
for _ in range(n):
    for i, command in enumerate(commands):
        start = time.perf_counter()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, _, usage = os.wait4(child.pid, 0)
        times[i].append(time.perf_counter() - start)
        peak[i] = max(peak[i], usage.ru_maxrss)
for command, seconds, kib in zip(commands, times, peak):
    shown = " ".join(os.path.basename(part) for part in command)
    print(f"{statistics.median(seconds) * 1000:8.1f} ms  {kib / 1024:6.1f} MiB  {shown}")
