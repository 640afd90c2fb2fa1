# shellcheck shell=bash
# Functions for the stages of check.sh, kernels.sh, speed.sh, workloads.sh and many.sh, which source this file from the folder that contains
# `tests`. If a stage fails or exceeds its time limit, this is recorded, and the next stage starts.
#
#   OUT=DIR    folder for results: NAME.jsonl (a line per stage), NAME.log, and the files that a stage writes
#   TOTAL=S    seconds for all stages together [570]
#   MOST=S     maximum seconds of a stage, regardless of its own limit [600]
#   TRIREME=F  the program [./trireme of the archive, otherwise target/release/trireme]
NAME=$(basename "$0" .sh)
OUT=${OUT:-out/$NAME}
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
# of the archive: sets the path of its MPI
# shellcheck source=/dev/null
[ ! -f env.sh ] || . ./env.sh
TOTAL=${TOTAL:-570} MOST=${MOST:-600}
if [ -z "${TRIREME:-}" ]; then TRIREME=$PWD/trireme; [ -x "$TRIREME" ] || TRIREME=${CARGO_TARGET_DIR:-$PWD/target}/release/trireme; fi
export OUT TRIREME OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PYTHONUNBUFFERED=1
LINES_OUT=$OUT/$NAME.jsonl LOG=$OUT/$NAME.log
# `tidy` removes only files that are newer
MARK=$OUT/.begun
: >"$MARK"
: >"$LINES_OUT"
: >"$LOG"
WORK=$(mktemp -d)
export WORK
trap 'rm -rf "$WORK" "$MARK"' EXIT
# maximum size of the output of a stage in the log, and maximum size and number of files
MOST_LOG=1500000 MOST_FILE=$((16 << 20)) MOST_FILES=8

now() { date +%s.%N; }
minus() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.1f", a - b }'; }

# Prints the numbers in a stage's output $1: its JSON lines, and how many tests of each binary passed, failed, were ignored and were filtered
# out.
figures() {
    {
        grep -a '^{.*}$' "$1" | tail -n 60
        local counts='([0-9]+) passed; ([0-9]+) failed; ([0-9]+) ignored; .* ([0-9]+) filtered out'
        sed -nE "s/^test result: .* $counts.*/{\"passed\":\1,\"failed\":\2,\"ignored\":\3,\"filtered\":\4}/p" "$1"
        sed -nE 's/^test ([a-z0-9_:]+) \.\.\. FAILED$/{"failed_test":"\1"}/p' "$1"
        sed -nE 's/^=+ ERROR SUMMARY: ([0-9]+) errors?.*/{"sanitizer_errors":\1}/p' "$1"
    } | paste -sd ,
}

# stage NAME SECONDS COMMAND...: runs the command with this time limit.
stage() {
    local name=$1 limit=$2 left began rc=0 seconds
    shift 2
    left=$(minus "$TOTAL" "$SECONDS")
    left=${left%.*}
    [ "$limit" -le "$MOST" ] || limit=$MOST
    [ "$limit" -le "$left" ] || limit=$left
    if [ "$limit" -lt 1 ]; then
        echo "{\"stage\":\"$name\",\"rc\":null,\"seconds\":0,\"why\":\"no time left\"}" | tee -a "$LINES_OUT"
        return
    fi
    began=$(now)
    timeout -k 5 "$limit" "$@" >"$WORK/log" 2>&1 </dev/null || rc=$?
    seconds=$(minus "$(now)" "$began")
    {
        echo "===== $name: $* (rc $rc, $seconds s of $limit)"
        head -c $((MOST_LOG / 3)) "$WORK/log"
        if [ "$(stat -c %s "$WORK/log")" -gt $((MOST_LOG / 3)) ]; then
            printf '\n... and at the end:\n'
            tail -c +$((MOST_LOG / 3 + 1)) "$WORK/log" | tail -c $((MOST_LOG * 2 / 3))
        fi
        echo
    } >>"$LOG"
    echo "{\"stage\":\"$name\",\"rc\":$rc,\"seconds\":$seconds,\"limit\":$limit,\"figures\":[$(figures "$WORK/log")]}" | tee -a "$LINES_OUT"
    tidy
}

# Records that a stage cannot run here.
leave_out() { echo "{\"stage\":\"$1\",\"rc\":null,\"seconds\":0,\"why\":\"$2\"}" | tee -a "$LINES_OUT"; }

# Limits the size and number of the files that stages have written to OUT. NAME.jsonl and NAME.log stay.
tidy() {
    find "$OUT" -maxdepth 1 -type f -newer "$MARK" -size +"$MOST_FILE"c ! -name "$NAME.log" -delete
    if [ "$(stat -c %s "$LOG")" -gt "$MOST_FILE" ]; then tail -c $((MOST_FILE / 2)) "$LOG" >"$WORK/tail" && cp "$WORK/tail" "$LOG"; fi
    find "$OUT" -maxdepth 1 -type f -newer "$MARK" ! -name "$NAME.log" ! -name "$NAME.jsonl" -printf '%T@ %p\n' | sort -rn | tail -n +$((MOST_FILES - 1)) |
        cut -d ' ' -f 2- | while read -r file; do rm -f "$file"; done
}

# Prints a table: passed, failed or skipped for each stage.
results() {
    echo
    awk -F'"' '{ code = $0; sub(/.*"rc":/, "", code); sub(/,.*/, "", code)
                 printf "%-22s %s\n", $4, code == "null" ? "skipped" : code == 0 ? "passed" : "FAILED (code " code ")" }' "$LINES_OUT"
}

# shellcheck source=tests/gpu/tools.sh
. tests/gpu/tools.sh
# for PyTorch's measurements
PYTHON=$(command -v python3 || true)
if [ -n "$PYTHON" ] && ! "$PYTHON" -c 'import torch' 2>/dev/null; then PYTHON=; fi
DEVICE=${DEVICE:-cuda}
export PYTHON DEVICE
# Without PyTorch, the stages that need it are skipped, and their lines say so.
peer() {
    local name=$1 limit=$2
    shift 2
    if [ -z "$PYTHON" ]; then
        leave_out "$name" 'no python3 with PyTorch here'
    else
        stage "$name" "$limit" "$PYTHON" tests/gpu/peer.py "$@"
    fi
}
ours() {
    local name=$1 limit=$2
    shift 2
    stage "$name" "$limit" "$TRIREME" bench step --device "$DEVICE" "$@"
}
