#!/bin/sh
# Starts the trireme that matches the MPI of this machine: one build for Open MPI (4 and 5), or one for the common interface of MPICH
# (MPICH, Cray MPICH, Intel MPI, MVAPICH). The first of these that applies selects the MPI family:
#
#   TRIREME_MPI=openmpi or mpich, or own: the MPICH next to this script, for a single machine
#   the mpirun that started this process, recognized by its environment variables
#   the mpirun on the PATH
#   Cray's module, then the library that the loader finds
#   own
#
# The library of the family comes from LD_LIBRARY_PATH, otherwise from the installation of mpirun, otherwise from the system.
# TRIREME_MPI_SHOW=1 prints the choice.
set -eu

root=$(dirname "$(dirname "$(readlink -f "$0")")")

# given LIBRARY: succeeds if the library is in a folder of LD_LIBRARY_PATH.
given() { ( IFS=:; set -f; for folder in ${LD_LIBRARY_PATH:-}; do [ ! -e "$folder/$1" ] || exit 0; done; exit 1 ); }

# visible LIBRARY: succeeds if the loader finds the library.
visible() {
    ! given "$1" || return 0
    for folder in "/lib/$(uname -m)-linux-gnu" "/usr/lib/$(uname -m)-linux-gnu" /lib64 /usr/lib64 /usr/lib; do
        [ ! -e "$folder/$1" ] || return 0
    done
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -q "^[[:space:]]*$1 "
}

# also FOLDER: adds a folder for the loader, after the folders that the user set.
also() { LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$1; }

mpirun=$(command -v mpirun || command -v mpiexec || true)

by_mpirun() {
    [ -n "$mpirun" ] || return 1
    # checks the target of its links first, then its output, which is slower
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

# Cray's modules put their library where only their own compilers search.
[ -z "${CRAY_MPICH_DIR:-}" ] || [ "$program" = openmpi ] || also "$CRAY_MPICH_DIR/lib-abi-mpich:$CRAY_MPICH_DIR/lib"
if ! given "$library" && [ -n "$mpirun" ]; then
    prefix=$(dirname "$(dirname "$(readlink -f "$mpirun")")")
    for folder in "$prefix"/lib "$prefix"/lib64 "$prefix"/lib/release; do [ ! -e "$folder/$library" ] || { also "$folder"; break; }; done
fi
if ! visible "$library"; then
    if [ "$program" = openmpi ]; then
        echo "trireme: the loader does not find $library, the library of Open MPI: load its module, add the" \
            "library's folder to LD_LIBRARY_PATH, or set TRIREME_MPI=mpich or own" >&2
        exit 1
    # Debian names MPICH's library libmpich.so.12
    elif visible libmpich.so.12; then also "$root/lib/debian"
    # ranks that MPICH's mpirun has started can also use the MPICH of this archive
    else also "$root/mpi/lib"; fi
fi

# a system without a C++ library
visible libstdc++.so.6 || also "$root/lib/gcc"

[ -z "${LD_LIBRARY_PATH:-}" ] || export LD_LIBRARY_PATH
[ -z "${TRIREME_MPI_SHOW:-}" ] || echo "trireme: $family, ${mpirun:-no mpirun}, LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}" >&2
exec "$root/libexec/trireme/$program/trireme" "$@"
