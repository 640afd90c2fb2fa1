# shellcheck shell=bash
# Functions for test scripts, which source this file.

# skip TEST WHY: reports a test that cannot run on this machine, like skip.rs.
skip() {
    echo "skipped: $1: $2" >&2
    [ -z "${TRIREME_SKIPPED:-}" ] || printf '%s\t%s\n' "$1" "$2" >>"$TRIREME_SKIPPED"
}

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# until_true SECONDS COMMAND...: waits until the command succeeds. Fails if that takes longer.
until_true() {
    local until=$((SECONDS + $1))
    shift
    until "$@" 2>/dev/null; do
        [ $SECONDS -lt "$until" ] || { echo "waited in vain for: $*" >&2; return 1; }
        sleep 0.1
    done
}

# processes_with NAME=VALUE: lists the processes that were started with this variable in their environment.
processes_with() {
    { grep -lzxF "$1" /proc/[0-9]*/environ 2>/dev/null || true; } | cut -d/ -f3
}
