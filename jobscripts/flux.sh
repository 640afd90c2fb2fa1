#!/bin/bash
# Submits a trireme command to Flux. A training or a sweep continues in a new job when its time is over.
#
#   jobscripts/flux.sh [OPTIONS OF flux batch] -- COMMAND OF trireme
#   RANKS=16 THREADS=8 jobscripts/flux.sh -q pbatch -- train recipes/cifar10-resnet20.toml --out runs/r20
#   RANKS=4 GPUS=1 TIME=600 jobscripts/flux.sh -B bank -- train recipes/cifar10-resnet20.toml --out runs/r20
#   RANKS=1 THREADS=16 jobscripts/flux.sh -- data verify data/cifar10
#
# Environment variables: RANKS [2], THREADS per rank [4], GPUS per rank [0], TIME in minutes [240], WARN in seconds [120], MAX_RESTARTS
# [100], DEVICE=auto|cpu|cuda. STAGE=1 copies the data set to the node's local disk first. These variables and the options of flux batch
# also apply to the jobs that continue a training. Options for all jobs: FLUX_OPTIONS and FLUX_RUN_OPTIONS in env.sh.
#
# Flux sends USR1 (--signal) to a training or a sweep WARN seconds before the time limit. `flux run` passes it on to the ranks, which write
# a checkpoint and end with code 75. The script then submits the job again to the instance that it came from, under a new id, because Flux
# does not requeue a job that has run. `--resume auto` continues the training. To stop and continue: flux job kill --signal=USR1 JOB. To
# stop for good: flux cancel JOB, which keeps the last checkpoint.
#
# Written from flux-core's manual pages. Tested only with replacements for Flux's commands, never under Flux.
set -euo pipefail

# shellcheck source=jobscripts/job.sh
. "$(dirname "${BASH_SOURCE[0]}")/job.sh"

# submit RESTARTS PARENT ARGUMENTS...: PARENT is --parent inside a job, where commands address the job's own instance.
submit() {
    local restarts=$1 parent=$2 own
    shift 2
    own=(--job-name=trireme --output='trireme-{{id}}.log' -n "$RANKS" -c "$THREADS" -t "${TIME}m")
    # USR1 would kill other commands
    case ${command[0]} in
    train | sweep) own+=(--signal="USR1@${WARN}s") ;;
    esac
    [ "$GPUS" = 0 ] || own+=(-g "$GPUS")
    # shellcheck disable=SC2086 # empty or a single word
    job_text "$restarts" "$@" | flux $parent batch "${own[@]}" ${FLUX_OPTIONS[@]+"${FLUX_OPTIONS[@]}"} "${options[@]}"
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
    [ "$code" != 75 ] || submit_again 'Flux refused the next job' submit $((RESTARTS + 1)) --parent "$@"
    exit "$code"
fi
split "$@"
submit 0 '' "$@"
