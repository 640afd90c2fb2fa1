#!/bin/bash
# Submits a command of trireme to LSF; a training goes on by itself when the time is over.
#
#   jobscripts/lsf.sh [OPTIONS OF bsub] -- COMMAND OF trireme
#   RANKS=16 THREADS=8 jobscripts/lsf.sh -q normal -- train recipes/cifar10-resnet20.toml --out runs/r20
#   RANKS=4 TIME=600 jobscripts/lsf.sh -gpu num=4 -R 'span[hosts=1]' -- train recipes/cifar10-resnet20.toml --out runs/r20
#   RANKS=1 THREADS=16 jobscripts/lsf.sh -- data verify data/cifar10
#
# From the environment: RANKS [2], THREADS a rank [4], TIME in minutes [240], WARN in seconds, rounded up to minutes [120], MAX_RESTARTS
# [100]; DEVICE=auto|cpu|cuda; STAGE=1: data set to the node's own disk first; MPIRUN, MPIRUN_FLAGS. A rank takes THREADS slots, all on one
# machine (span[block]). GPUs are for bsub's own options; `-gpu num=N` counts for each machine. Options for all jobs: BSUB_OPTIONS in
# env.sh.
#
# WARN before the run limit (-W) LSF sends USR1 (-wa, -wt), which goes on to the ranks: they write a checkpoint and end with code 75, and
# LSF puts the job back into its queue, under the same id (-Q 75). `--resume auto` then goes on, also after `brequeue JOB` and when LSF
# has rerun the job (-r) after a node failed. To stop and go on: bkill -s USR1 JOB. To stop for good: bkill JOB; the script then ends
# with code 143 in place of 75. LSF counts restarts by itself where MAX_JOB_REQUEUE is set; the script does in
# .trireme-JOB.restarts beside the log.
#
# Written after LSF 10.1's manual; tried only against commands that stand in for LSF's, never under LSF.
set -euo pipefail

# shellcheck source=jobscripts/job.sh
. "$(dirname "${BASH_SOURCE[0]}")/job.sh"

# From standard input: on its command line bsub would hand words with blanks to a shell as they are.
submit() {
    local own=(-J trireme -o 'trireme-%J.log' -r -Q 75 -n "$((RANKS * THREADS))" -R "span[block=$THREADS]")
    own+=(-W "$TIME" -wa USR1 -wt "$(((WARN + 59) / 60))")
    job_text 0 "$@" | bsub "${own[@]}" ${BSUB_OPTIONS[@]+"${BSUB_OPTIONS[@]}"} "${options[@]}"
}

# The machine of each rank, a line each, into the file $1: LSB_MCPU_HOSTS, as `n17 8 n18 4`, counts slots.
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
    local hosts=''
    trireme_line
    catch_signals
    trap 'stop USR1' USR2
    [ -z "$parallel" ] || {
        hosts=$(mktemp)
        write_hosts "$hosts"
        mpi_flags "$hosts"
        line=("$mpirun" -n "$(wc -l <"$hosts")" "${flags[@]}" "${line[@]}")
    }
    launch "${line[@]}"
    [ -z "$hosts" ] || rm -f "$hosts"
}

# LSF requeues after every 75, so a stop that is to last ends with another code.
again_or_not() {
    local counter=.trireme-$LSB_JOBID.restarts restarts=0
    # another user may have created this file, so accept only a number
    [ ! -f "$counter" ] || read -r restarts <"$counter" || true
    [[ $restarts =~ ^[0-9]{1,9}$ ]] || restarts=0
    if [ "$code" = 75 ] && [ -n "$stopped" ]; then
        say 'stopped for good; to go on, submit the same again'
        code=143
    elif [ "$code" = 75 ] && [ "$restarts" -ge "$MAX_RESTARTS" ]; then
        say "restarted $restarts times, which is enough; to go on, submit the same again"
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
    [ "${command[0]}" != train ] || again_or_not
    exit "$code"
fi
split "$@"
submit "$@"
