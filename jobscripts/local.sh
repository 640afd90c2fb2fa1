#!/bin/bash
# Trains on this machine with mpirun. Stops cleanly and can restart itself.
#
#   jobscripts/local.sh [-n RANKS] [-r RESTARTS] RECIPE [OPTIONS OF trireme train]
#   jobscripts/local.sh -n 4 recipes/cifar10-resnet20.toml --out runs/r20
#   jobscripts/local.sh -n 4 -r 9 recipes/cifar10-resnet20.toml --out runs/r20 --time-limit 30m
#
# TERM and the first Ctrl-C become USR1 for the ranks. They write a checkpoint and end with code 75. The same command then continues
# (`--resume auto`). Open MPI's mpirun by itself would kill them about one second after TERM. Later signals are sent to the ranks and not to
# mpirun, which would crash. After a second Ctrl-C they still end with code 75. A third Ctrl-C ends them at once. -r N: restarts at most N
# times after a stop (code 75) that neither TERM nor Ctrl-C caused, such as --time-limit. Environment variables: MPIRUN [mpirun],
# MPIRUN_FLAGS [flags that let trireme divide the cores]. env.sh sets the program.
set -euo pipefail

# shellcheck source=jobscripts/job.sh
. "$(dirname "${BASH_SOURCE[0]}")/job.sh"

ranks=2 restarts=0
while getopts n:r: option; do
    case $option in
    n) ranks=$OPTARG ;;
    r) restarts=$OPTARG ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || usage
[[ $ranks =~ ^[1-9][0-9]*$ ]] || { echo "$me: -n $ranks: expected a number of ranks >= 1" >&2; exit 2; }
[[ $restarts =~ ^[0-9]+$ ]] || { echo "$me: -r $restarts: expected a number of restarts >= 0" >&2; exit 2; }

# shellcheck disable=SC2317,SC2329 # a signal calls it
signal_ranks() {
    bash -c "$signal_marked" signal INT "$mark"
}

resume_of "$@"
# shellcheck disable=SC2119 # no file of machines
mpi_flags
repeat "$restarts" \
    "$mpirun" -n "$ranks" "${flags[@]}" env TRIREME_MARK="$mark" "$TRIREME" train "$@" "${resume[@]}"
exit "$code"
