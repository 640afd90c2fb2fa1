#!/bin/bash
# Trains with Open MPI and with MPICH. The models must be bit-identical: `make test-mpich`.
#
#   DATA=data/fashion-mnist tests/mpich/compare.sh PROGRAM-OF-OPEN-MPI PROGRAM-OF-MPICH
set -euo pipefail

open_mpi=$1 mpich=$2
recipe=$(dirname "${BASH_SOURCE[0]}")/../../recipes/fashion-mnist-lenet.toml
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-mpich-XXXXXX")
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# train OUT COMMAND...: trains 20 steps with a launcher and a program, the COMMAND, into the folder OUT.
train() {
    local out=$work/$1
    shift
    "$@" train "$recipe" --data "$DATA" --out "$out" --threads 1 --max-steps 20 --set batch=16 --set workers=3 \
        --set reduce.codec="$codec" 2>"$out.log" || { cat "$out.log" >&2; exit 1; }
}

for codec in exact int8 ternary; do
    train "$codec-openmpi" mpirun.openmpi -n 2 --bind-to none --oversubscribe "$open_mpi"
    train "$codec-mpich" mpirun.mpich -n 2 "$mpich"
    sum=$(sha256sum <"$work/$codec-openmpi/model.h5" | cut -c1-16)
    cmp "$work/$codec-openmpi/model.h5" "$work/$codec-mpich/model.h5" || { echo "$codec: Open MPI and MPICH differ" >&2; exit 1; }
    echo "$codec: model.h5 of Open MPI and MPICH are the same bytes, sha256 $sum..."
done
