#!/usr/bin/env bash
# Measures the table of docs/performance.md on a GPU, with PyTorch's speeds, eager and compiled. Continues after failures. Writes
# speed.jsonl, speed.log and table.json to OUT. See stages.sh for the variables.
#
#   DATA=DIR  CIFAR-10 as written by `trireme data convert`, raw or as JPEG files, for the time to an accuracy
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=tests/gpu/stages.sh
. tests/gpu/stages.sh

table=(tests/gpu/bench.py --trireme "$TRIREME" --device "$DEVICE" --json "$OUT/table.json" ${DATA:+--data "$DATA"} ${TINY:+--tiny})
if [ -n "$PYTHON" ]; then
    stage table 560 "$PYTHON" "${table[@]}"
elif python3=$(command -v python3); then
    leave_out pytorch 'no python3 with PyTorch here: trireme alone'
    stage table 560 "$python3" "${table[@]}"
else
    leave_out table 'no python3 here'
fi
