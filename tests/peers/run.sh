#!/bin/bash
# Compares trireme with PyTorch: tests/peers/run.sh TRIREME FOLDER [ARGUMENTS of the script]. FOLDER keeps the packages. SCRIPT= is bench.py
# (training on CPUs, the default) or bands.py (loaders). PYTHON= sets the Python to use, PEER= a Python that already has the packages.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
trireme=$1 folder=$2
shift 2
python=${PEER:-$folder/venv/bin/python}
if [ -z "${PEER:-}" ] && ! cmp -s "$here/requirements.txt" "$folder/list"; then
    echo "installing PyTorch into $folder" >&2
    rm -rf "${folder:?}/venv"
    "${PYTHON:-python3}" -m venv "$folder/venv"
    # the packages for CPUs are a tenth of the size, if their index can be reached
    "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt" \
        --extra-index-url https://download.pytorch.org/whl/cpu ||
        "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt"
    cp "$here/requirements.txt" "$folder/list"
fi
PYTHONDONTWRITEBYTECODE=1 exec "$python" "$here/${SCRIPT:-bench.py}" "$trireme" "$@"
