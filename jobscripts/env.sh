# All that differs from site to site. Every job script reads this file; your login shell should, too:
#
#   . jobscripts/env.sh       # sbatch then knows account and partition, and may be called from any folder
#
# Edit below. A variable marked := keeps the value that it has in the environment.
# shellcheck shell=bash

# The folder that holds jobscripts/, and the program, as the compute nodes see them.
TRIREME_HOME=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export TRIREME_HOME
case $TRIREME_HOME in
*/share/trireme) : "${TRIREME:=${TRIREME_HOME%/share/trireme}/bin/trireme}" ;; # as `make install` puts them
*) : "${TRIREME:=$TRIREME_HOME/target/release/trireme}" ;;
esac

# The modules that it was built with.
# module purge && module load gcc openmpi hdf5

# Account, partition and such for every job; `man sbatch`, INPUT ENVIRONMENT VARIABLES, has more. Options after `sbatch` win.
# export SBATCH_ACCOUNT=project123 SBATCH_PARTITION=batch

# The same for jobscripts/pbs.sh, lsf.sh and flux.sh: options of qsub, bsub and flux batch for every job, and of flux run.
# QSUB_OPTIONS=(-P project123 -q workq -l place=scatter)
# BSUB_OPTIONS=(-P project123 -q normal)
# FLUX_OPTIONS=(-B project123 -q pbatch) FLUX_RUN_OPTIONS=(-o pmi=pmix)

# What srun and MPI speak: pmix (Open MPI), pmi2 (MPICH, Intel MPI, MVAPICH) or cray_shasta. `srun --mpi=list` shows what there is;
# with a wrong one every task believes to be alone, which trireme refuses.
: "${PMI:=pmix}"

# How srun binds: each rank to as many cores as --cpus-per-task says.
: "${CPU_BIND:=cores}"

# The disk of a node itself, for STAGE=1; most sites set TMPDIR in a job and empty it after the job.
: "${NODE_DISK:=${TMPDIR:-/tmp}}"

# srun binds; if OpenMP did once more, all threads of a rank, the loader's too, would share one core.
export OMP_PROC_BIND=false

# Network and start, where the default is not the right one.
# export OMPI_MCA_btl_tcp_if_include=ib0        # Open MPI over TCP
# export OMPI_MCA_plm_rsh_agent=blaunch         # Open MPI without LSF's support starts ranks by blaunch in place of ssh
# export UCX_NET_DEVICES=mlx5_0:1               # UCX: Open MPI's pml ucx, MPICH's ch4:ucx
# export MPICH_GPU_SUPPORT_ENABLED=1            # Cray MPICH with GPUs, with module craype-accel-nvidia90
