#!/usr/bin/env bash
# Tests on this machine's GPU, those that the emulated one runs in `make test` and those that are too large for it: every operation
# against the reference, gradients, ten golden losses, the laws with ranks that share the card, resuming, memory that stays flat,
# and compute-sanitizer on a small net where it is installed. From a checkout by cargo; from what pack.sh made by its own binaries.
set -euo pipefail
cd "$(dirname "$0")/../.."
export TRIREME_TEST_GPU=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
TESTS=(ops gradients graph golden cuda_runs)
BIN=${TRIREME:-${CARGO_TARGET_DIR:-target}/release/trireme}

command -v nvidia-smi >/dev/null && nvidia-smi -L || echo 'no nvidia-smi here'
failed=()
for test in "${TESTS[@]}"; do
    if [ -x "tests/gpu/bin/$test" ]; then
        "tests/gpu/bin/$test" --test-threads=2 || failed+=("$test")
    else
        cargo test --locked --test "$test" -- --test-threads=2 || failed+=("$test")
    fi
done

# 2,000 steps: a leak of one buffer of the smallest layer a step would show.
memory() { nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader,nounits | awk -F', *' -v p="$1" '$1 == p {print $2}'; }
if command -v nvidia-smi >/dev/null; then
    "$BIN" bench step --model resnet20 --batch 32 --device cuda --seconds 30 >/dev/null &
    run=$!
    sleep 10; first=$(memory $run)
    sleep 15; last=$(memory $run)
    wait $run || failed+=(memory)
    if [ -z "$first" ]; then echo 'left out: device memory over time: nvidia-smi shows no processes here'
    elif [ "$first" != "$last" ]; then echo "device memory grew from $first to $last MiB in 15 s of steps"; failed+=(memory)
    else echo "device memory flat at $first MiB"; fi
fi

sanitizer=$(command -v compute-sanitizer || true)
for place in /usr/local/cuda*/bin/compute-sanitizer; do [ -x "$place" ] && sanitizer=${sanitizer:-$place}; done
if [ -n "$sanitizer" ]; then
    for tool in memcheck racecheck initcheck synccheck; do
        "$sanitizer" --tool $tool --error-exitcode 9 "$BIN" bench step --model lenet --batch 4 --device cuda --seconds 0.1 ||
            failed+=("compute-sanitizer $tool")
    done
else
    echo 'left out: compute-sanitizer is not installed'
fi

[ ${#failed[@]} = 0 ] || { printf 'failed: %s\n' "${failed[@]}"; exit 1; }
echo 'all tests on the GPU passed'
