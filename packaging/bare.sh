# A bare Debian beside this one, for packing into and for trying what was packed. To be sourced, after common.sh; root only.
# shellcheck shell=bash
# shellcheck disable=SC2154 # ROOT, TARGET and MIRROR are common.sh's

[ "$(id -u)" = 0 ] || fail 'a foreign system needs root (debootstrap, chroot, mount)'
needs debootstrap debootstrap
BARE_MB=1500

# bare_new RELEASE FOLDER: unpacks one into FOLDER. It is made by debootstrap once and kept as target/bare-RELEASE.tar.
bare_new() {
    local release=$1 folder=$2 kept=$TARGET/bare-$1.tar
    needs_room "$TARGET" "$BARE_MB"
    needs_room "$folder" "$BARE_MB"
    # a temporary folder is its owner's alone, and so would be the root
    chmod 755 "$folder"
    if [ -f "$kept" ]; then
        tar -C "$folder" --no-overwrite-dir -xf "$kept"
        return
    fi
    debootstrap --variant=minbase --include=python3-minimal,libpython3-stdlib,ca-certificates "$release" "$folder" "$MIRROR" \
        >"$TARGET/debootstrap.log" || { tail -n 20 "$TARGET/debootstrap.log" >&2; exit 1; }
    tar -C "$folder" -cf "$kept.new" . && mv "$kept.new" "$kept"
}

# bare_mount FOLDER: what programs expect from a running system: its own name, too.
bare_mount() {
    echo "127.0.0.1 localhost $(hostname)" >"$1/etc/hosts"
    mount -t proc proc "$1/proc"
    mount -t sysfs -o ro sysfs "$1/sys"
    mkdir -p "$1/dev/shm"
    mount -t tmpfs -o size=512m tmpfs "$1/dev/shm"
}

# bare_unmount FOLDER: what a program that was stopped still holds goes later.
bare_unmount() {
    umount -l "$1/proc" "$1/sys" "$1/dev/shm" 2>/dev/null || true
}

# bare_leave FOLDER: takes it away.
bare_leave() {
    bare_unmount "$1"
    rm -rf --one-file-system "$1"
}

# bare_apt FOLDER KEPT: apt works in it, and need not fetch again what bare_keep has put into KEPT.
bare_apt() {
    cp /etc/resolv.conf "$1/etc/resolv.conf"
    rm -f "$1/etc/apt/apt.conf.d/docker-clean"
    mkdir -p "$2"
    find "$2" -name '*.deb' -exec cp -t "$1/var/cache/apt/archives" {} +
}

# bare_keep FOLDER KEPT
bare_keep() { find "$1/var/cache/apt/archives" -maxdepth 1 -name '*.deb' -exec cp -u -t "$2" {} +; }

# bare_run FOLDER COMMAND...: in it, with no variable of this system, for LIMIT seconds at most.
bare_run() {
    local folder=$1
    shift
    env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb timeout -k 10 "${LIMIT:-900}" chroot "$folder" "$@"
}
