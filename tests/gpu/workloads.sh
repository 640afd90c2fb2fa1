#!/usr/bin/env bash
# Workloads without a record in docs/gpu.md: all networks in the catalogue compared with PyTorch, NCCL on a single rank, and photos from
# shards with 4, 8 and 14 loader threads. Continues after failures. Writes workloads.jsonl and workloads.log to OUT, and prints a table at
# the end. See stages.sh for the variables.
#
#   DATA=DIR   CIFAR-10 as written by `trireme data convert`, for whole trainings of ResNet-20 and airbench94 [left out]
#   SEEDS=LIST seeds of these trainings ["1 2"]
#   DEVICE=cpu PHOTOS=64 checks the photos on a machine without a GPU.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=tests/gpu/stages.sh
. tests/gpu/stages.sh

# Writes noisy PNG files in two classes and converts them to JPEG shards.
photos() {
    "$(command -v python3)" tests/gpu/noise.py photos "$WORK/pictures" "${PHOTOS:-2048}" 400 12 || return
    "$TRIREME" data convert folder "$WORK/pictures" "$WORK/photos" --quality 90 && rm -r "$WORK/pictures"
}

# loader THREADS: trains on the photos with this number of loader threads.
loader() {
    "$TRIREME" bench loader+step "$WORK/photos" --transform 'random_resized_crop(224),flip,normalize' --loader-threads "$1" \
        --device "$DEVICE" --model "$MODEL" --batch "$BATCH" --precision "$PRECISION" --seconds 8
}

# whole RECIPE SEED: trains to the end and prints the best score and the duration.
whole() {
    local out=$WORK/$1-$2 began
    began=$(now)
    "$TRIREME" train "recipes/$1.toml" --data "$DATA" --out "$out" --device "$DEVICE" --set "seed=$2" --set "precision=$PRECISION" \
        --set loader.cache=device || return
    grep -a '"event":"eval"' "$out/metrics.jsonl" | sed -nE 's/.*"top1":([0-9.]+).*/\1/p' | sort -g | tail -n 1 |
        sed "s/.*/{\"recipe\":\"$1\",\"seed\":$2,\"best_top1\":&,\"seconds\":$(minus "$(now)" "$began")}/"
}

case $DEVICE in cpu) PRECISION=f32 MODEL=resnet18 BATCH=4 ;; *) PRECISION=bf16 MODEL=resnet50 BATCH=256 ;; esac
export PRECISION MODEL BATCH
export -f photos loader whole now minus

if [ "$DEVICE" != cpu ]; then
    stage nccl 30 bash -c 'tests cuda nccl::a_group_of_one_rank'
    stage catalogue 240 bash -c 'tests numerics --ignored catalogue::every_network_equals_the_original_on_a_gpu --nocapture'
fi
if [ -n "$(command -v python3)" ]; then
    stage photos 90 bash -c photos
    ours synthetic 40 --model "$MODEL" --batch "$BATCH" --precision "$PRECISION" --seconds 4
    for threads in 4 8 14; do stage "loader-$threads" 40 bash -c "loader $threads"; done
else
    leave_out photos 'no python3 here'
fi
for recipe in cifar10-resnet20 cifar10-airbench94; do
    for seed in ${SEEDS:-1 2}; do
        if [ -z "${DATA:-}" ]; then
            leave_out "$recipe-$seed" 'DATA is not set'
        else
            stage "$recipe-$seed" 240 bash -c "whole $recipe $seed"
        fi
    done
done

results
