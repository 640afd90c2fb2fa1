#!/usr/bin/env bash
# Makes target/trireme-VERSION-ARCH.tar.xz: trireme for any Linux with glibc 2.31 or later (2.34 for aarch64), for Open MPI and MPICH. It
# has the libraries that trireme needs, an MPI for machines without MPI, man pages, completions, job scripts and recipes. Needs no root,
# except that the first cross build registers an emulator with the kernel.
#
#   ARCH=aarch64 packaging/pack.sh      # or: make pack [ARCH=aarch64]
set -euo pipefail
# shellcheck source=packaging/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$ROOT"

needs objdump binutils
needs xz xz-utils
needs pip3 python3-pip
needs_room "$PARTS" 3000
[ -n "$CROSS" ] || [ -x "$TARGET/release/trireme" ] || fail 'no target/release/trireme; run: make build'

# Not called SYSROOT, because the crate pkg-config would then assume another system and recompile everything that needs HDF5.
OLD_SYSTEM=$PARTS/$ARCH-bullseye
[ -d "$OLD_SYSTEM" ] || debs bullseye "$OLD_SYSTEM" libc6 libc6-dev libgcc-s1 libgomp1 libstdc++6
lib=$OLD_SYSTEM/usr/lib/$TRIPLE
if [ "$ARCH" = x86_64 ]; then
    DNNL=$(wheel onednn-cpu-gomp)/lib libstdcxx=$lib
else
    # Intel has no oneDNN for ARM on PyPI, so the archive has Debian's, which needs a newer libstdc++
    [ -d "$PARTS/$ARCH-bookworm" ] || debs bookworm "$PARTS/$ARCH-bookworm" libdnnl2 libstdc++6
    DNNL=$PARTS/$ARCH-bookworm/usr/lib/$TRIPLE libstdcxx=$DNNL
fi
own=$(wheel mpich)
HERE=${CROSS:+$TARGET/$ARCH/root}/usr/lib/$TRIPLE
export OLD_SYSTEM DNNL HERE TRIPLE CROSS
# cargo's folder of a cross build, below the build folder
target=${CROSS:+$ARCH-unknown-linux-gnu}

name=$(archive_name)
work=$(mktemp -d "$PARTS/new-XXXXXX")
trap 'rm -rf "$work"' EXIT
there=$work/$name

# program FAMILY LIBRARY MPICC: links trireme for the older C library. Cargo recompiles only src/main.rs.
program() {
    local to=$there/libexec/trireme/$1/trireme
    for_arch env ${3:+MPICC="$3"} cargo rustc --quiet --release --locked ${target:+--target "$target"} --bin trireme -- \
        -C linker="$ROOT/packaging/link.sh" -C linker-flavor=gcc
    install -D "$CARGO_TARGET_DIR/$target/release/trireme" "$to"
    "${CROSS}strip" "$to"
    readelf -d "$to" | grep -q "NEEDED.*\[$2\]" || fail "$1: expected a program linked with $2, but it was linked with another MPI"
}

# MPICH has its own build folder, because the mpi crate does not notice another mpicc. Code without MPI is compiled only once.
other_folder() {
    [ ! -d "$PARTS/$ARCH-mpich-build" ] || return 0
    mkdir -p "$work/build"
    (cd "$TARGET" && tar --exclude incremental --exclude '*trireme*' --exclude '*loaders*' --exclude '*data_tools*' -cf - release \
        ${target:+"$target/release"}) | tar -C "$work/build" -xf -
    CARGO_TARGET_DIR=$work/build cargo clean --quiet --release --locked ${target:+--target "$target"} -p mpi-sys -p mpi -p comm
    mv "$work/build" "$PARTS/$ARCH-mpich-build"
}

CARGO_TARGET_DIR=$TARGET program openmpi libmpi.so.40
# restore the program for this machine's own libraries
CARGO_TARGET_DIR=$TARGET for_arch cargo build --quiet --release --locked ${target:+--target "$target"}
other_folder
MPICH_CC=${CROSS:+$TRIPLE-gcc} CARGO_TARGET_DIR=$PARTS/$ARCH-mpich-build program mpich libmpi.so.12 "$own/bin/mpicc"

for_arch build/install.sh install "$TARGET/$target/release/trireme" "$there" >/dev/null
install packaging/trireme.sh "$there/bin/trireme"

mkdir -p "$there"/lib/{debian,gcc} "$there/mpi/bin"
cp -L "$DNNL/libdnnl.so.2" "$lib/libgomp.so.1" "$there/lib/"
cp -L "$libstdcxx/libstdc++.so.6" "$OLD_SYSTEM/lib/$TRIPLE/libgcc_s.so.1" "$there/lib/gcc/"
# Debian 11 and 12 name MPICH's library libmpich.so.12
ln -s "/usr/lib/$TRIPLE/libmpich.so.12" "$there/lib/debian/libmpi.so.12"
cp "$own"/bin/{mpirun,hydra_pmi_proxy} "$there/mpi/bin/"
ln -s mpirun "$there/mpi/bin/mpiexec"
cp -r "$own/lib" "$there/mpi/lib"
rm "$there/mpi/lib/libmpi.so"
"${CROSS}strip" --strip-unneeded "$there/lib/libdnnl.so.2" "$there/lib/gcc/libstdc++.so.6"

# a system with an old glibc and no libstdc++ is so rare that the one for ARM may need a newer glibc
mapfile -t files < <(find "$there/lib" "$there/libexec" "$there/mpi" -type f ! -path "*aarch64/lib/gcc/libstdc++*")
newest=$(newest_glibc "${files[@]}")
[ "$(printf '%s\n' "GLIBC_$OLD_GLIBC" "$newest" | sort -V | tail -n 1)" = "GLIBC_$OLD_GLIBC" ] ||
    fail "a file needs $newest, but the oldest supported system has $OLD_GLIBC"

XZ_OPT=-T0 tar -C "$work" --owner=0 --group=0 --numeric-owner -cJf "$TARGET/$name.tar.xz" "$name"
echo "$TARGET/$name.tar.xz: $(($(stat -c %s "$TARGET/$name.tar.xz") / 1000000)) MB, $(du -sm "$there" | cut -f 1) MB unpacked; glibc" \
    "up to ${newest#GLIBC_}"
