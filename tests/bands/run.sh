#!/bin/bash
# Compares the pixels of converted images with other programs: tests/bands/run.sh TRIREME FOLDER [FILES...]. FOLDER keeps the packages and
# Pillow's source distribution. Its tests include about a hundred TIFF files. FILES are folders with more. PYTHON= sets a Python.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
trireme=$1 folder=$2
shift 2
if ! cmp -s "$here/requirements.txt" "$folder/list"; then
    rm -rf "${folder:?}/packages" "${folder:?}"/[Pp]illow-10.1.0*
    "${PYTHON:-python3}" -m venv "$folder/packages"
    "$folder/packages/bin/python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt" setuptools wheel
    # This version needs only setuptools to build. It is only unpacked.
    "$folder/packages/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --no-build-isolation \
        --no-binary pillow -d "$folder" pillow==10.1.0
    tar -xzf "$folder"/[Pp]illow-10.1.0.tar.gz -C "$folder"
    cp "$here/requirements.txt" "$folder/list"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PYTHONDONTWRITEBYTECODE=1 "$folder/packages/bin/python" "$here/parity.py" "$trireme" "$work" "$folder"/[Pp]illow-10.1.0 "$@"
