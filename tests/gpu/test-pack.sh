#!/usr/bin/env bash
# Unpacks target/trireme-gpu.tar.xz on a bare Debian of another release than the one it was made on, and runs there what needs no GPU:
# doctor, the golden numbers, two ranks, Python beside it. As root, with debootstrap; the bare system is kept as target/bare-RELEASE.tar.
set -euo pipefail
cd "$(dirname "$0")/../.."
TARGET=$(realpath "${CARGO_TARGET_DIR:-target}")
RELEASE=${RELEASE:-trixie}
if [ "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" = "$RELEASE" ]; then
    echo "this machine is $RELEASE itself; name another Debian in RELEASE" >&2
    exit 2
fi
[ "$(id -u)" = 0 ] || { echo 'a foreign system needs root (debootstrap, chroot, mount)' >&2; exit 2; }
bare=$(mktemp -d)
# what a program that was stopped still holds goes later
leave() { umount -l "$bare/proc" "$bare/sys" "$bare/dev/shm" 2>/dev/null || true; rm -rf --one-file-system "$bare"; }
trap leave EXIT

if [ ! -f "$TARGET/bare-$RELEASE.tar" ]; then
    debootstrap --variant=minbase --include=python3-minimal,libpython3-stdlib,ca-certificates "$RELEASE" "$bare" \
        "${MIRROR:-http://deb.debian.org/debian}" >"$TARGET/debootstrap.log" ||
        { tail -n 20 "$TARGET/debootstrap.log" >&2; exit 1; }
    tar -C "$bare" -cf "$TARGET/bare-$RELEASE.tar.new" . && mv "$TARGET/bare-$RELEASE.tar.new" "$TARGET/bare-$RELEASE.tar"
else
    tar -C "$bare" -xf "$TARGET/bare-$RELEASE.tar"
fi
mount -t proc proc "$bare/proc"
mount -t sysfs -o ro sysfs "$bare/sys"
mkdir -p "$bare/dev/shm"
mount -t tmpfs -o size=512m tmpfs "$bare/dev/shm"
tar -C "$bare/root" -xJf "$TARGET/trireme-gpu.tar.xz"
cp tests/gpu/bare.sh "$bare/root/bare.sh"
env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb timeout -k 10 "${LIMIT:-900}" chroot "$bare" bash /root/bare.sh
