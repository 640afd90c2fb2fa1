#!/bin/sh
# Starts the trireme that fits the MPI of this machine: the one for Open MPI (4 and 5) or the one for MPICH's common interface (MPICH,
# Cray MPICH, Intel MPI, MVAPICH). The family is, by the first that answers:
#
#   TRIREME_MPI=openmpi or mpich, or own: the MPICH that lies beside this script, for one machine
#   the mpirun that started this process, by its variables
#   the mpirun on the PATH
#   Cray's module, then the library that the loader finds
#   own
#
# The family's library is that of LD_LIBRARY_PATH, else the one beside mpirun, else the system's. TRIREME_MPI_SHOW=1 prints the choice.
set -eu

root=$(dirname "$(dirname "$(readlink -f "$0")")")

# given LIBRARY: it lies in a folder of LD_LIBRARY_PATH.
given() { ( IFS=:; set -f; for folder in ${LD_LIBRARY_PATH:-}; do [ ! -e "$folder/$1" ] || exit 0; done; exit 1 ); }

# visible LIBRARY: the loader finds it.
visible() {
    ! given "$1" || return 0
    for folder in /lib/x86_64-linux-gnu /usr/lib/x86_64-linux-gnu /lib64 /usr/lib64 /usr/lib; do
        [ ! -e "$folder/$1" ] || return 0
    done
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -q "^[[:space:]]*$1 "
}

# also FOLDER: the loader looks there, too, after the folders that the user gave.
also() { LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$1; }

mpirun=$(command -v mpirun || command -v mpiexec || true)

by_mpirun() {
    [ -n "$mpirun" ] || return 1
    # by where its links lead, else by what it says, which takes longer
    case $(readlink -f "$mpirun") in
    "$root"/*) family=own ;;
    */orterun | */prterun | */prte) family=openmpi ;;
    */mpiexec.hydra) family=mpich ;;
    *) case $("$mpirun" --version 2>/dev/null) in
        *'Open MPI'* | *OpenRTE* | *PRRTE*) family=openmpi ;;
        *HYDRA* | *Intel* | *MVAPICH* | *MPICH*) family=mpich ;;
        *) return 1 ;;
        esac ;;
    esac
}

by_variables() {
    if [ -n "${OMPI_COMM_WORLD_SIZE:-}" ]; then family=openmpi
    elif [ -n "${PMI_RANK:-}" ] && [ -n "${MPI_LOCALNRANKS:-}" ]; then family=mpich
    elif [ -n "${MV2_COMM_WORLD_SIZE:-}" ]; then family=mpich
    else return 1; fi
}

by_library() {
    if [ -n "${CRAY_MPICH_DIR:-}" ]; then family=mpich
    elif visible libmpi.so.40; then family=openmpi
    elif visible libmpi.so.12 || visible libmpich.so.12; then family=mpich
    else return 1; fi
}

family=${TRIREME_MPI:-}
[ -n "$family" ] || by_variables || by_mpirun || by_library || family=own

case $family in
openmpi) library=libmpi.so.40 program=openmpi ;;
mpich) library=libmpi.so.12 program=mpich ;;
own) library=libmpi.so.12 program=mpich; LD_LIBRARY_PATH=$root/mpi/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} ;;
*) echo "TRIREME_MPI=$family: expected openmpi, mpich or own" >&2; exit 2 ;;
esac

# Cray's modules put their library where only their own compilers look.
[ -z "${CRAY_MPICH_DIR:-}" ] || [ "$program" = openmpi ] || also "$CRAY_MPICH_DIR/lib-abi-mpich:$CRAY_MPICH_DIR/lib"
if ! given "$library" && [ -n "$mpirun" ]; then
    prefix=$(dirname "$(dirname "$(readlink -f "$mpirun")")")
    for folder in "$prefix"/lib "$prefix"/lib64 "$prefix"/lib/release; do [ ! -e "$folder/$library" ] || { also "$folder"; break; }; done
fi
if ! visible "$library"; then
    if [ "$program" = openmpi ]; then
        echo "trireme: Open MPI is wanted here, but the loader does not find its library $library: load its module, add the" \
            "library's folder to LD_LIBRARY_PATH, or set TRIREME_MPI=mpich or own" >&2
        exit 1
    # Debian's MPICH has another name for it
    elif visible libmpich.so.12; then also "$root/lib/debian"
    # ranks that MPICH's mpirun has started may also use ours
    else also "$root/mpi/lib"; fi
fi

# a system that has no C++ at all
visible libstdc++.so.6 || also "$root/lib/gcc"

[ -z "${LD_LIBRARY_PATH:-}" ] || export LD_LIBRARY_PATH
[ -z "${TRIREME_MPI_SHOW:-}" ] || echo "trireme: $family, ${mpirun:-no mpirun}, LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}" >&2
exec "$root/libexec/trireme/$program/trireme" "$@"
