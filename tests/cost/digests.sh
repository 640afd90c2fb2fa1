#!/usr/bin/env bash
# Checks that two builds of trireme compute the same. Both train the same short runs on this machine. The digest of the results (the last
# event of metrics.jsonl) and the bytes of model.h5 must be equal. No digests are recorded, because they differ between kinds of processors.
# Data: Debian's dataset-fashion-mnist.
#
#   tests/cost/digests.sh OLD NEW       # paths of two binaries; three minutes on two cores
set -euo pipefail

[ $# = 2 ] || { echo "usage: $0 OLD NEW" >&2; exit 2; }
OLD=$(realpath "$1") NEW=$(realpath "$2")
MPIRUN=${MPIRUN:-mpirun}
# shellcheck source=tests/support/small_data.sh
. "$(dirname "${BASH_SOURCE[0]}")/../support/small_data.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-digests-XXXXXX")
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
flags=()
if "$MPIRUN" --version 2>/dev/null | grep -q 'Open MPI\|OpenRTE'; then flags=(--bind-to none --oversubscribe); fi
failed=0

# The default optimizer.
optimizer='kind = "sgd", momentum = 0.9, nesterov = true, weight_decay = 1e-4'

# train PROGRAM RANKS OUT [ARGUMENT]...: trains with this program, into the folder OUT. Prints the program's output if it fails.
train() {
    local program=$1 ranks=$2 out=$work/$3
    shift 3
    { echo "optimizer = { $optimizer }" && cat "$work/rest"; } >"$work/recipe.toml"
    "$MPIRUN" -n "$ranks" "${flags[@]}" "$program" train "$work/recipe.toml" --data "$work/data" --out "$out" --threads 1 "$@" \
        >"$work/log" 2>&1 || { echo "$program on $ranks ranks, $*:" >&2; cat "$work/log" >&2; exit 1; }
}

digest() { sed -n 's/.*"digest": *"\([^"]*\)".*/\1/p' "$work/$1/metrics.jsonl" | tail -n 1; }

# compare NAME RANKS OUT-OF-OLD OUT-OF-NEW: prints a line of the table.
compare() {
    local old new equal=equal
    old=$(digest "$3") new=$(digest "$4")
    [ -n "$old" ] && [ "$old" = "$new" ] || equal="DIFFERENT digest: ${new:-none}"
    cmp -s "$work/$3/model.h5" "$work/$4/model.h5" || equal="$equal, DIFFERENT model.h5"
    [ "$equal" = equal ] || failed=1
    printf '%-42s %5s  %-26s %s\n' "$1" "$2" "${old:-none}" "$equal"
}

# both NAME RANKS [KEY=VALUE]...: trains with both programs and compares.
both() {
    local name=$1 ranks=$2 program sets=()
    shift 2
    for set in "$@"; do sets+=(--set "$set"); done
    for program in OLD NEW; do
        rm -rf "${work:?}/$program"
        train "${!program}" "$ranks" "$program" --max-steps 12 "${sets[@]}"
    done
    compare "$name" "$ranks" OLD NEW
}

# resumed NAME RANKS,RANKS... [KEY=VALUE]...: stops a run on 2 ranks and resumes it on each number of ranks: with OLD, with NEW, and with
# NEW from OLD's checkpoint.
resumed() {
    local name=$1 on=$2 program sets=()
    shift 2
    for set in "$@" 'checkpoint.every="6 steps"'; do sets+=(--set "$set"); done
    for program in OLD NEW; do
        rm -rf "${work:?}/$program-begun"
        train "${!program}" 2 "$program-begun" --max-steps 6 "${sets[@]}"
    done
    for ranks in ${on//,/ }; do
        for pair in OLD:OLD NEW:NEW OLD:NEW; do
            rm -rf "${work:?}/$pair"
            cp -r "$work/${pair%:*}-begun" "$work/$pair"
            program=${pair#*:}
            train "${!program}" "$ranks" "$pair" --max-steps 12 --resume auto "${sets[@]}"
        done
        compare "$name, resumed" "$ranks" OLD:OLD NEW:NEW
        compare "$name, NEW from OLD's checkpoint" "$ranks" OLD:OLD OLD:NEW
    done
}

mkdir "$work/source"
cut_source "$work/source" 1000
"$OLD" data convert fashion-mnist "$work/source" "$work/data" --shards 4 >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
"$NEW" data convert fashion-mnist "$work/source" "$work/data-new" --shards 4 >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
if diff -r "$work/data" "$work/data-new" >&2; then echo 'data convert: equal bytes'; else failed=1; fi

cat >"$work/rest" <<'EOF'
model = "resnet20"
data = "given with --data"
epochs = 2
batch = 32
workers = 3
seed = 3

[schedule]
kind = "cosine"
base_lr = 0.05
warmup_epochs = 0.1

[augment]
train = ["pad_crop(2)", "flip", "normalize"]
eval = ["normalize"]
EOF

printf '%-42s %5s  %-26s %s\n' run ranks "OLD's digest" NEW
for codec in float exact ternary int8 bf16; do both "$codec" 2 reduce.codec="$codec"; done
both 'exact, all workers on one rank' 1 reduce.codec=exact
both 'exact, three ranks' 3 reduce.codec=exact
both 'ternary, no clip, every tensor' 2 reduce.codec=ternary reduce.clip=0 reduce.min_elements=0 reduce.logits=true
both 'bf16, error feedback' 2 reduce.codec=bf16 reduce.error_feedback=true
both 'small buckets, no overlap' 2 reduce.bucket_mb=0.1 reduce.overlap=false
both 'sync_bn' 2 workers=2 sync_bn=true
both 'local SGD' 2 workers=2 'sync="local(5)"'
both 'EASGD' 2 workers=2 'sync="easgd(4, 0.4)"'
both 'EMA, label smoothing' 2 ema.decay=0.9 label_smoothing=0.1
optimizer='kind = "lars", weight_decay = 1e-4, eta = 0.01' both 'LARS' 2
optimizer='kind = "lars", larc = true, clip_norm = 1.0' both 'LARC, clip_norm' 2
optimizer='kind = "adam"' both 'Adam' 2 schedule.base_lr=0.001
optimizer='kind = "adamw", weight_decay = 0.05, clip_value = 0.1' both 'AdamW, clip_value' 2 schedule.base_lr=0.001
optimizer='kind = "rmsprop", momentum = 0.9, centered = true' both 'RMSProp, centred' 2 schedule.base_lr=0.001
optimizer='kind = "rmsprop", form = "tf", eps = 1.0' both "RMSProp, TensorFlow's" 2 schedule.base_lr=0.01
both 'lenet: dropout, many transforms' 2 model=lenet \
    'augment.train=["random_crop(24)", "flip", "brightness(20)", "contrast(0.8, 1.2)", "normalize", "cutout(6)", "random_erasing(0.5, 1)"]' \
    'augment.eval=["center_crop(24)", "normalize"]'
both 'cifarnet: LRN, windows of shards' 2 model=cifarnet 'shuffle="window(2)"' \
    'augment.train=["random_resized_crop(24)", "standardize"]' 'augment.eval=["center_crop(24)", "standardize"]'
both 'resnet18, last norms from 0' 2 model=resnet18 batch=6 zero_init_residual=true
resumed 'exact, EMA' 1,3 reduce.codec=exact ema.decay=0.9
optimizer='kind = "adam"' resumed 'ternary, error feedback, Adam' 1,2 reduce.codec=ternary reduce.error_feedback=true \
    schedule.base_lr=0.001
resumed 'EASGD' 2 workers=2 'sync="easgd(3, 0.4)"'

[ "$failed" = 0 ] || { echo 'the two builds differ' >&2; exit 1; }
echo 'both builds compute the same'
