#!/usr/bin/env bash
# Builds trireme and its tests for aarch64 (64-bit ARM) and runs them emulated by qemu: `make test-aarch64`. Needs root, because the kernel
# must start programs of aarch64 with qemu.
#
#   tests/aarch64/run.sh FOLDER        # FOLDER: for Debian's arm64 packages and the build
#
# Emulation is about ten times as slow as a real processor, so only the tests run that depend on the processor or on foreign libraries.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
folder=$1
# shellcheck source=tests/support/script.sh
. "$root/tests/support/script.sh"
# shellcheck source=tests/support/small_data.sh
. "$root/tests/support/small_data.sh"
if [ "$(id -u)" != 0 ]; then
    skip aarch64 'it needs root to register qemu with the kernel'
    exit 0
fi
cd "$root"
mkdir -p "$folder"
folder=$(realpath "$folder")
target=aarch64-unknown-linux-gnu
# few units need the least processor time
export CARGO_TARGET_DIR=$folder/build CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_CODEGEN_UNITS=4
# the emulated GPU needs x86-64
export TRIREME_TEST_CPU_ONLY=1 TRIREME_TEST_SLOWER=20
# two emulated processes cannot read each other's memory
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none

arm() { build/aarch64.sh "$folder" "$@"; }
# Names the same packages every time. With different packages, cargo would select different features and compile everything again.
tests() {
    arm cargo test --locked --quiet --target "$target" -p trireme -p base -p comm -p formats -p loaders -p data-tools -p backend "$@"
}

tests --no-run --lib --test comm --test loaders --test data_tools --test numerics --test runs
trireme=$folder/build/$target/debug/trireme
readelf -h "$trireme" | grep -q AArch64

work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-aarch64-XXXXXX")
trap 'rm -rf "$work"' EXIT
echo '# doctor'
arm "$trireme" doctor
echo '# 50 steps of the demo on 2 ranks'
mkdir "$work/images"
cut_source "$work/images" 2000
arm "$trireme" data convert fashion-mnist "$work/images" "$work/data" --shards 4
arm mpirun -n 2 "$trireme" train recipes/fashion-mnist-lenet.toml --data "$work/data" --out "$work/run" --max-steps 50 \
    --threads 1 --set batch=8
arm "$trireme" eval "$work/run"
arm "$trireme" export "$work/run/model.h5" --to onnx -o "$work/lenet.onnx"
arm "$trireme" export "$work/run/model.h5" --to safetensors -o "$work/lenet.safetensors"
echo '# tests of the crates'
# qemu 7.2 does not have preadv2, which tells what is in the page cache
tests --no-fail-fast --lib -- --skip cuda --skip a_file_in_memory_is_told_from_one_on_disk
# qemu needs address space of its own, which the tests with limited memory do not expect
tests --no-fail-fast --test comm --test loaders --test data_tools -- --skip hostile::
echo '# numbers and gradients on the CPU, laws on 1 to 4 ranks'
tests --no-fail-fast --test numerics -- ops:: gradients:: alike:: optim:: golden::networks golden::the_reference --skip gpu
tests --test runs -- laws::policies laws::error_feedback laws::gradients_of_two laws::without_workers import:: export::
echo 'aarch64: passed'
