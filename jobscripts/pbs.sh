#!/bin/bash
# Submits a trireme command to PBS Pro or OpenPBS. A training or a sweep continues in a new job when its time is over.
#
#   jobscripts/pbs.sh [OPTIONS OF qsub] -- COMMAND OF trireme
#   RANKS=16 THREADS=8 jobscripts/pbs.sh -q workq -- train recipes/cifar10-resnet20.toml --out runs/r20
#   RANKS=4 GPUS=1 TIME=600 jobscripts/pbs.sh -P project -- train recipes/cifar10-resnet20.toml --out runs/r20
#   RANKS=1 THREADS=16 jobscripts/pbs.sh -- data verify data/cifar10
#
# Environment variables: RANKS [2], THREADS per rank [4], GPUS per rank [0], TIME in minutes [240], WARN in seconds [120], MAX_RESTARTS
# [100], DEVICE=auto|cpu|cuda, MPIRUN, MPIRUN_FLAGS. STAGE=1 copies the data set to the node's local disk first. These variables and the
# options of qsub also apply to the jobs that continue a training. The variables set select and walltime, so do not set these as options.
# Options for all jobs: QSUB_OPTIONS in env.sh.
#
# This script sends USR1 to the ranks WARN seconds before the end of the walltime. They write a checkpoint and end with code 75. The script
# then submits the job again from its node, under a new id. (PBS itself sends TERM at the end and KILL `kill_delay` seconds later, by
# default 10, which is too late. `qrerun` is only for PBS operators.) `--resume auto` continues the training, also when PBS has rerun the
# job (-r y) after the failure of a node. To stop and continue: qsig -s USR1 JOB. To stop for good: qdel JOB, which keeps the last
# checkpoint.
#
# Written from the manuals of PBS and the source of OpenPBS. Tested only with replacements for PBS's commands, never under PBS.
set -euo pipefail

# shellcheck source=jobscripts/job.sh
. "$(dirname "${BASH_SOURCE[0]}")/job.sh"

# submit RESTARTS ARGUMENTS...: submits the job and prints its id.
submit() {
    local restarts=$1 chunk="$RANKS:ncpus=$THREADS:mpiprocs=1:ompthreads=$THREADS"
    shift
    [ "$GPUS" = 0 ] || chunk+=:ngpus=$GPUS
    job_text "$restarts" "$@" | qsub -N trireme -j oe -r y -S /bin/bash -l select="$chunk" -l walltime="$((TIME * 60))" \
        ${QSUB_OPTIONS[@]+"${QSUB_OPTIONS[@]}"} "${options[@]}"
}

# warn_in SECONDS: sends USR1 to this script after that time, because PBS cannot. `timer` is the process.
warn_in() {
    say "time for $1 s"
    (trap 'kill "$!"; exit' TERM; sleep "$1" & wait "$!" && kill -s USR1 "$$") </dev/null >/dev/null 2>&1 &
    timer=$!
}

run() {
    local timer=''
    cd "$PBS_O_WORKDIR"
    trireme_line
    catch_signals
    [ -z "$parallel" ] || {
        mpi_flags "$PBS_NODEFILE"
        line=("$mpirun" -n "$(wc -l <"$PBS_NODEFILE")" "${flags[@]}" "${line[@]}")
    }
    case ${command[0]} in
    train | sweep) [ $((TIME * 60)) -le "$WARN" ] || warn_in $((TIME * 60 - WARN)) ;;
    esac
    launch "${line[@]}"
    [ -z "$timer" ] || kill "$timer" 2>/dev/null || true
}

if [ "${1:-}" = --run ]; then
    shift
    split "$@"
    run
    [ "$code" != 75 ] || submit_again 'PBS refused the next job from this node' submit $((RESTARTS + 1)) "$@"
    exit "$code"
fi
split "$@"
submit 0 "$@"
