#!/usr/bin/env bash
# The linker that pack.sh passes to rustc. It links against the C library in OLD_SYSTEM, which is older than this machine's, and the oneDNN
# in DNNL. It links HDF5 statically, so that the archive does not need the two dozen libraries of libhdf5 (curl, TLS, Kerberos). HERE is the
# folder of libhdf5.a: this machine's libraries, or those of the cross compiler.
set -euo pipefail

args=()
skip=''
for arg in "$@"; do
    if [ -n "$skip" ]; then
        skip=''
        case $arg in
        # leave out the folders with this machine's C library
        /usr/lib | /lib | "$HERE" | /lib/"$TRIPLE") continue ;;
        *) args+=(-L) ;;
        esac
    fi
    case $arg in
    -L) skip=yes ;;
    # the system of the cross compiler
    --sysroot=* | "-L$HERE") ;;
    -lhdf5*) args+=(-l:libhdf5_serial.a -l:libsz.a -l:libaec.a -l:libz.a) ;;
    -lgomp) args+=(-l:libgomp.so.1) ;;
    *) args+=("$arg") ;;
    esac
done
lib=$OLD_SYSTEM/usr/lib/$TRIPLE
# This machine's libraries need a newer glibc. At run time the program uses other copies of these libraries, so unresolved symbols are
# allowed.
exec "${CROSS:+$TRIPLE-g}cc" --sysroot="$OLD_SYSTEM" -B"$lib" -L"$DNNL" -L"$lib" -L"$OLD_SYSTEM/lib/$TRIPLE" "${args[@]}" \
    -Wl,--allow-shlib-undefined -Wl,--enable-new-dtags -Wl,-rpath,"\$ORIGIN/../../../lib" -L"$HERE"
