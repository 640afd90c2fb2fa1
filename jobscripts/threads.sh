# Sets the number of compute threads per rank, for all job scripts.
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
