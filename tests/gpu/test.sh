#!/usr/bin/env bash
# Tests on this machine's GPU, those that the emulated one runs in `make test` and those that are too large for it: every operation
# against the reference in f32, bf16 and f16, gradients, ten golden losses, the laws with ranks that share the GPU, resuming, memory
# that stays flat over 11,300 steps, and compute-sanitizer over our own kernels where it is installed. Each part has a time limit. From a
# checkout by cargo; from what pack.sh made by its own binaries.
set -euo pipefail
cd "$(dirname "$0")/../.."
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
BIN=${TRIREME:-${CARGO_TARGET_DIR:-target}/release/trireme}
export TRIREME=$BIN
# shellcheck source=tests/gpu/tools.sh
. tests/gpu/tools.sh

if [ ! -x "$BIN" ]; then
    echo "$BIN: no such program; run \`make build\`, or name it in TRIREME"
    exit 1
fi
work=$(mktemp -d)
export WORK=$work
trap 'rm -rf "$work"' EXIT
# the shortest run says what of a GPU is missing
if ! timeout -k 10 300 "$BIN" bench step --model lenet --batch 4 --device cuda --seconds 0.1 >"$work/first" 2>&1; then
    cat "$work/first"
    echo 'nothing was tested: these tests need a GPU that trireme can use'
    exit 1
fi
if command -v nvidia-smi >/dev/null; then nvidia-smi -L; else echo 'no nvidia-smi here'; fi
failed=()
# counted PASSED FAILED SKIPPED: tests of this script, in the words of libtest's lines
counted() { echo "test result: ok. $1 passed; $2 failed; $3 ignored;" >>"$work/results"; }
# limited SECONDS COMMAND...: a GPU that hangs must not hold the others up
limited() { timeout -k 10 "$@" || { local rc=$?; [ $rc != 124 ] || echo "not done after $1 s: ${*:2}"; return $rc; }; }
cargo_or_pack() { [ -d tests/gpu/bin ] || cargo test --locked --no-run --features real-gpu "$@"; }

# a line of `targets` is a test binary and its arguments, which say which of its tests run
while read -ra words <&3; do
    cargo_or_pack --test "${words[0]}"
    limited 1200 bash -c 'tests "$@"' tests "${words[@]}" 2>&1 | tee -a "$work/results" || failed+=("${words[*]}")
done 3<tests/gpu/targets

# A run of 20,000 steps: the GPU's memory after the 700th step, when all kernels of training and of scoring have been loaded (an epoch
# has 313 steps), is that after the 12,000th, of whoever else uses the GPU too. The steps after it leave nvidia-smi the time to look.
# MiB in use on the first GPU that this process may use.
memory() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits --id="${CUDA_VISIBLE_DEVICES:-0}" | head -n 1; }
# Steps that a run has done.
# shellcheck disable=SC2126 # grep -c says nothing of a file that is not there yet
steps() { grep -h '"event":"step"' "$work/out/metrics.jsonl" 2>/dev/null | wc -l; }
# $1 = steps: waits until the run has done so many; false if it ends before.
until_step() { while [ "$(steps)" -lt "$1" ]; do kill -0 "$run" 2>/dev/null || return 1; sleep 0.05; done; }

flat() {
    python3 - "$work/noise" <<'PYTHON'
import os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
folder.mkdir()
for name, images in [(f"data_batch_{i}.bin", 2000) for i in range(1, 6)] + [("test_batch.bin", 100)]:
    with open(folder / name, "wb") as file:
        for i in range(images):
            file.write(bytes([i % 10]) + os.urandom(3072))
(folder / "batches.meta.txt").write_text("".join(f"class{i}\n" for i in range(10)))
PYTHON
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
    echo 'skipped (1 test): memory over 12,000 steps: no nvidia-smi here'
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

# Tests of a binary that was killed or crashed are in no line; it is among the failed ones below.
sed -nE 's/^test result: .* ([0-9]+) passed; ([0-9]+) failed; ([0-9]+) ignored;.*/\1 \2 \3/p' "$work/results" |
    awk '{ p += $1; f += $2; s += $3 } END { printf "%d tests run: %d passed, %d failed; %d skipped\n", p + f, p, f, s }'

[ ${#failed[@]} = 0 ] || { printf 'failed: %s\n' "${failed[@]}"; exit 1; }
echo 'all tests on the GPU passed'
