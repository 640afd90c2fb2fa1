# shellcheck shell=bash
# Functions shared by test.sh and the stage scripts: the tests, CUDA's programs, and compute-sanitizer on trireme's kernels. Source this
# file from the folder that contains `tests`, with WORK set to a folder for temporary files.

# tests BINARY ARGUMENT...: runs tests of a binary, from the archive or with cargo.
tests() {
    local binary=$1
    shift
    if [ -x "tests/gpu/bin/$binary" ]; then
        exec "tests/gpu/bin/$binary" --test-threads=2 "$@"
    else
        exec cargo test --locked --quiet --features real-gpu --test "$binary" -- --test-threads=2 "$@"
    fi
}

# Prints the names of trireme's own kernels as a regular expression. All other kernels are NVIDIA's.
own_kernels() {
    local folder=kernels
    [ -d "$folder" ] || folder='crates/backend/src/cuda/kernels crates/backend/src/update'
    # shellcheck disable=SC2086
    find $folder -name '*.cu' -exec cat {} + | tr '\n' ' ' |
        grep -oE '__global__ void (__launch_bounds__\([^)]*\) )?[a-z0-9_]+\(' | sed -E 's/.* ([a-z0-9_]+)\($/\1/' |
        sort -u | paste -sd '|' | sed 's/.*/^(&)$/'
}

# program NAME: prints the path of a CUDA program, on PATH or in a toolkit.
program() {
    command -v "$1" && return
    local place
    for place in /usr/local/cuda/bin /usr/local/cuda*/bin /opt/nvidia/nsight-compute/* /usr/local/cuda*/nsight-compute*; do
        if [ -x "$place/$1" ]; then
            echo "$place/$1"
            return
        fi
    done
    return 1
}

# sanitizer TOOL: runs a tool of compute-sanitizer on trireme's own kernels in three short trainings. initcheck must see the writes of all
# kernels, but only its findings in trireme's kernels count.
sanitizer() {
    local tool=$1 own rc=0
    own=$(own_kernels)
    local options=(--tool "$tool" --launch-timeout 60 --error-exitcode 9)
    case $tool in
    memcheck) options+=(--report-api-errors no --kernel-name "regex=$own") ;;
    initcheck) options+=(--print-limit 2000) ;;
    *) options+=(--kernel-name "regex=$own") ;;
    esac
    for network in lenet resnet20 'resnet18 --size 32'; do
        # shellcheck disable=SC2086
        "$SANITIZER" "${options[@]}" "$TRIREME" bench step --model $network --batch 4 --device cuda --precision bf16 --seconds 0.1 \
            >"$WORK/sanitizer" 2>&1
        code=$?
        cat "$WORK/sanitizer"
        if [ "$tool" = initcheck ] && [ $code = 9 ]; then
            own_findings "$own" "$WORK/sanitizer" && code=0
        fi
        [ $code = 0 ] || rc=$code
    done
    return $rc
}

# own_findings NAMES FILE: prints the findings in trireme's own kernels. Succeeds if there are no findings.
own_findings() {
    local own=${1#^(} found
    found=$(grep -E "^=+ +at (${own%)\$})[+(]" "$2" | sort | uniq -c)
    [ -z "$found" ] || { echo "$found" && return 1; }
}
SANITIZER=$(program compute-sanitizer || true)
export SANITIZER
export -f tests sanitizer own_kernels own_findings
