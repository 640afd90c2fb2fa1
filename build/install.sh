#!/bin/bash
# Installs the build into a system, and removes it again: `make install PREFIX=~/.local`, `make uninstall`.
#
#   build/install.sh install BIN PREFIX        # bin, man pages, completions; job scripts and recipes in PREFIX/share/trireme
#   build/install.sh uninstall PREFIX
#
# With the environment variable DESTDIR, files are copied to DESTDIR/PREFIX, for packagers. PREFIX/share/trireme/installed lists the
# installed files. An edited env.sh is never replaced or removed.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# put MODE FILE PATH: copies the file to PATH below PREFIX and adds it to the list, after the folders that did not exist, as `FOLDER/`.
put() {
    local folder=$3 new=()
    while folder=$(dirname "$folder") && [ "$folder" != . ] && [ ! -e "$to/$folder" ]; do new=("$folder/" "${new[@]}"); done
    [ ${#new[@]} = 0 ] || printf '%s\n' "${new[@]}" >>"$list"
    install -D -m "$1" "$2" "$to/$3"
    echo "$3" >>"$list"
}

put_env() {
    local path=share/trireme/jobscripts/env.sh before=$to/$ours
    [ -e "$before" ] || before=$root/jobscripts/env.sh
    if [ -e "$to/$path" ] && ! cmp -s "$before" "$to/$path"; then
        put 644 "$root/jobscripts/env.sh" "$path.new"
        echo "$path" >>"$list"
        echo "kept your $PREFIX/$path; the new version of the file is $path.new" >&2
    else
        put 644 "$root/jobscripts/env.sh" "$path"
    fi
    # used to recognize an edited file
    put 644 "$root/jobscripts/env.sh" "$ours"
}

put_all() {
    local file page
    [ -x "$bin" ] || { echo "no program $bin; run first: make build, or make build-bundled" >&2; exit 1; }
    put 755 "$bin" bin/trireme
    for file in "$root"/jobscripts/*.sh "$root"/jobscripts/*.sbatch; do
        case $file in
        */env.sh) put_env ;;
        */job.sh | */threads.sh) put 644 "$file" "share/trireme/jobscripts/${file##*/}" ;;
        *) put 755 "$file" "share/trireme/jobscripts/${file##*/}" ;;
        esac
    done
    for file in "$root"/recipes/*; do put 644 "$file" "share/trireme/recipes/${file##*/}"; done
    put 644 "$root/LICENSE" share/trireme/LICENSE
    "$bin" manual >"$work/names"
    while read -r page; do
        "$bin" manual "$page" >"$work/page"
        put 644 "$work/page" "share/$page"
    done <"$work/names"
}

install_all() {
    list=$work/list
    # the folders of an earlier version
    { grep '/$' "$to/$installed" 2>/dev/null || true; } >"$list"
    put_all
    remove_old
    install -D -m 644 "$list" "$to/$installed"
    echo "installed $(grep -vc '/$' "$list") files in $PREFIX"
    case :$PATH: in
    *":$PREFIX/bin:"*) ;;
    *) echo "to find the program: export PATH=$PREFIX/bin:\$PATH" ;;
    esac
}

# Removes files of an earlier version that this version does not install.
remove_old() {
    local path
    [ -e "$to/$installed" ] || return 0
    grep -v '/$' "$to/$installed" | while read -r path; do
        grep -qxF "$path" "$list" || rm -f "$to/$path"
    done
}

uninstall_all() {
    local path env=share/trireme/jobscripts/env.sh
    [ -e "$to/$installed" ] || { echo "nothing of trireme is installed in $PREFIX" >&2; exit 1; }
    cp "$to/$installed" "$work/list"
    if ! cmp -s "$to/$env" "$to/$ours"; then
        echo "kept your $PREFIX/$env" >&2
        sed -i "\\|^$env\$|d" "$work/list"
    fi
    echo "$installed" >>"$work/list"
    grep -v '/$' "$work/list" | while read -r path; do rm -f "$to/$path"; done
    # the folders that the installation has created, if they are empty, deepest first
    { grep '/$' "$work/list" || true; } | sort -r | while read -r path; do rmdir "$to/$path" 2>/dev/null || true; done
    echo "removed $(grep -vc '/$' "$work/list") files from $PREFIX"
}

installed=share/trireme/installed ours=share/trireme/jobscripts/env.sh.orig
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
case ${1:-} in
install) [ $# = 3 ] || exit 2; bin=$2 PREFIX=$3 ;;
uninstall) [ $# = 2 ] || exit 2; PREFIX=$2 ;;
*) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
case $PREFIX in
/*) ;;
*) echo "PREFIX=$PREFIX is not an absolute path" >&2; exit 2 ;;
esac
to=${DESTDIR:-}$PREFIX
"$1_all"
