#!/bin/bash
# Submits a command of trireme to Flux; a training goes on by itself when the time is over.
#
#   jobscripts/flux.sh [OPTIONS OF flux batch] -- COMMAND OF trireme
#   RANKS=16 THREADS=8 jobscripts/flux.sh -q pbatch -- train recipes/cifar10-resnet20.toml --out runs/r20
#   RANKS=4 GPUS=1 TIME=600 jobscripts/flux.sh -B bank -- train recipes/cifar10-resnet20.toml --out runs/r20
#   RANKS=1 THREADS=16 jobscripts/flux.sh -- data verify data/cifar10
#
# From the environment: RANKS [2], THREADS a rank [4], GPUS a rank [0], TIME in minutes [240], WARN in seconds [120], MAX_RESTARTS [100];
# DEVICE=auto|cpu|cuda; STAGE=1: data set to the node's own disk first. They and flux batch's options hold for what follows, too. Options
# for all jobs: FLUX_OPTIONS and FLUX_RUN_OPTIONS in env.sh.
#
# WARN seconds before the time limit Flux sends USR1 (--signal), which goes on to the ranks through `flux run`: they write a checkpoint
# and end with code 75, and the script submits the job again to the instance that it came from, under a new id: Flux requeues no job
# that has run. `--resume auto` then goes on. To stop and go on: flux job kill --signal=USR1 JOB. To stop for good: flux cancel JOB,
# which keeps the last checkpoint.
#
# Written after flux-core's manual pages; tried only against commands that stand in for Flux's, never under Flux.
set -euo pipefail

# shellcheck source=jobscripts/job.sh
. "$(dirname "${BASH_SOURCE[0]}")/job.sh"

# submit RESTARTS PARENT ARGUMENTS...: PARENT is --parent from within a job, whose commands speak to the job's own instance.
submit() {
    local restarts=$1 parent=$2 own
    shift 2
    own=(--job-name=trireme --output='trireme-{{id}}.log' -n "$RANKS" -c "$THREADS" -t "${TIME}m" --signal="USR1@${WARN}s")
    [ "$GPUS" = 0 ] || own+=(-g "$GPUS")
    # shellcheck disable=SC2086 # nothing or one word
    job_text "$restarts" "$@" | flux $parent batch "${own[@]}" ${FLUX_OPTIONS[@]+"${FLUX_OPTIONS[@]}"} "${options[@]}"
}

again_or_not() {
    local next
    if [ -n "$stopped" ]; then
        say 'stopped for good; to go on, submit the same again'
    elif [ "$RESTARTS" -ge "$MAX_RESTARTS" ]; then
        say "restarted $RESTARTS times, which is enough; to go on, submit the same again"
    elif next=$(submit $((RESTARTS + 1)) --parent "$@"); then
        say "goes on as job $next"
    else
        say 'Flux took no further job; to go on, submit the same again'
    fi
}

run() {
    local own=(-n "$RANKS" -c "$THREADS")
    trireme_line
    catch_signals
    [ "$GPUS" = 0 ] || own+=(-g "$GPUS")
    [ -z "$parallel" ] || line=(flux run "${own[@]}" ${FLUX_RUN_OPTIONS[@]+"${FLUX_RUN_OPTIONS[@]}"} "${line[@]}")
    launch "${line[@]}"
}

if [ "${1:-}" = --run ]; then
    shift
    split "$@"
    run
    [ "$code" != 75 ] || again_or_not "$@"
    exit "$code"
fi
split "$@"
submit 0 '' "$@"
