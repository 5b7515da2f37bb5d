#!/usr/bin/env bash
# Builds the suite and takes a small mixture-of-experts model through it: convert, importance matrix, every file
# type, perplexity, KL divergence, speed. Needs Rust and a C compiler (for linking). Ends with a table.
#
# usage: ./demo.sh [FILE_TYPE ...]     results go to demo-out/; PROFILE=dev takes the build that the tests use
set -euo pipefail
cd "$(dirname "$0")"

types=("$@")
if [ ${#types[@]} -eq 0 ]; then
    types=(F16 Q8_0 Q6_K Q5_K_M Q5_K_S Q4_K_M Q4_K_S Q4_0 Q3_K_L Q3_K_M Q3_K_S Q2_K)
fi
model=tests/data/qwen3moe
calibration=tests/data/calibration.txt
evaluation=tests/data/evaluation.txt
out=demo-out
threads=$(nproc 2>/dev/null || echo 2)

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }
# The number that a key has in pretty-printed JSON: number KEY < json
rate() { sed -n "$1s/.*\"median_ts\":\([0-9.eE+-]*\),.*/\1/p" "$2"; } # of a test's line
number() { sed -n "s/^ *\"$1\": \([-0-9.eE+]*\),\{0,1\}\$/\1/p" | head -n 1; }

say "Building"
profile=${PROFILE:-release}
cargo build --profile "$profile" --workspace --locked
bin=${CARGO_TARGET_DIR:-target}/${profile/#dev/debug}
rm -rf "$out"
mkdir -p "$out"

say "gguf-convert: safetensors to GGUF"
"$bin/gguf-convert" "$model" -o "$out/bf16.gguf" --outtype bf16
"$bin/gguf-inspect" check "$out/bf16.gguf"

say "gguf-imatrix: what each column and each expert sees"
"$bin/gguf-imatrix" -m "$out/bf16.gguf" -f "$calibration" -o "$out/imatrix.gguf" -c 256 -b 256 -t "$threads" >"$out/imatrix.txt"
tail -n 1 "$out/imatrix.txt"

say "gguf-perplexity: the base"
"$bin/gguf-perplexity" -m "$out/bf16.gguf" -f "$evaluation" -c 256 -b 256 -t "$threads" \
    --kl-divergence-base "$out/base.kld" --json >"$out/bf16.json"

row() { # name file json bench
    local bytes=$(wc -c <"$2")
    local bpw=$("$bin/gguf-inspect" "$2" --json | sed -n '/^  "totals"/,$p' | number bits_per_weight)
    local kld=$(number mean_kld <"$3")
    printf '%-16s %10d %8.3f %10.4f %10.6f %10.0f %10.0f\n' "$1" "$bytes" "$bpw" "$(number ppl <"$3")" \
        "${kld:-0}" "$(rate 1 "$4")" "$(rate 2 "$4")" >>"$out/table.txt"
}
measure() { # name file
    if [ "$1" != BF16 ]; then
        "$bin/gguf-perplexity" -m "$2" -f "$evaluation" -c 256 -b 256 -t "$threads" --quiet \
            --kl-divergence-base "$out/base.kld" --kl-divergence --json >"$out/$1.json"
    else
        cp "$out/bf16.json" "$out/BF16.json"
    fi
    "$bin/gguf-bench" -m "$2" -p 256 -n 64 -r 3 -t "$threads" --quiet --no-bandwidth -o jsonl >"$out/$1.bench.jsonl"
    row "$1" "$2" "$out/$1.json" "$out/$1.bench.jsonl"
    tail -n 1 "$out/table.txt"
}

say "gguf-quantize, gguf-perplexity, gguf-bench: every file type, without and with the importance matrix"
printf '%-16s %10s %8s %10s %10s %10s %10s\n' type bytes bpw perplexity KLD "pp256 t/s" "tg64 t/s" >"$out/table.txt"
measure BF16 "$out/bf16.gguf"
for t in "${types[@]}"; do
    "$bin/gguf-quantize" --quiet "$out/bf16.gguf" "$out/$t.gguf" "$t" "$threads"
    measure "$t" "$out/$t.gguf"
    case $t in F16 | BF16 | F32 | Q8_0) continue ;; esac # these do not look at the importance matrix
    "$bin/gguf-quantize" --quiet --imatrix "$out/imatrix.gguf" "$out/bf16.gguf" "$out/$t+imatrix.gguf" "$t" "$threads"
    measure "$t+imatrix" "$out/$t+imatrix.gguf"
done

say "gguf-run: a text continued, by the likeliest token"
"$bin/gguf-run" -m "$out/bf16.gguf" --no-chat -p "The council met at the" -n 40 --temp 0 -t "$threads"

say "Result: bytes, bits per weight, perplexity and KL divergence from BF16 on $evaluation, tokens per second ($threads threads)"
cat "$out/table.txt"
