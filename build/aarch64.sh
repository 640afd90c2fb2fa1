#!/usr/bin/env bash
# Runs a command in which cargo builds for aarch64 (64-bit ARM) on an x86-64 machine, and in which the programs of aarch64 run, emulated by
# qemu. Debian's packages for arm64 are unpacked into a folder, which is the sysroot of the cross compiler.
#
#   build/aarch64.sh FOLDER cargo build --release --target aarch64-unknown-linux-gnu
#
# FOLDER receives the sysroot. Needs the Debian packages mmdebstrap, qemu-user-static and g++-aarch64-linux-gnu. Emulation needs root, once:
# it registers qemu with the kernel.
set -euo pipefail

folder=$(mkdir -p "$1" && cd "$1" && pwd)
shift
root=$folder/root
libraries=$root/usr/lib/aarch64-linux-gnu
packages=libopenmpi-dev,openmpi-bin,libhdf5-dev,libdnnl-dev,libc6-dev,libstdc++-12-dev,zlib1g-dev
target=aarch64-unknown-linux-gnu

if [ ! -f "$folder/complete" ]; then
	echo "unpacking Debian's packages for arm64 into $root" >&2
	rm -rf "$root"
	mmdebstrap --quiet --variant=extract --architectures=arm64 --include="$packages" bookworm "$root" "${MIRROR:-http://deb.debian.org/debian}"
	touch "$folder/complete"
fi
# qemu opens a path in the sysroot if it exists there. Programs must see this machine's files.
rm -rf "${root:?}/tmp" "${root:?}/root" "${root:?}/home"
# The hdf5 crate uses this machine's headers, so both HDF5s must have the same version. It also passes the folder of this machine's library to
# the linker, which skips libraries of x86-64 and then finds this link.
ln -sf libhdf5_serial.so "$libraries/libhdf5.so"
if ! rustup target list --installed 2>/dev/null | grep -qx "$target"; then
	rustup target add "$target" || { echo "no Rust library for $target: install it with rustup" >&2; exit 1; }
fi

# The mpi crate asks mpicc for its flags and compiles with it.
mkdir -p "$folder/bin"
cat >"$folder/bin/mpicc" <<END
#!/bin/sh
flags='-I$libraries/openmpi/include -I$libraries/openmpi/include/openmpi -L$libraries -L$libraries/openmpi/lib -lmpi'
[ "\$1" != -show ] || { echo "aarch64-linux-gnu-gcc \$flags"; exit; }
exec aarch64-linux-gnu-gcc --sysroot=$root "\$@" \$flags
END
chmod +x "$folder/bin/mpicc"

# The kernel starts programs of aarch64 with qemu, also those that mpirun starts.
binfmt=/proc/sys/fs/binfmt_misc
if [ ! -e $binfmt/qemu-aarch64 ] && [ "$(id -u)" = 0 ]; then
	[ -e $binfmt/register ] || mount -t binfmt_misc binfmt_misc $binfmt
	magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
	mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
	printf '%s' ":qemu-aarch64:M::$magic:$mask:$(command -v qemu-aarch64-static):F" >$binfmt/register
fi

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C link-arg=--sysroot=$root -C link-arg=-L$libraries"
export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc CXX_aarch64_unknown_linux_gnu=aarch64-linux-gnu-g++
export MPICC="$folder/bin/mpicc" PKG_CONFIG_ALLOW_CROSS=1 PKG_CONFIG_SYSROOT_DIR="$root" PKG_CONFIG_LIBDIR="$libraries/pkgconfig"
export BINDGEN_EXTRA_CLANG_ARGS_aarch64_unknown_linux_gnu="--sysroot=$root"
export QEMU_LD_PREFIX="$root"
exec "$@"
