#!/usr/bin/env bash
# Tests which program packaging/trireme.sh starts, with replacements for mpirun, the MPI libraries and the programs. Takes a second and
# needs no archive.
#
#   tests/pack/choose.sh
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
there=$work/trireme
mkdir -p "$there"/{bin,mpi/bin,mpi/lib,lib/debian,lib/gcc} "$work/tools" "$work/plain"
cp "$root/packaging/trireme.sh" "$there/bin/trireme"
for family in openmpi mpich; do
    mkdir -p "$there/libexec/trireme/$family"
    # shellcheck disable=SC2016 # for the stand-in
    printf '#!/bin/sh\necho "%s ${LD_LIBRARY_PATH:-} $*"\n' "$family" >"$there/libexec/trireme/$family/trireme"
    chmod +x "$there/libexec/trireme/$family/trireme"
done
: >"$there/mpi/lib/libmpi.so.12"
# the programs that the script calls, without an mpirun of this machine
for tool in sh env readlink dirname grep cat uname; do ln -s "$(command -v $tool)" "$work/tools/$tool"; done
# a system without MPI, even if this machine has one
sed -i "s|for folder in ./lib/.*; do|for folder in $work/system; do|; s|PATH=\$PATH:/sbin:/usr/sbin ldconfig -p|cat $work/cache|" \
    "$there/bin/trireme"
grep -q "$work/system" "$there/bin/trireme"
mkdir "$work/system"
touch "$work/cache" "$work/system/libstdc++.so.6"

# mpirun_of NAME PATH TEXT: creates an mpirun at NAME/PATH that prints TEXT, and its link NAME/bin/mpirun.
mpirun_of() {
    mkdir -p "$work/$1/bin" "$work/$1/lib"
    printf '#!/bin/sh\necho "%s"\n' "$3" >"$work/$1/bin/$2"
    chmod +x "$work/$1/bin/$2"
    [ "$2" = mpirun ] || ln -s "$2" "$work/$1/bin/mpirun"
}
mpirun_of ompi4 orterun 'never asked'
: >"$work/ompi4/lib/libmpi.so.40"
mpirun_of ompi5 mpirun 'mpirun (Open MPI) 5.0.7'
: >"$work/ompi5/lib/libmpi.so.40"
mpirun_of hydra mpiexec.hydra 'never asked'
: >"$work/hydra/lib/libmpi.so.12"
mpirun_of intel mpirun 'Intel(R) MPI Library for Linux* OS, Version 2021.16'
mkdir "$work/intel/lib/release"
: >"$work/intel/lib/release/libmpi.so.12"
mpirun_of bare_hydra mpirun 'HYDRA build details:'
mpirun_of no_library orterun 'never asked'
mpirun_of strange mpirun 'a launcher of 2040'

cases=0
# expect ANSWER WORDS...: checks the answer of the script when only these environment variables are set.
expect() {
    local answer=$1 got
    shift
    got=$(env -i PATH="$work/tools" "$@" "$there/bin/trireme" one 'two  three' 2>&1 || true)
    got=${got//$work\//}
    # shellcheck disable=SC2053 # a pattern
    [[ $got == $answer ]] || { printf 'FAILED: %s\n  expected %s\n  got      %s\n' "$*" "$answer" "$got" >&2; exit 1; }
    cases=$((cases + 1))
}
with() { echo "PATH=$work/$1/bin:$work/tools"; }
words='one two  three'

expect "mpich trireme/mpi/lib $words" A=1
expect "openmpi ompi4/lib $words" "$(with ompi4)"
expect "openmpi ompi5/lib $words" "$(with ompi5)"
expect "mpich hydra/lib $words" "$(with hydra)"
expect "mpich intel/lib/release $words" "$(with intel)"
# a library in LD_LIBRARY_PATH has priority over the library of mpirun, which has priority over the system's
mkdir "$work/site"
: >"$work/site/libmpi.so.40"
expect "openmpi site $words" "$(with ompi4)" LD_LIBRARY_PATH="$work/site"
expect "openmpi lacking:ompi4/lib $words" "$(with ompi4)" LD_LIBRARY_PATH="$work/lacking"
: >"$work/system/libmpi.so.40"
expect "openmpi ompi4/lib $words" "$(with ompi4)"
expect "openmpi  $words" "$(with no_library)"
# the mpirun that started the script has priority over the mpirun on the PATH
expect "mpich trireme/mpi/lib $words" "$(with ompi4)" PMI_RANK=0 MPI_LOCALNRANKS=2
expect "openmpi  $words" "$(with hydra)" OMPI_COMM_WORLD_SIZE=2
expect "mpich hydra/lib $words" "$(with hydra)" MV2_COMM_WORLD_SIZE=2
# Slurm's own variables do not determine the family
expect "openmpi ompi4/lib $words" "$(with ompi4)" PMI_RANK=0 SLURM_STEP_ID=0
expect "mpich hydra/lib $words" "$(with hydra)" PMIX_RANK=0 SLURM_STEP_ID=0
# without an mpirun, Cray's module decides, and without the module the library that exists
expect "mpich */cray/lib-abi-mpich:*/cray/lib* $words" CRAY_MPICH_DIR=/opt/cray
expect "openmpi  $words" A=1
expect "openmpi  $words" "$(with strange)"
rm "$work/system/libmpi.so.40"
: >"$work/system/libmpich.so.12"
expect "mpich trireme/lib/debian $words" A=1
expect "mpich trireme/lib/debian $words" "$(with bare_hydra)"
printf '\tlibmpi.so.40 (libc6,x86-64) => /odd/libmpi.so.40\n' >"$work/cache"
expect "openmpi  $words" A=1
# the user's choice has priority over everything
expect "mpich trireme/lib/debian $words" "$(with ompi4)" TRIREME_MPI=mpich OMPI_COMM_WORLD_SIZE=2
expect "mpich trireme/mpi/lib:site $words" "$(with ompi4)" TRIREME_MPI=own LD_LIBRARY_PATH="$work/site"
expect '*expected openmpi, mpich or own*' TRIREME_MPI=lam
# the library of the chosen family is missing
: >"$work/cache"
rm "$work/system/libmpich.so.12"
expect '*does not find libmpi.so.40*' OMPI_COMM_WORLD_SIZE=2
expect "mpich trireme/mpi/lib $words" PMI_RANK=0 MPI_LOCALNRANKS=2
# the script finds the mpirun in its own archive, and works through a link
cp "$work/hydra/bin/mpiexec.hydra" "$there/mpi/bin/mpirun"
expect "mpich trireme/mpi/lib $words" "PATH=$there/mpi/bin:$work/tools"
ln -s "$there/bin/trireme" "$work/plain/trireme"
got=$(env -i PATH="$work/tools" "$work/plain/trireme" one)
[ "$got" = "mpich $there/mpi/lib one" ] || { echo "FAILED: by a link: $got" >&2; exit 1; }
# no libstdc++ anywhere
rm "$work/system/libstdc++.so.6"
expect "mpich trireme/mpi/lib:trireme/lib/gcc $words" A=1
echo "packaging/trireme.sh chooses rightly in $((cases + 1)) cases"
