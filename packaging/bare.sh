# Functions that create a minimal Debian in a folder, for packing and for testing packages. Source this file after common.sh. Needs root.
# shellcheck shell=bash
# shellcheck disable=SC2154 # ROOT, TARGET, PARTS and MIRROR are common.sh's

[ "$(id -u)" = 0 ] || fail 'creating another system needs root (debootstrap, chroot, mount)'
needs debootstrap debootstrap
BARE_MB=1500

# bare_new RELEASE FOLDER: unpacks a minimal Debian into FOLDER. debootstrap creates it once. It is kept as target/bare-RELEASE-ARCH.tar.
bare_new() {
    local release=$1 folder=$2 kept=$TARGET/bare-$1-$ARCH.tar
    needs_room "$TARGET" "$BARE_MB"
    needs_room "$folder" "$BARE_MB"
    # only its owner can read a temporary folder, but everybody must be able to read the root folder
    chmod 755 "$folder"
    if [ -f "$kept" ]; then
        tar -C "$folder" --no-overwrite-dir -xf "$kept"
        return
    fi
    for_arch debootstrap --arch="$DEBIAN_ARCH" --variant=minbase --include=python3-minimal,libpython3-stdlib,ca-certificates "$release" "$folder" "$MIRROR" \
        >"$TARGET/debootstrap.log" || { tail -n 20 "$TARGET/debootstrap.log" >&2; exit 1; }
    tar -C "$folder" -cf "$kept.new" . && mv "$kept.new" "$kept"
}

# bare_mount FOLDER: provides /proc, /sys and other things of a running system, including its host name.
bare_mount() {
    echo "127.0.0.1 localhost $(hostname)" >"$1/etc/hosts"
    mount -t proc proc "$1/proc"
    mount -t sysfs -o ro sysfs "$1/sys"
    mkdir -p "$1/dev/shm"
    mount -t tmpfs -o size=512m tmpfs "$1/dev/shm"
}

# bare_unmount FOLDER: unmounts lazily, because a program that was stopped may still use a mount.
bare_unmount() {
    umount -l "$1/proc" "$1/sys" "$1/dev/shm" 2>/dev/null || true
}

# bare_leave FOLDER: unmounts and deletes the system.
bare_leave() {
    bare_unmount "$1"
    rm -rf --one-file-system "$1"
}

# bare_system RELEASE FOLDER: creates a minimal Debian in which programs and apt can run, with the packages that bare_keep has stored.
bare_system() {
    local release=$1 folder=$2
    bare_new "$release" "$folder"
    bare_mount "$folder"
    cp /etc/resolv.conf "$folder/etc/resolv.conf"
    rm -f "$folder/etc/apt/apt.conf.d/docker-clean"
    mkdir -p "$PARTS/debs-$release"
    find "$PARTS/debs-$release" -name '*.deb' -exec cp -t "$folder/var/cache/apt/archives" {} +
}

# bare_keep RELEASE FOLDER: stores the packages that apt has downloaded.
bare_keep() { find "$2/var/cache/apt/archives" -maxdepth 1 -name '*.deb' -exec cp -u -t "$PARTS/debs-$1" {} +; }

# bare_demo RELEASE FOLDER: calls bare_system and adds the files of Fashion-MNIST as /fashion-mnist.
bare_demo() {
    local images=/usr/share/datasets/fashion-mnist
    [ -d "$images" ] || fail 'no package dataset-fashion-mnist; run: make setup'
    bare_system "$@"
    cp -r "$images" "$2/"
}

# bare_run FOLDER COMMAND...: runs a command in the system, without the environment of this system, for at most LIMIT seconds.
bare_run() {
    local folder=$1
    shift
    env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb timeout -k 10 "${LIMIT:-900}" chroot "$folder" "$@"
}
