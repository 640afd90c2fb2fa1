# Functions of all job scripts: the options that they add to trireme's command line (--threads, --stage, --resume), and waiting for the
# ranks.
# shellcheck shell=bash disable=SC2034 # the scripts that source this file use these variables

# threads_of THREADS CORES: sets `threads` to the compute thread options for a rank. Uses THREADS if set, otherwise CORES.
# With a GPU and without THREADS the options are empty. trireme then computes with a single thread and leaves the other cores to the loader.
threads_of() {
    threads=()
    if [ -n "$1" ]; then
        threads=(--threads "$1")
    elif [ "${DEVICE:-auto}" = cpu ] || { [ "${DEVICE:-auto}" != cuda ] && ! has_gpu; }; then
        threads=(--threads "$2")
    fi
}

# Succeeds if the job has GPUs.
has_gpu() {
    [ -n "${SLURM_JOB_GPUS:-}${SLURM_STEP_GPUS:-}${SLURM_GPUS_ON_NODE:-}${CUDA_VISIBLE_DEVICES:-}" ] || [ "${GPUS:-0}" != 0 ]
}

# given OPTION ARGUMENTS...: succeeds if the arguments contain the option.
given() {
    local option=$1 argument
    shift
    for argument; do
        case $argument in "$option" | "$option="*) return 0 ;; esac
    done
    return 1
}

# stages ARGUMENTS...: succeeds if the script must add --stage: STAGE is 1, and the arguments do not contain the option.
stages() {
    case ${STAGE:-0} in
    0) return 1 ;;
    1) ! given --stage "$@" ;;
    *) echo "$(basename "$0"): STAGE=$STAGE: expected 0 or 1" >&2; exit 2 ;;
    esac
}

# resume_of ARGUMENTS...: sets `resume` to the option that continues the run when the script starts it again.
resume_of() {
    resume=()
    if given --resume "$@"; then
        echo "$(basename "$0"): this script adds \`--resume auto\`, so it does not accept --resume. To begin with a checkpoint of another" \
            'run, copy it into the folder checkpoints of OUT' >&2
        exit 2
    fi
    given --find-lr "$@" || resume=(--resume auto)
}

# await PROCESS: stores the exit code of a child process in `code`. The handlers of signals must set `interrupted`.
await() {
    # If a signal arrives while the process ends, `wait` can lose its exit code. So this calls `wait` after the end of the process. A signal
    # to all processes of a job also ends the sleep.
    while kill -0 "$1" 2>/dev/null; do
        { sleep 1 || true; } 2>/dev/null
    done
    # A signal ends `wait` early. Another `wait` then returns the exit code.
    while
        interrupted=''
        code=0
        wait "$1" || code=$?
        [ -n "$interrupted" ]
    do :; done
}
