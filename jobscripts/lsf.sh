#!/bin/bash
# Submits a trireme command to LSF. LSF requeues a training or a sweep when its time is over.
#
#   jobscripts/lsf.sh [OPTIONS OF bsub] -- COMMAND OF trireme
#   RANKS=16 THREADS=8 jobscripts/lsf.sh -q normal -- train recipes/cifar10-resnet20.toml --out runs/r20
#   RANKS=4 TIME=600 jobscripts/lsf.sh -gpu num=4 -R 'span[hosts=1]' -- train recipes/cifar10-resnet20.toml --out runs/r20
#   RANKS=1 THREADS=16 jobscripts/lsf.sh -- data verify data/cifar10
#
# Environment variables: RANKS [2], THREADS per rank [4], TIME in minutes [240], WARN in seconds, rounded up to minutes [120], MAX_RESTARTS
# [100], DEVICE=auto|cpu|cuda, MPIRUN, MPIRUN_FLAGS. STAGE=1 copies the data set to the node's local disk first. A rank uses THREADS slots
# on one machine (-R 'span[block=THREADS]', unless the options have a span of their own). Request GPUs with bsub's own options: `-gpu num=N`
# is the number per machine. Options for all jobs: BSUB_OPTIONS in env.sh.
#
# LSF sends USR1 (-wa, -wt) to a training or a sweep WARN seconds before the run limit (-W). It reaches the ranks, which write a checkpoint
# and end with code 75. LSF then requeues the job under the same id (-Q 75). `--resume auto` continues the training, also after
# `brequeue JOB` and when LSF has rerun the job (-r) after the failure of a node. To stop and continue: bkill -s USR1 JOB. To stop for good:
# bkill JOB. The script then ends with code 143 instead of 75. If MAX_JOB_REQUEUE is set, LSF itself limits restarts. The script also counts
# them, in .trireme-JOB.restarts next to the log.
#
# Written from the manual of LSF 10.1. Tested only with replacements for LSF's commands, never under LSF.
set -euo pipefail

# shellcheck source=jobscripts/job.sh
. "$(dirname "${BASH_SOURCE[0]}")/job.sh"

# The job script is passed on standard input, because bsub passes words with blanks on its command line to a shell without quoting.
submit() {
    local own=(-J trireme -o 'trireme-%J.log' -r -Q 75 -n "$((RANKS * THREADS))")
    # bsub accepts only one span
    [[ "${BSUB_OPTIONS[*]-} ${options[*]}" == *span\[* ]] || own+=(-R "span[block=$THREADS]")
    own+=(-W "$TIME")
    # USR1 would kill other commands
    case ${command[0]} in
    train | sweep) own+=(-wa USR1 -wt "$(((WARN + 59) / 60))") ;;
    esac
    job_text 0 "$@" | bsub "${own[@]}" ${BSUB_OPTIONS[@]+"${BSUB_OPTIONS[@]}"} "${options[@]}"
}

# Writes the machine of each rank to the file $1, one per line. LSB_MCPU_HOSTS has slots per machine, such as `n17 8 n18 4`.
write_hosts() {
    local words i rank
    read -ra words <<<"$LSB_MCPU_HOSTS"
    for ((i = 1; i < ${#words[@]}; i += 2)); do
        [[ ${words[i]} =~ ^[0-9]+$ ]] || { say "LSB_MCPU_HOSTS: ${words[i]}: expected a number of slots"; exit 2; }
    done
    for ((i = 0; i < ${#words[@]}; i += 2)); do
        for ((rank = 0; rank < words[i + 1] / THREADS; rank++)); do echo "${words[i]}"; done
    done >"$1"
}

run() {
    local ranks hosts=''
    trireme_line
    catch_signals
    trap 'stop USR1' USR2
    [ -z "$parallel" ] || {
        hosts=$(mktemp)
        write_hosts "$hosts"
        ranks=$(wc -l <"$hosts")
        [ "$ranks" -eq "$RANKS" ] || {
            say "LSF gave slots for $ranks of $RANKS ranks, because a rank needs THREADS=$THREADS slots on one machine: $LSB_MCPU_HOSTS; use a" \
                "span with a multiple of $THREADS slots per machine"
            rm -f "$hosts"
            exit 2
        }
        mpi_flags "$hosts"
        line=("$mpirun" -n "$ranks" "${flags[@]}" "${line[@]}")
    }
    launch "${line[@]}"
    [ -z "$hosts" ] || rm -f "$hosts"
}

# LSF requeues a job after every exit code 75, so a stop for good needs another code.
continue_or_stop() {
    local counter=.trireme-$LSB_JOBID.restarts restarts=0
    # another user may have created this file, so accept only a number
    [ ! -f "$counter" ] || read -r restarts <"$counter" || true
    [[ $restarts =~ ^[0-9]{1,9}$ ]] || restarts=0
    if [ "$code" = 75 ] && [ -n "$stopped" ]; then
        say 'stopped for good by a signal. To continue later, submit the same command again'
        code=143
    elif [ "$code" = 75 ] && [ "$restarts" -ge "$MAX_RESTARTS" ]; then
        say "restarted $restarts times, which is the limit. To continue, submit the same command again"
        code=143
    elif [ "$code" = 75 ]; then
        say 'LSF requeues the job'
        echo $((restarts + 1)) >"$counter"
        return 0
    fi
    rm -f "$counter"
}

if [ "${1:-}" = --run ]; then
    shift
    split "$@"
    run
    continue_or_stop
    exit "$code"
fi
split "$@"
submit "$@"
