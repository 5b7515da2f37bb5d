"""Runs a command in a memory cgroup (v1), prints wall time, CPU time, bytes read from the disk, peak memory."""
import os, sys, time, subprocess, resource
limit, cmd = int(sys.argv[1]), sys.argv[2:]
g = "/sys/fs/cgroup/memory/m7_%d" % os.getpid()
if limit:
    os.mkdir(g); open(g + "/memory.limit_in_bytes", "w").write(str(limit))
def pre():
    if limit: open(g + "/cgroup.procs", "w").write(str(os.getpid()))
t = time.time()
p = subprocess.Popen(cmd, preexec_fn=pre, stdout=subprocess.DEVNULL, stderr=open("/tmp/m7/err.txt", "w"))
os.waitid(os.P_PID, p.pid, os.WEXITED | os.WNOWAIT)
wall = time.time() - t
io = dict(l.split(": ") for l in open("/proc/%d/io" % p.pid).read().splitlines())
_, st, ru = os.wait4(p.pid, 0)
out = f"rc {os.waitstatus_to_exitcode(st)} wall {wall:.2f} cpu {ru.ru_utime+ru.ru_stime:.2f} read {int(io['read_bytes'])/1e6:.1f}MB written {int(io['write_bytes'])/1e6:.1f}MB maxrss {ru.ru_maxrss/1024:.1f}MiB"
if limit:
    out += " cgroup peak %.1fMiB" % (int(open(g + "/memory.max_usage_in_bytes").read()) / 2**20)
    os.rmdir(g)
print(out)
