# How many compute threads a rank gets, for all job scripts.
# shellcheck shell=bash disable=SC2034 # the scripts that read this file use what it sets

# threads_of THREADS CORES: the options for the compute threads of a rank, into `threads`: THREADS if it is set, else CORES. On a GPU without
# THREADS there are none: trireme then computes with one thread, and the loader has the other cores.
threads_of() {
    threads=()
    if [ -n "$1" ]; then
        threads=(--threads "$1")
    elif [ "${DEVICE:-auto}" = cpu ] || { [ "${DEVICE:-auto}" != cuda ] && ! has_gpu; }; then
        threads=(--threads "$2")
    fi
}

# Whether the job has GPUs.
has_gpu() {
    [ -n "${SLURM_JOB_GPUS:-}${SLURM_STEP_GPUS:-}${SLURM_GPUS_ON_NODE:-}${CUDA_VISIBLE_DEVICES:-}" ] || [ "${GPUS:-0}" != 0 ]
}
