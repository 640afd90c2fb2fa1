#!/usr/bin/env bash
# Measures the batch norm kernels on a GPU, compares variants of them, and runs the tests that check.sh omits and more sanitizers.
# Continues after failures. Writes kernels.jsonl, kernels.log and the report of ncu to OUT. See stages.sh for the variables.
#
#   VARIANTS=DIR  folders with kernels to compare with the current kernels, see TRIREME_KERNELS in docs/gpu-internals.md
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=tests/gpu/stages.sh
. tests/gpu/stages.sh

# Measures the batch norm kernels with ncu. Passes are not replayed, so that ncu sees single kernels. `skip` kernels at the start are not
# measured.
counters() {
    local skip=$1 count=$2
    TRIREME_NO_GRAPH=1 "$NCU" --clock-control none --kernel-name regex:norm --launch-skip "$skip" --launch-count "$count" \
        --section SpeedOfLight --section MemoryWorkloadAnalysis --section LaunchStats --section Occupancy --section WarpStateStats \
        --export "$OUT/norm" --force-overwrite \
        "$TRIREME" bench step --device "$DEVICE" --model resnet50 --batch 256 --precision bf16 --seconds 0.1
    "$NCU" --import "$OUT/norm.ncu-rep" --csv --page details >"$OUT/norm.csv"
}
export -f counters

if NCU=$(program ncu); then
    export NCU
    stage counters 120 bash -c 'counters 300 80'
else
    leave_out counters 'no ncu here'
fi

# Variants of norm.cu with other __launch_bounds__: for more blocks per multiprocessor, the compiler must use fewer registers per thread.
sources=kernels
[ -d "$sources" ] || sources=crates/backend/src/cuda/kernels
for blocks in 1 2 3 4; do
    mkdir -p "$WORK/variants/norm-$blocks-blocks"
    sed -E "s/__launch_bounds__\(256(, *[0-9]+)?\)/__launch_bounds__(256, $blocks)/" "$sources/norm.cu" \
        >"$WORK/variants/norm-$blocks-blocks/norm.cu"
done
step=(--model resnet50 --batch 256 --precision bf16 --seconds 2)
ours built-in 40 "${step[@]}"
for folder in "$WORK"/variants/* ${VARIANTS:+"$VARIANTS"/*}; do
    TRIREME_KERNELS=$folder ours "variant-$(basename "$folder")" 30 "${step[@]}"
done
TRIREME_NO_GRAPH=1 ours no-graph 30 "${step[@]}"
TRIREME_NO_GRAPH=1 ours no-graph-resnet20 20 --model resnet20 --batch 128 --precision bf16 --seconds 2

stage numerics 80 bash -c 'tests numerics golden:: optim:: sync_bn::'
stage cuda 120 bash -c 'tests cuda algorithms:: codecs:: f16:: failures:: profile:: runs:: transports::'
for tool in racecheck synccheck initcheck; do
    if [ -n "$SANITIZER" ]; then stage $tool 60 bash -c "sanitizer $tool"; else leave_out $tool 'no compute-sanitizer here'; fi
done
