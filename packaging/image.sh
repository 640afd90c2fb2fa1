#!/usr/bin/env bash
# Makes target/trireme-VERSION-ARCH.oci.tar, an OCI image for Apptainer, Podman and Docker. It has a minimal Debian 12 with Open MPI, and
# the archive of pack.sh in /opt/trireme, which also has an MPICH. Needs root, debootstrap and Debian's mirror.
#
#   packaging/image.sh        # or: make image
set -euo pipefail
# shellcheck source=packaging/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=packaging/bare.sh
. "$ROOT/packaging/bare.sh"

RELEASE=bookworm
archive=$(newest_archive)
image=$TARGET/$(archive_name).oci.tar
bare=$(mktemp -d)
work=$(mktemp -d "$PARTS/new-XXXXXX")
trap 'bare_leave "$bare"; rm -rf "$work"' EXIT

bare_system "$RELEASE" "$bare"
log=$bare/tmp/install.log
bare_run "$bare" sh -c 'export DEBIAN_FRONTEND=noninteractive; apt-get -qq update &&
    apt-get -qq install -y --no-install-recommends openmpi-bin openssh-client' >"$log" 2>&1 || { tail -n 20 "$log" >&2; exit 1; }
bare_keep "$RELEASE" "$bare"
bare_unmount "$bare"

mkdir -p "$bare/opt/trireme"
tar -C "$bare/opt/trireme" --strip-components 1 -xJf "$archive"
ln -s /opt/trireme/bin/trireme "$bare/usr/local/bin/trireme"
rm -rf "$bare"/var/cache/apt/* "$bare"/var/lib/apt/lists/* "$bare"/var/log/* "$bare"/tmp/* "$bare"/usr/share/{doc,man,locale,info}/* \
    "$bare"/etc/{hosts,resolv.conf,machine-id,hostname}

# Ranks in separate containers cannot read the memory or the open files of each other.
cat >"$work/config.json" <<'EOF'
{"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8",
         "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
         "OMPI_MCA_btl_vader_single_copy_mechanism=none", "UCX_POSIX_USE_PROC_LINK=n"],
 "Cmd": ["trireme", "--help"], "WorkingDir": "/",
 "Labels": {"org.opencontainers.image.title": "trireme", "org.opencontainers.image.licenses": "MIT"}}
EOF
tar -C "$bare" --sort=name --numeric-owner --one-file-system -czf "$work/layer.tar.gz" .
python3 "$ROOT/packaging/oci.py" "$work/layer.tar.gz" "$work/config.json" "$(archive_name)" "$DEBIAN_ARCH" "$image.new"
mv "$image.new" "$image"
echo "$image: $(($(stat -c %s "$image") / 1000000)) MB, $(du -sm "$bare" | cut -f 1) MB unpacked"
