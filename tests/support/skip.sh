# shellcheck shell=bash
# To be sourced by scripts of tests.

# skip TEST WHY: reports a test that cannot run on this machine, like skip.rs.
skip() {
    echo "skipped: $1: $2" >&2
    [ -z "${TRIREME_SKIPPED:-}" ] || printf '%s\t%s\n' "$1" "$2" >>"$TRIREME_SKIPPED"
}
