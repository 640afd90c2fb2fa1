#!/bin/bash
# Tests models, event files and data sets of trireme with the original packages: tests/interop/run.sh TRIREME FOLDER. FOLDER keeps the
# packages (about 7 GB). NETWORKS= selects networks, PYTHON= sets a Python 3.11 or later, and PHOTOS= is a folder with train/CLASS/*.jpg and
# val/CLASS/*.jpg for fine-tuning. MXNet and Keras 2 are skipped if the Python is later than 3.11.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/support/script.sh
. "$here/../support/script.sh"
# shellcheck source=tests/support/packages.sh
. "$here/../support/packages.sh"
trireme=$1 folder=$2

packages "$folder/tensorboard" "$here/requirements-tensorboard.txt"
packages "$folder/now" "$here/requirements.txt"
packages "$folder/data" "$here/requirements-data.txt"
packages "$folder/dali" "$here/requirements-dali.txt"
mxnet='' keras2=''
if "${PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info[:2] > (3, 11))'; then
    packages "$folder/mxnet" "$here/requirements-mxnet.txt"
    packages "$folder/keras2" "$here/requirements-keras2.txt"
    mxnet=$folder/mxnet/bin/python keras2=$folder/keras2/bin/python
else
    skip 'interop: MXNet' 'with MXNet: its NumPy needs Python 3.11 or earlier'
    skip 'interop: Keras 2' 'in Keras 2: its TensorFlow needs Python 3.11 or earlier'
fi
[ -n "${PHOTOS:-}" ] || skip 'interop: fine-tuning' 'fine-tuning on photos: PHOTOS names no folder'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$here"
export PYTHONDONTWRITEBYTECODE=1 KERAS_BACKEND=torch OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
"$folder/tensorboard/bin/python" tensorboard_check.py "$trireme" "$work"
"$folder/data/bin/python" data.py "$trireme" "$work" ${mxnet:+"$mxnet"}
"$folder/dali/bin/python" dali.py "$trireme" "$work"
"$folder/now/bin/python" check.py "$trireme" "$work" ${keras2:+"$keras2"}
"$folder/now/bin/python" keras_in.py "$trireme" "$work"
"$folder/now/bin/python" weights_in.py "$trireme" "$work" ${PHOTOS:+"$PHOTOS"}
