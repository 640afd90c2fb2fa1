#!/usr/bin/env bash
# Checks and measures the GPUs of a machine together, with a rank for each: every transport of gradients, equal bits on any number of ranks,
# a rank that is killed, and the speed on 1, 2, 4, ... GPUs. Continues after failures. Writes many.jsonl and many.log to OUT, and prints a
# table at the end. See stages.sh for the variables.
#
#   GPUS=N     number of GPUs to use [all that nvidia-smi lists]
#   SHARE=1    starts N ranks on a single GPU. Then MPI sums all gradients in host memory
#   DATA=DIR   CIFAR-10 as written by `trireme data convert` [random images]
#   DEVICE=cpu GPUS=2 checks this script on a machine without a GPU.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=tests/gpu/stages.sh
. tests/gpu/stages.sh

GPUS=${GPUS:-$(nvidia-smi -L 2>/dev/null | wc -l)}
[ "$GPUS" -ge 2 ] || { echo "many.sh needs at least 2 GPUs, found $GPUS; SHARE=1 GPUS=4 starts four ranks on one" >&2; exit 2; }
COUNTS=1
for n in 2 4 8 16; do [ "$n" -gt "$GPUS" ] || COUNTS+=" $n"; done
case $DEVICE in cpu) PRECISION=f32 ;; *) PRECISION=bf16 ;; esac
export GPUS COUNTS PRECISION SHARE=${SHARE:-}

machine() {
    nvidia-smi -L || echo 'no nvidia-smi here'
    nvidia-smi topo -m || true
    lscpu | head -n 20
    free -g
}

# Writes 1,200 random images in the format of CIFAR-10 and converts them.
random_images() {
    local file record
    mkdir -p "$WORK/cifar"
    for file in data_batch_{1..5} test_batch; do
        for record in {1..200}; do
            printf "%b" "\\x0$((record % 10))"
            head -c 3072 /dev/urandom
        done >"$WORK/cifar/$file.bin"
    done
    "$TRIREME" data convert cifar10 "$WORK/cifar" "$WORK/data"
}

# on RANKS ARGUMENTS...: runs trireme on these ranks.
on() {
    local ranks=$1
    shift
    mpirun --oversubscribe --bind-to none -n "$ranks" "$TRIREME" "$@"
}

# train RANKS OUT ARGUMENTS...: trains ResNet-20 into the folder OUT. There are as many workers as GPUs.
train() {
    local ranks=$1 out=$2
    shift 2
    local workers=$GPUS
    # on a CPU, equal bits need the same number of threads per rank
    on "$ranks" train recipes/cifar10-resnet20.toml --data "$DATA" --out "$WORK/$out" --device "$DEVICE" --threads 1 \
        --max-steps "${STEPS:-60}" --set epochs=1000 --set "workers=$workers" --set "precision=$PRECISION" --set log.every=1 --set eval.every=1000 \
        ${SHARE:+--share-gpu} "$@"
}

# event OUT NAME FIELD: the value of a field in the last line with this event.
event() { grep -a "\"event\":\"$2\"" "$WORK/$1/metrics.jsonl" | tail -n 1 | sed -nE "s/.*\"$3\":\"?([^\",}]+).*/\1/p"; }

# transport PATH: trains with this transport and prints its speed.
transport() {
    train "$GPUS" "path-$1" -v --set "reduce.path=$1" || return
    echo "{\"path\":\"$1\",\"ranks\":$GPUS,\"img_per_s\":$(event "path-$1" step img_per_s)}"
}

# bits PATH: `exact` must give one digest on all numbers of ranks, also after kill -9 and a resume on another number.
bits() {
    local n digest first=''
    for n in $COUNTS; do
        train "$n" "bits-$1-$n" --set reduce.codec=exact --set "reduce.path=$1" || return
        digest=$(event "bits-$1-$n" end digest)
        echo "{\"path\":\"$1\",\"ranks\":$n,\"digest\":\"$digest\",\"img_per_s\":$(event "bits-$1-$n" step img_per_s)}"
        [ "$digest" = "${first:=$digest}" ] || { echo "the digest on $n ranks differs"; return 1; }
    done
}

# killed PATH: kills a rank after 20 steps. All ranks must end within 15 s. The run is then resumed on fewer ranks.
killed() {
    local out=killed-$1 began
    train "$GPUS" "$out" --set reduce.codec=exact --set "reduce.path=$1" --set 'checkpoint.every="10 steps"' &
    until grep -qs '"step":20,' "$WORK/$out/metrics.jsonl"; do
        kill -0 $! 2>/dev/null || { echo 'the run ended before step 20'; return 1; }
        sleep 0.1
    done
    pkill -9 -n -f "$WORK/$out" || return
    began=$(now)
    ! wait $! || { echo 'the run did not fail'; return 1; }
    echo "{\"path\":\"$1\",\"seconds_to_end\":$(minus "$(now)" "$began")}"
    awk -v s="$(minus "$(now)" "$began")" 'BEGIN { exit s > 15 }' || return
    train 1 "$out" --resume auto --set reduce.codec=exact --set "reduce.path=$1" --set 'checkpoint.every="10 steps"' || return
    [ "$(event "$out" end digest)" = "$(event "bits-$1-1" end digest)" ]
}

# speed NETWORK BATCH: images per second on 1, 2, 4, ... ranks with the transport that training chooses.
speed() { on "$GPUS" bench scale --model "$1" --batch "$2" --device "$DEVICE" --seconds "${SECONDS_EACH:-5}" ${SHARE:+--share-gpu}; }

export -f machine random_images on train event transport bits killed speed now minus

stage machine 20 bash -c machine
stage doctor 60 mpirun --oversubscribe --bind-to none -n "$GPUS" "$TRIREME" doctor
if [ -n "${DATA:-}" ]; then DATA=$(cd "$DATA" && pwd); else DATA=$WORK/data && stage images 60 bash -c random_images; fi
export DATA
# without a GPU there is only one transport, which the recipe does not name
PATHS=(staged cuda-aware nccl)
[ -z "$SHARE" ] || PATHS=(staged)
[ "$DEVICE" != cpu ] || PATHS=(auto)
for path in "${PATHS[@]}"; do
    stage "transport-$path" 60 bash -c "transport $path"
    stage "bits-$path" 90 bash -c "bits $path"
    stage "killed-$path" 60 bash -c "killed $path"
done
if [ "$DEVICE" = cpu ]; then stage scale-lenet 60 bash -c 'speed lenet 8'; else
    stage scale-resnet50 90 bash -c 'speed resnet50 256'
    stage scale-resnet20 60 bash -c 'speed resnet20 128'
fi

results
