#!/usr/bin/env bash
# Runs the tests on this machine's GPU, including those that are too large for the emulated GPU of `make test`: every operation against the
# reference in f32, bf16 and f16, gradients, ten golden losses, the laws with ranks that share the GPU, resuming, and constant memory over
# 11,300 steps. It also runs compute-sanitizer on trireme's own kernels, if it is installed. Each part has a time limit. In a checkout it
# uses cargo, in an archive of pack.sh the packed binaries.
set -euo pipefail
cd "$(dirname "$0")/../.."
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
BIN=${TRIREME:-${CARGO_TARGET_DIR:-target}/release/trireme}
export TRIREME=$BIN
# shellcheck source=tests/gpu/tools.sh
. tests/gpu/tools.sh

if [ ! -x "$BIN" ]; then
    echo "$BIN: no such program; run \`make build\`, or set TRIREME to its path"
    exit 1
fi
work=$(mktemp -d)
export WORK=$work
trap 'rm -rf "$work"' EXIT
# the shortest run reports what is missing for a GPU
if ! timeout -k 10 300 "$BIN" bench step --model lenet --batch 4 --device cuda --seconds 0.1 >"$work/first" 2>&1; then
    cat "$work/first"
    echo 'nothing was tested: trireme cannot use a GPU here'
    exit 1
fi
if command -v nvidia-smi >/dev/null; then nvidia-smi -L; else echo 'no nvidia-smi here'; fi
failed=()
# counted PASSED FAILED SKIPPED: adds tests of this script to the results, in the format of libtest
counted() { echo "test result: ok. $1 passed; $2 failed; $3 ignored;" >>"$work/results"; }
# limited SECONDS COMMAND...: runs the command with a time limit, so that a GPU that hangs does not block the other tests
limited() { timeout -k 10 "$@" || { local rc=$?; [ $rc != 124 ] || echo "not finished after $1 s: ${*:2}"; return $rc; }; }
cargo_or_pack() { [ -d tests/gpu/bin ] || cargo test --locked --no-run --features real-gpu "$@"; }

# a line of `targets` is a test binary and its arguments, which select its tests
while read -ra words <&3; do
    cargo_or_pack --test "${words[0]}"
    limited 1200 bash -c 'tests "$@"' tests "${words[@]}" 2>&1 | tee -a "$work/results" || failed+=("${words[*]}")
done 3<tests/gpu/targets

# In a run of 20,000 steps, the GPU memory after step 12,000 must equal the memory after step 700, when all kernels for training and scoring
# are loaded (an epoch has 313 steps). This includes the memory of other programs. The later steps give nvidia-smi the time to measure.
# Prints the MiB in use on the first GPU that this process can use.
memory() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits --id="${CUDA_VISIBLE_DEVICES:-0}" | head -n 1; }
# Prints the number of steps that a run has completed.
# shellcheck disable=SC2126 # grep -c prints nothing if the file does not exist yet
steps() { grep -h '"event":"step"' "$work/out/metrics.jsonl" 2>/dev/null | wc -l; }
# $1 = steps: waits until the run has completed that number of steps. Fails if the run ends earlier.
until_step() { while [ "$(steps)" -lt "$1" ]; do kill -0 "$run" 2>/dev/null || return 1; sleep 0.05; done; }

flat() {
    python3 tests/gpu/noise.py cifar10 "$work/noise" 10000 100
    "$BIN" data convert cifar10 "$work/noise" "$work/data" >/dev/null
    limited 600 "$BIN" train recipes/cifar10-resnet20.toml --data "$work/data" --out "$work/out" --device cuda --max-steps 20000 \
        --set batch=32 --set log.every=1 --set 'checkpoint.every="1000 epochs"' >"$work/log" 2>&1 &
    run=$!
    if ! until_step 700; then cat "$work/log"; return 1; fi
    first=$(memory)
    if ! until_step 12000; then cat "$work/log"; return 1; fi
    last=$(memory)
    wait "$run" || { cat "$work/log"; return 1; }
    echo "device memory after 700 steps $first MiB, after 12,000 steps $last MiB"
    [ "$first" = "$last" ] && [ "$first" -gt 0 ]
}
if command -v nvidia-smi >/dev/null; then
    if flat; then counted 1 0 0; else counted 0 1 0 && failed+=('memory flat from step 700 to step 12,000'); fi
else
    echo 'skipped (1 test): memory over 12,000 steps, because nvidia-smi is missing'
    counted 0 0 1
fi

if [ -n "$SANITIZER" ]; then
    for tool in memcheck racecheck initcheck synccheck; do
        if limited 600 bash -c "sanitizer $tool"; then counted 1 0 0; else counted 0 1 0 && failed+=("compute-sanitizer $tool"); fi
    done
else
    echo 'skipped (4 tests): compute-sanitizer is not installed'
    counted 0 0 4
fi

# A binary that crashed has no result line. It is listed as failed below.
sed -nE 's/^test result: .* ([0-9]+) passed; ([0-9]+) failed; ([0-9]+) ignored;.*/\1 \2 \3/p' "$work/results" |
    awk '{ p += $1; f += $2; s += $3 } END { printf "%d tests run: %d passed, %d failed; %d skipped\n", p + f, p, f, s }'

[ ${#failed[@]} = 0 ] || { printf 'failed: %s\n' "${failed[@]}"; exit 1; }
echo 'all tests on the GPU passed'
