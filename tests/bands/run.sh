#!/bin/bash
# Compares the pixels of converted images with other programs: tests/bands/run.sh TRIREME FOLDER [FILES...]. FOLDER keeps the packages and
# Pillow's source distribution. Its tests include about a hundred TIFF files. FILES are folders with more. PYTHON= sets a Python 3.11 or
# later.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/support/packages.sh
. "$here/../support/packages.sh"
trireme=$1 folder=$2
shift 2
packages "$folder/packages" "$here/requirements.txt"
pillow=$folder/Pillow-10.1.0
if [ ! -d "$pillow" ]; then
    # This version needs only setuptools to build. It is only unpacked.
    "$folder/packages/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --no-build-isolation \
        --no-binary pillow -d "$folder" pillow==10.1.0
    tar -xzf "$pillow.tar.gz" -C "$folder"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PYTHONDONTWRITEBYTECODE=1 "$folder/packages/bin/python" "$here/parity.py" "$trireme" "$work" "$pillow" "$@"
