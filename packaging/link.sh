#!/usr/bin/env bash
# The linker that pack.sh gives to rustc: links for the C library in OLD_SYSTEM, which is older than this machine's, with the oneDNN in DNNL
# and with HDF5 inside, so that libhdf5's two dozen libraries (curl, TLS, Kerberos) need not travel.
set -euo pipefail

args=()
skip=''
for arg in "$@"; do
    if [ -n "$skip" ]; then
        skip=''
        case $arg in
        # this machine's C library lies there
        /usr/lib | /lib | /usr/lib/x86_64-linux-gnu | /lib/x86_64-linux-gnu) continue ;;
        *) args+=(-L) ;;
        esac
    fi
    case $arg in
    -L) skip=yes ;;
    -lhdf5*) args+=(-l:libhdf5_serial.a -l:libsz.a -l:libaec.a -l:libz.a) ;;
    -lgomp) args+=(-l:libgomp.so.1) ;;
    *) args+=("$arg") ;;
    esac
done
lib=$OLD_SYSTEM/usr/lib/x86_64-linux-gnu
# Libraries of this machine that the program is linked with ask for a newer glibc; they are not those that it will run with.
exec cc --sysroot="$OLD_SYSTEM" -B"$lib" -L"$DNNL" -L"$lib" -L"$OLD_SYSTEM/lib/x86_64-linux-gnu" "${args[@]}" \
    -Wl,--allow-shlib-undefined -Wl,--enable-new-dtags -Wl,-rpath,"\$ORIGIN/../../../lib" -L/usr/lib/x86_64-linux-gnu
