#!/bin/bash
# Trains on this machine under mpirun; stops cleanly, and can go on by itself.
#
#   jobscripts/local.sh [-n RANKS] [-r RESTARTS] RECIPE [OPTIONS OF trireme train]
#   jobscripts/local.sh -n 4 recipes/cifar10-resnet20.toml --out runs/r20
#   jobscripts/local.sh -n 4 -r 9 recipes/cifar10-resnet20.toml --out runs/r20 --time-limit 30m
#
# TERM, and the first Ctrl-C, become USR1 for the ranks: they write a checkpoint and end with code 75; the same command goes on from
# there (`--resume auto`). Open MPI's mpirun itself would leave them about one second after TERM. Further ones go to the ranks and not to
# mpirun, which would crash: after a second they still end with code 75, a third Ctrl-C ends them at once.
# -r N: starts again, N times at most, after a stop (code 75) that neither TERM nor Ctrl-C caused, such as --time-limit.
# From the environment: MPIRUN [mpirun], MPIRUN_FLAGS [what lets trireme divide the cores itself]; the program as env.sh names it.
set -euo pipefail

ranks=2 restarts=0
while getopts n:r: option; do
    case $option in
    n) ranks=$OPTARG ;;
    r) restarts=$OPTARG ;;
    *) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2; }

# shellcheck source=jobscripts/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

mpirun=${MPIRUN:-mpirun}
version=$("$mpirun" --version 2>&1) || { echo "no $mpirun; MPIRUN names another" >&2; exit 2; }
case $version in
*'Open MPI'* | *OpenRTE*) flags='--bind-to none --oversubscribe' ;;
*) flags='' ;;
esac
read -ra flags <<<"${MPIRUN_FLAGS-$flags}"

launcher='' interrupted='' stop='' signals=0
stop() {
    interrupted=yes
    [ "$1" = USR1 ] || { stop=yes; signals=$((signals + 1)); }
    [ -n "$launcher" ] || return 0
    if [ "$signals" -lt 2 ]; then
        kill -s USR1 "$launcher" || true
    else
        signal_ranks "$launcher" INT
    fi
}

# The processes of trireme below process $1 get signal $2.
signal_ranks() {
    local child
    for child in $(pgrep -P "$1" || true); do
        if [ "/proc/$child/exe" -ef "$(command -v "$TRIREME")" ]; then
            kill -s "$2" "$child" || true
        fi
        signal_ranks "$child" "$2"
    done
}
for signal in TERM INT USR1; do
    # shellcheck disable=SC2064
    trap "stop $signal" "$signal"
done

for ((left = restarts; ; left--)); do
    # A session of its own: Ctrl-C at the terminal then reaches this script alone.
    setsid "$mpirun" -n "$ranks" "${flags[@]}" "$TRIREME" train "$@" --resume auto </dev/null &
    launcher=$!
    # A signal ends `wait` early; what mpirun ended with is known when one `wait` has passed without.
    while
        interrupted=''
        code=0
        wait "$launcher" || code=$?
        [ -n "$interrupted" ]
    do :; done
    [ "$code" = 75 ] && [ -z "$stop" ] && [ "$left" -gt 0 ] || exit "$code"
    echo "local.sh: goes on from the checkpoint ($((left - 1)) restarts left)" >&2
done
