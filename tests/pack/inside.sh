#!/usr/bin/env bash
# The part of test.sh that runs on a minimal system, with the archive unpacked in the home folder of root and Fashion-MNIST in
# /fashion-mnist. It runs the program with each available MPI, compares the bits, and checks the messages if program and MPI do not match.
set -euo pipefail
cd /root/trireme
. /etc/os-release
echo "$PRETTY_NAME, glibc $(ldd --version | head -n 1 | grep -oE '[0-9.]+$')"
for program in cargo gcc mpirun; do
    ! command -v $program || { echo "this system is not bare: it has $program" >&2; exit 1; }
done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 DEBIAN_FRONTEND=noninteractive
OPEN_MPI=(--bind-to none --oversubscribe)

# An emulated processor gets less to do.
STEPS=100 MORE=()
if [ -n "${EMULATED:-}" ]; then STEPS=20 MORE=(--set batch=8 --set eval.limit=200); fi

step() { echo "== $1"; }

# train OUT COMMAND...: trains the recipe of the demo on two ranks.
train() {
    local out=/tmp/$1
    shift
    "$@" train share/trireme/recipes/fashion-mnist-lenet.toml --data /tmp/data --out "$out" --threads 1 --max-steps "$STEPS" \
        --set workers=2 "${MORE[@]}" >"$out.log" 2>&1 || { cat "$out.log" >&2; exit 1; }
    grep -q '"ranks":2' "$out/metrics.jsonl" || { cat "$out.log" >&2; exit 1; }
}

# same OUT: checks that its model equals the model of the first run, byte for byte.
same() {
    cmp /tmp/own/model.h5 "/tmp/$1/model.h5"
    echo "model.h5 of $1: the same bytes"
}

# answers TEXT COMMAND...: checks that doctor on two ranks prints TEXT and finds no problem.
answers() {
    local text=$1
    shift
    "$@" doctor >/tmp/doctor 2>&1 || { cat /tmp/doctor >&2; exit 1; }
    for text in "^mpi .*$text" '2 ranks' 'no problem found'; do
        grep -E "$text" /tmp/doctor || { cat /tmp/doctor >&2; exit 1; }
    done
}

# refused TEXT COMMAND...: checks that a single line contains TEXT and that nothing crashes.
refused() {
    local text=$1 code=0
    shift
    timeout 60 "$@" doctor >/tmp/refused 2>&1 || code=$?
    if [ "$code" = 0 ] || [ "$(grep -c "$text" /tmp/refused)" != 1 ] ||
        grep -qiE 'segmentation|signal 11|MPI_Init' /tmp/refused; then
        echo "code $code" >&2
        cat /tmp/refused >&2
        exit 1
    fi
    grep -h "$text" /tmp/refused
}

step 'every file finds its libraries'
for file in libexec/trireme/*/trireme mpi/bin/mpirun mpi/bin/hydra_pmi_proxy; do
    if LD_LIBRARY_PATH=mpi/lib ldd "$file" | grep 'not found' | grep -v 'libmpi.so.40'; then exit 1; fi
done

step 'no MPI: its own'
bin/trireme doctor
bin/trireme data convert fashion-mnist /fashion-mnist /tmp/data --shards 4 >/dev/null
answers 'MPICH Version: *4' mpi/bin/mpirun -n 2 bin/trireme
train own mpi/bin/mpirun -n 2 bin/trireme
scored=/tmp/data
if [ -n "${EMULATED:-}" ]; then
    scored=/tmp/few
    bin/trireme data sample /tmp/data "$scored" --per-class 20 >/dev/null
fi
bin/trireme eval /tmp/own/model.h5 --data "$scored" | head -n 1

step "Debian's Open MPI"
apt-get -qq update
apt-get -qq install -y --no-install-recommends openmpi-bin openssh-client >/tmp/apt.log 2>&1 || { tail /tmp/apt.log >&2; exit 1; }
answers 'Open MPI v' mpirun -n 2 "${OPEN_MPI[@]}" bin/trireme
train openmpi mpirun -n 2 "${OPEN_MPI[@]}" bin/trireme
same openmpi
refused 'built for MPICH' mpirun -n 2 "${OPEN_MPI[@]}" env LD_LIBRARY_PATH=/root/trireme/mpi/lib libexec/trireme/mpich/trireme
refused 'built for Open MPI' mpi/bin/mpirun -n 2 libexec/trireme/openmpi/trireme

step "Debian's MPICH"
apt-get -qq install -y --no-install-recommends mpich >/tmp/apt.log 2>&1 || { tail /tmp/apt.log >&2; exit 1; }
answers 'MPICH Version' mpirun.mpich -n 2 bin/trireme
train mpich mpirun.mpich -n 2 bin/trireme
same mpich
refused 'built for Open MPI' mpirun.mpich -n 2 libexec/trireme/openmpi/trireme
TRIREME_MPI=openmpi refused 'built for Open MPI' mpirun.mpich -n 2 bin/trireme

if [ -d /impi ]; then
    step 'Intel MPI'
    intel=(env PATH="/impi/bin:$PATH" I_MPI_ROOT=/impi FI_PROVIDER_PATH=/impi/lib I_MPI_FABRICS=shm)
    answers 'Intel\(R\) MPI' "${intel[@]}" mpirun -n 2 bin/trireme
    train intel "${intel[@]}" mpirun -n 2 bin/trireme
    same intel
    refused 'built for Open MPI' "${intel[@]}" mpirun -n 2 libexec/trireme/openmpi/trireme
fi
echo "the archive works on $PRETTY_NAME"
