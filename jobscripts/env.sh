# Settings that differ between sites. Every job script reads this file. Your login shell should read it, too:
#
#   . jobscripts/env.sh       # sbatch then knows account and partition, and can be called from any folder
#
# Edit below. A variable that is assigned with := keeps its value from the environment.
# shellcheck shell=bash

# The folder with jobscripts/, and the program, by their paths on the compute nodes.
TRIREME_HOME=$(cd "$(dirname "${BASH_SOURCE[0]:-$0}")/.." && pwd)
export TRIREME_HOME
case $TRIREME_HOME in
*/share/trireme) : "${TRIREME:=${TRIREME_HOME%/share/trireme}/bin/trireme}" ;; # as `make install` puts them
*) : "${TRIREME:=$TRIREME_HOME/target/release/trireme}" ;;
esac

# The modules that the program was built with.
# module purge && module load gcc openmpi hdf5

# Account, partition and other options for every job. See `man sbatch`, INPUT ENVIRONMENT VARIABLES. Options after `sbatch` override them.
# export SBATCH_ACCOUNT=project123 SBATCH_PARTITION=batch

# The same for jobscripts/pbs.sh, lsf.sh and flux.sh: options of qsub, bsub and flux batch for every job, and options of flux run.
# QSUB_OPTIONS=(-P project123 -q workq -l place=scatter)
# BSUB_OPTIONS=(-P project123 -q normal)
# FLUX_OPTIONS=(-B project123 -q pbatch) FLUX_RUN_OPTIONS=(-o pmi=pmix)

# The PMI that srun and MPI share: pmix (Open MPI), pmi2 (MPICH, Intel MPI, MVAPICH) or cray_shasta. `srun --mpi=list` lists those
# available. With a wrong value each task would run as a separate training, which trireme refuses.
: "${PMI:=pmix}"

# srun binds each rank to the number of cores given by --cpus-per-task.
: "${CPU_BIND:=cores}"

# The local disk of a node, for STAGE=1. Most sites set TMPDIR in a job and empty it after the job.
: "${NODE_DISK:=${TMPDIR:-/tmp}}"

# srun binds the ranks. If OpenMP also bound threads, all threads of a rank, including the loader's, would share one core.
export OMP_PROC_BIND=false

# Network and start-up settings, if the default does not work.
# export OMPI_MCA_btl_tcp_if_include=ib0        # Open MPI over TCP
# export OMPI_MCA_plm_rsh_agent=blaunch         # Open MPI without LSF support starts ranks with blaunch instead of ssh
# export UCX_NET_DEVICES=mlx5_0:1               # UCX: Open MPI's pml ucx, MPICH's ch4:ucx
# export MPICH_GPU_SUPPORT_ENABLED=1            # Cray MPICH with GPUs, with module craype-accel-nvidia90
