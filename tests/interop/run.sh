#!/bin/bash
# Tests models, event files and data sets of trireme with the original packages: tests/interop/run.sh TRIREME FOLDER. FOLDER keeps the
# packages (about 7 GB). NETWORKS= selects networks, PYTHON= sets a Python 3.9 to 3.11, and PHOTOS= is a folder with train/CLASS/*.jpg and
# val/CLASS/*.jpg for fine-tuning.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/support/skip.sh
. "$here/../support/skip.sh"
trireme=$1 folder=$2
python=${PYTHON:-python3}

# Installs the packages of a list into a folder. Installs them again if the list has changed.
packages() {
    cmp -s "$here/$2" "$folder/$1/list" && return
    echo "installing $2 into $folder/$1" >&2
    rm -rf "${folder:?}/$1"
    "$python" -m venv "$folder/$1"
    "$folder/$1/bin/python" -m pip install --quiet --disable-pip-version-check -r "$here/$2"
    cp "$here/$2" "$folder/$1/list"
}

mkdir -p "$folder"
packages tensorboard requirements-tensorboard.txt
packages now requirements.txt
packages data requirements-data.txt
packages dali requirements-dali.txt
mxnet=''
if "$python" -c 'import sys; sys.exit(not (3, 8) <= sys.version_info[:2] <= (3, 11))'; then
    packages mxnet requirements-mxnet.txt
    mxnet=$folder/mxnet/bin/python
else
    skip 'interop: MXNet' 'with MXNet: its NumPy needs Python 3.8 to 3.11'
fi
keras2=''
if "$python" -c 'import sys; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 11))'; then
    packages keras2 requirements-keras2.txt
    keras2=$folder/keras2/bin/python
else
    skip 'interop: Keras 2' 'in Keras 2: its TensorFlow needs Python 3.9 to 3.11'
fi
[ -n "${PHOTOS:-}" ] || skip 'interop: fine-tuning' 'fine-tuning on photos: PHOTOS names no folder'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$here"
export PYTHONDONTWRITEBYTECODE=1
"$folder/tensorboard/bin/python" tensorboard_check.py "$trireme" "$work"
"$folder/data/bin/python" data.py "$trireme" "$work" ${mxnet:+"$mxnet"}
"$folder/dali/bin/python" dali.py "$trireme" "$work"
"$folder/now/bin/python" check.py "$trireme" "$work" ${keras2:+"$keras2"}
"$folder/now/bin/python" keras_in.py "$trireme" "$work"
"$folder/now/bin/python" weights_in.py "$trireme" "$work" ${PHOTOS:+"$PHOTOS"}
