#!/usr/bin/env bash
# The first script to run on a machine with a GPU: checks the GPU and trireme's kernels, compares the time of a step with PyTorch's, and
# profiles a step. Continues after failures. Writes check.jsonl and check.log to OUT. See stages.sh for the variables.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=tests/gpu/stages.sh
. tests/gpu/stages.sh

machine() {
    nvidia-smi || echo 'no nvidia-smi here'
    nvidia-smi -q -d CLOCK,POWER,PERFORMANCE,ECC || true
    lscpu | head -n 20
    free -g
    nvcc --version || echo 'no nvcc here'
    echo "sanitizer: $SANITIZER; python3 with PyTorch: $PYTHON"
    [ -z "$PYTHON" ] || "$PYTHON" -c 'import torch; print(torch.__version__, torch.version.cuda, torch.backends.cudnn.version())'
}
export -f machine

stage machine 20 bash -c machine
stage doctor 40 "$TRIREME" doctor
stage operations 60 bash -c 'tests numerics ops::'
stage gradients 60 bash -c 'tests numerics gradients::'
stage graph 40 bash -c 'tests numerics graph::'
stage replay 60 bash -c 'tests cuda handover:: recording:: backend:: steps::'
if [ -n "$SANITIZER" ]; then stage memcheck 80 bash -c 'sanitizer memcheck'; else leave_out memcheck 'no compute-sanitizer here'; fi
for row in resnet50:256 resnet20:128 lenet:64; do
    network=${row%:*} batch=${row#*:}
    ours "$network" 45 --model "$network" --batch "$batch" --precision bf16 --seconds 4
    peer "$network-pytorch" 40 "$network" eager --batch "$batch" --seconds 4
done
ours profile-resnet50 30 --model resnet50 --batch 256 --precision bf16 --seconds 2 --profile
ours profile-resnet20 20 --model resnet20 --batch 128 --precision bf16 --seconds 1 --profile
if nsys=$(program nsys); then
    stage timeline 40 "$nsys" profile --trace cuda --stats true --force-overwrite true --output "$WORK/timeline" \
        "$TRIREME" bench step --device "$DEVICE" --model resnet20 --batch 128 --precision bf16 --seconds 0.5
else
    leave_out timeline 'no nsys here'
fi
