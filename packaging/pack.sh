#!/usr/bin/env bash
# Makes target/trireme-VERSION-x86_64.tar.xz: trireme for any Linux with glibc 2.31 or later, for Open MPI and MPICH. It has the libraries
# that trireme needs, an MPI for machines without MPI, man pages, completions, job scripts and recipes. Needs no root.
#
#   packaging/pack.sh        # or: make pack
set -euo pipefail
# shellcheck source=packaging/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$ROOT"

GLIBC=2.31 RELEASE=bullseye
needs objdump binutils
needs xz xz-utils
needs pip3 python3-pip
needs_room "$PARTS" 3000
[ -x "$TARGET/release/trireme" ] || fail 'no target/release/trireme; run: make build'

# Not called SYSROOT, because the crate pkg-config would then assume another system and recompile everything that needs HDF5.
OLD_SYSTEM=$PARTS/$RELEASE
[ -d "$OLD_SYSTEM" ] || debs "$RELEASE" "$OLD_SYSTEM" libc6 libc6-dev libgcc-s1 libgomp1 libstdc++6
DNNL=$(wheel onednn-cpu-gomp)/lib
own=$(wheel mpich)
export OLD_SYSTEM DNNL

name=$(archive_name)
work=$(mktemp -d "$PARTS/new-XXXXXX")
trap 'rm -rf "$work"' EXIT
there=$work/$name

# program FAMILY LIBRARY: links trireme for the older C library. Cargo recompiles only src/main.rs.
program() {
    local to=$there/libexec/trireme/$1/trireme
    cargo rustc --quiet --release --locked --bin trireme -- -C linker="$ROOT/packaging/link.sh" -C linker-flavor=gcc
    install -D "$CARGO_TARGET_DIR/release/trireme" "$to"
    strip "$to"
    readelf -d "$to" | grep -q "NEEDED.*\[$2\]" || fail "$1: expected a program linked with $2, but it was linked with another MPI"
}

# MPICH has its own build folder, because the mpi crate does not notice another mpicc. Code without MPI is compiled only once.
other_folder() {
    [ ! -d "$PARTS/mpich-build" ] || return 0
    mkdir -p "$work/build/release"
    tar -C "$TARGET/release" --exclude incremental --exclude '*trireme*' --exclude '*loaders*' --exclude '*data_tools*' -cf - . |
        tar -C "$work/build/release" -xf -
    CARGO_TARGET_DIR=$work/build cargo clean --quiet --release --locked -p mpi-sys -p mpi -p comm
    mv "$work/build" "$PARTS/mpich-build"
}

CARGO_TARGET_DIR=$TARGET program openmpi libmpi.so.40
# restore this machine's own program in target/release
CARGO_TARGET_DIR=$TARGET cargo build --quiet --release --locked
other_folder
MPICC=$own/bin/mpicc CARGO_TARGET_DIR=$PARTS/mpich-build program mpich libmpi.so.12

build/install.sh install "$TARGET/release/trireme" "$there" >/dev/null
install packaging/trireme.sh "$there/bin/trireme"

mkdir -p "$there"/lib/{debian,gcc} "$there/mpi/bin"
lib=$OLD_SYSTEM/usr/lib/x86_64-linux-gnu
cp -L "$DNNL/libdnnl.so.2" "$lib/libgomp.so.1" "$there/lib/"
cp -L "$lib/libstdc++.so.6" "$OLD_SYSTEM/lib/x86_64-linux-gnu/libgcc_s.so.1" "$there/lib/gcc/"
# Debian 11 and 12 name MPICH's library libmpich.so.12
ln -s /usr/lib/x86_64-linux-gnu/libmpich.so.12 "$there/lib/debian/libmpi.so.12"
cp "$own"/bin/{mpirun,hydra_pmi_proxy} "$there/mpi/bin/"
ln -s mpirun "$there/mpi/bin/mpiexec"
cp -r "$own/lib" "$there/mpi/lib"
rm "$there/mpi/lib/libmpi.so"
strip --strip-unneeded "$there/lib/libdnnl.so.2" "$there/lib/gcc/libstdc++.so.6"

mapfile -t files < <(find "$there/lib" "$there/libexec" "$there/mpi" -type f)
newest=$(newest_glibc "${files[@]}")
[ "$(printf '%s\n' "GLIBC_$GLIBC" "$newest" | sort -V | tail -n 1)" = "GLIBC_$GLIBC" ] ||
    fail "a file needs $newest, but the oldest supported system has $GLIBC"

XZ_OPT=-T0 tar -C "$work" --owner=0 --group=0 --numeric-owner -cJf "$TARGET/$name.tar.xz" "$name"
echo "$TARGET/$name.tar.xz: $(($(stat -c %s "$TARGET/$name.tar.xz") / 1000000)) MB, $(du -sm "$there" | cut -f 1) MB unpacked; glibc" \
    "up to ${newest#GLIBC_}"
