#!/bin/bash
# Compares trireme with PyTorch: tests/peers/run.sh TRIREME FOLDER [ARGUMENTS of the script]. FOLDER keeps the packages. SCRIPT= is bench.py
# (training on CPUs, the default) or bands.py (loaders). PYTHON= sets the Python to use, PEER= a Python that already has the packages.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/support/packages.sh
. "$here/../support/packages.sh"
trireme=$1 folder=$2
shift 2
python=${PEER:-$folder/venv/bin/python}
# the packages for CPUs are a tenth of the size, if their index can be reached
[ -n "${PEER:-}" ] ||
    packages "$folder/venv" "$here/requirements.txt" --extra-index-url https://download.pytorch.org/whl/cpu ||
    packages "$folder/venv" "$here/requirements.txt"
PYTHONDONTWRITEBYTECODE=1 exec "$python" "$here/${SCRIPT:-bench.py}" "$trireme" "$@"
