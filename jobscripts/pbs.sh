#!/bin/bash
# Submits a command of trireme to PBS Pro or OpenPBS; a training goes on by itself when the time is over.
#
#   jobscripts/pbs.sh [OPTIONS OF qsub] -- COMMAND OF trireme
#   RANKS=16 THREADS=8 jobscripts/pbs.sh -q workq -- train recipes/cifar10-resnet20.toml --out runs/r20
#   RANKS=4 GPUS=1 TIME=600 jobscripts/pbs.sh -P project -- train recipes/cifar10-resnet20.toml --out runs/r20
#   RANKS=1 THREADS=16 jobscripts/pbs.sh -- data verify data/cifar10
#
# From the environment: RANKS [2], THREADS a rank [4], GPUS a rank [0], TIME in minutes [240], WARN in seconds [120], MAX_RESTARTS [100];
# DEVICE=auto|cpu|cuda; STAGE=1: data set to the node's own disk first; MPIRUN, MPIRUN_FLAGS. They and qsub's options hold for what
# follows, too. Select and walltime come from them and not from options; options for all jobs: QSUB_OPTIONS in env.sh.
#
# WARN seconds before the walltime is over this script sends USR1 to the ranks: they write a checkpoint and end with code 75, and the
# script submits the job again from its node, under a new id. (PBS itself sends TERM at the end, and KILL `kill_delay` seconds later, 10
# by default: too late. `qrerun` is for PBS's operators.) `--resume auto` then goes on, also when PBS has rerun the job (-r y) after a
# node failed. To stop and go on: qsig -s USR1 JOB. To stop for good: qdel JOB, which keeps the last checkpoint.
#
# Written after the manuals of PBS and OpenPBS's source; tried only against commands that stand in for PBS's, never under PBS.
set -euo pipefail

# shellcheck source=jobscripts/job.sh
. "$(dirname "${BASH_SOURCE[0]}")/job.sh"

# submit RESTARTS ARGUMENTS...: prints the id of the job.
submit() {
    local restarts=$1 chunk="$RANKS:ncpus=$THREADS:mpiprocs=1:ompthreads=$THREADS"
    shift
    [ "$GPUS" = 0 ] || chunk+=:ngpus=$GPUS
    job_text "$restarts" "$@" | qsub -N trireme -j oe -r y -S /bin/bash -l select="$chunk" -l walltime="$((TIME * 60))" \
        ${QSUB_OPTIONS[@]+"${QSUB_OPTIONS[@]}"} "${options[@]}"
}

# warn_in SECONDS: sends USR1 to this script then; PBS has nothing that does. `timer` is the process.
warn_in() {
    say "time for $1 s"
    (trap 'kill "$!"; exit' TERM; sleep "$1" & wait "$!" && kill -s USR1 "$$") </dev/null >/dev/null 2>&1 &
    timer=$!
}

# again_or_not ARGUMENTS...: what follows a stop with code 75.
again_or_not() {
    local next
    if [ -n "$stopped" ]; then
        say 'stopped for good; to go on, submit the same again'
    elif [ "$RESTARTS" -ge "$MAX_RESTARTS" ]; then
        say "restarted $RESTARTS times, which is enough; to go on, submit the same again"
    elif next=$(cd "$PBS_O_WORKDIR" && submit $((RESTARTS + 1)) "$@"); then
        say "goes on as job $next"
    else
        say 'PBS took no further job from this node; to go on, submit the same again'
    fi
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
    [ "${command[0]}" != train ] || [ $((TIME * 60)) -le "$WARN" ] || warn_in $((TIME * 60 - WARN))
    launch "${line[@]}"
    [ -z "$timer" ] || kill "$timer" 2>/dev/null || true
}

if [ "${1:-}" = --run ]; then
    shift
    split "$@"
    run
    [ "$code" != 75 ] || again_or_not "$@"
    exit "$code"
fi
split "$@"
submit 0 "$@"
