#!/usr/bin/env bash
# The part of test-pack.sh that runs on the minimal system, with the archive unpacked in the home folder of root.
set -euo pipefail
cd /root/trireme-gpu
. /etc/os-release
echo "$PRETTY_NAME, glibc $(ldd --version | head -n 1 | grep -oE '[0-9.]+$')"
for program in cargo mpirun.openmpi gcc; do
    ! command -v $program || { echo "this system is not minimal: it has $program" >&2; exit 1; }
done
# shellcheck source=/dev/null
. ./env.sh
[ -z "${LD_LIBRARY_PATH:-}" ] || { echo "env.sh has set LD_LIBRARY_PATH=$LD_LIBRARY_PATH" >&2; exit 1; }

step() { echo "== $1"; }

step 'every binary finds its libraries, none of them twice'
for binary in trireme tests/gpu/bin/* ompi/bin/orted; do
    found=$(ldd "$binary")
    ! grep 'not found' <<<"$found" || { echo "$binary" >&2; exit 1; }
done
for library in libc libm libdl libpthread librt libresolv; do
    [ ! -e "$(compgen -G "lib/$library.so*" | head -n 1)" ] || { echo "a library of glibc was packed: $library" >&2; exit 1; }
done

step 'the binary that the tests start'
started=$(grep -oE "'[^']*/debug/trireme'" env.sh | head -n 1 | tr -d "'")
"$started" --version

step 'python3 beside it'
python3 -c "import ssl; print(ssl.OPENSSL_VERSION)"

step doctor
./trireme doctor | tee /tmp/doctor
grep -q 'driver (libcuda) was not found' /tmp/doctor

step 'golden numbers, on the processor'
tests/gpu/bin/numerics golden:: --skip on_the_gpu --test-threads=2

step 'two ranks train'
python3 tests/gpu/noise.py cifar10 /tmp/noise 200 20
./trireme data convert cifar10 /tmp/noise /tmp/data
mpirun -n 2 --bind-to none --oversubscribe ./trireme train recipes/cifar10-resnet20.toml --data /tmp/data --out /tmp/run --device cpu \
    --max-steps 3 --set batch=8 --set workers=2 --threads 1
grep -q '"event":"end"' /tmp/run/metrics.jsonl
./trireme eval /tmp/run/model.h5 --data /tmp/data --json

step 'the scripts for a machine with a GPU say that there is none, and go on'
OUT=/tmp/check MOST=20 TOTAL=120 tests/gpu/check.sh
grep -q 'no nvidia-smi here' /tmp/check/check.log
# the last stage
grep -q '"stage":"timeline"' /tmp/check/check.jsonl
echo "the archive works on $PRETTY_NAME"
