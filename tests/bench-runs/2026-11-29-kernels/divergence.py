#!/usr/bin/env python3
"""Mean KL divergence of the integer path from `--compute f32` of the same file.

Usage: divergence.py [--programs DIR] [--chunks 12] [--json FILE] TEXT MODEL.gguf ...

The predictions of `--compute f32` are the base file (16 bits a logit, which is finer than what is measured); n_ctx is 512. With --json, a line for each model is appended to FILE.
"""
import argparse, json, os, subprocess, sys, tempfile, time


def perplexity(program, *options):
    done = subprocess.run([program, "-q", "--json", "-c", "512", *options], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return json.loads(done.stdout)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("text")
    ap.add_argument("models", nargs="+")
    ap.add_argument("--programs", default="target/release", help="folder of gguf-perplexity")
    ap.add_argument("--chunks", type=int, default=12)
    ap.add_argument("--json")
    a = ap.parse_args()
    program = os.path.join(a.programs, "gguf-perplexity")
    for model in a.models:
        with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(model))) as folder:
            base = os.path.join(folder, "f32.kld")
            perplexity(program, "-m", model, "-f", a.text, "--chunks", str(a.chunks), "--compute", "f32", "--kl-divergence-base", base)
            got = perplexity(program, "-m", model, "--kl-divergence-base", base, "--kl-divergence")
        one = dict(kind="divergence", date=time.strftime("%Y-%m-%d"), model=os.path.basename(model), chunks=got["chunks"], cpu=got["cpu"],
            ppl=got["ppl"], ppl_f32=got["ppl_base"]["value"], kld=got["kld"]["mean"], kld_stderr=got["kld"]["mean_stderr"],
            kld_p99=got["kld"]["p99"], kld_maximum=got["kld"]["maximum"], same_top_percent=got["same_top_percent"]["value"])
        if a.json:
            with open(a.json, "a") as f:
                f.write(json.dumps(one) + "\n")
        print(json.dumps(one), flush=True)


if __name__ == "__main__":
    main()
