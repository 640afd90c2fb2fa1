#!/usr/bin/env bash
# Runs fuzz targets one after another: run.sh SECONDS [TARGET...]
#
# Uses the stable compiler. RUSTC_BOOTSTRAP=1 lets it accept the flags that cargo-fuzz sets. clang builds libjpeg-turbo with the same
# address sanitizer and the same counters, but without its assembler code, because the sanitizer cannot check that. Findings are stored in
# fuzz/found and the growing corpora below the target folder.
set -euo pipefail
cd "$(dirname "$0")"

seconds=$1
shift
targets=("$@")
[ $# -gt 0 ] || targets=(record example idx matlab tar_index recordio npz parquet webdataset decode recode raw bands h5 recipe net weights)

triple=$(rustc -vV | sed -n 's/^host: //p')
name=${triple//-/_}
clang=$(command -v clang || command -v clang-14)
sanitize='-g -O1 -fno-omit-frame-pointer -fsanitize=address -fsanitize-coverage=inline-8bit-counters,pc-table,trace-cmp'

export RUSTC_BOOTSTRAP=1
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/../target}/fuzz
export "CC_$name=$clang" "CFLAGS_$name=$sanitize" "CXX_$name=${clang/clang/clang++}"
# mpicc calls the compiler that it was built with
export OMPI_CC=$clang MPICH_CC=$clang
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Zsanitizer=address \
    -Ccodegen-units=1"

# Prints the folders that the corpus of target $1 starts with, one per line, in addition to fuzz/seeds.
seeds() {
    case $1 in
    raw) printf '%s\n' ../data-tools/tests/data ;;
    decode | recode) printf '%s\n' ../loaders/tests/golden/pictures ;;
    matlab | recordio | npz) printf '%s\n' ../data-tools/tests/data ;;
    recipe) printf '%s\n' ../recipes ;;
    net) printf '%s\n' ../tests/golden/onnx ../tests/cases/onnx-tensorflow ;;
    weights) printf '%s\n' ../tests/golden/weights ;;
    parquet) printf '%s\n' ../tests/cases/parquet-class-names/src ../tests/cases/parquet-panic ../tests/cases/on-bad-skip-labels/null-label ;;
    webdataset) printf '%s\n' ../tests/cases/wds-messages/cat ../tests/cases/split-word-unknown/src/ok ;;
    esac
    [ ! -d "seeds/$1" ] || echo "seeds/$1"
}

export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 JSIMD_FORCENONE=1
# Targets write their input to a file. Each run has its own folder, so runs can work at the same time.
[ ! -w /dev/shm ] || TMPDIR=/dev/shm
TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/trireme-fuzz-XXXXXX")
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
# stays when this run ends, because other runs may write to it
mkdir -p found
failed=()
for target in "${targets[@]}"; do
    features=()
    case $target in
    recipe) features=(--features recipe) ;;
    net | weights) features=(--features formats) ;;
    esac
    cargo build --locked --release --target "$triple" --bin "$target" "${features[@]}"
    corpus=$CARGO_TARGET_DIR/corpus/$target
    mkdir -p "$corpus"
    mapfile -t begin < <(seeds "$target")
    log=$CARGO_TARGET_DIR/$target.log
    echo "fuzz $target, $seconds s"
    # each target checks its own memory limit (src/lib.rs); these limits only protect the machine
    if "$CARGO_TARGET_DIR/$triple/release/$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -malloc_limit_mb=700 \
        -print_final_stats=1 -artifact_prefix="found/$target-" "$corpus" "${begin[@]}" >"$log" 2>&1; then
        # executions, reached edges (cov), kept inputs (corp)
        sed -n 's/^#\([0-9]*\)\tDONE */    \1 executions, /p' "$log"
    else
        failed+=("$target")
        tail -n 60 "$log" >&2
    fi
done
[ ${#failed[@]} = 0 ] || { echo "findings are in fuzz/found, for these targets: ${failed[*]}" >&2; exit 1; }
