# shellcheck shell=bash
# To be sourced by scripts of tests that need Python packages from PyPI.

# packages FOLDER LIST [OPTIONS OF pip]: installs the packages of LIST into a new virtual environment, unless FOLDER already has this list.
# PYTHON= sets a Python.
packages() {
    local folder=$1 list=$2
    shift 2
    ! cmp -s "$list" "$folder/list" || return 0
    echo "installing $list into $folder" >&2
    rm -rf "${folder:?}" &&
        "${PYTHON:-python3}" -m venv "$folder" &&
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check -r "$list" "$@" &&
        cp "$list" "$folder/list"
}
