#!/usr/bin/env bash
# Unpacks the archive of packaging/pack.sh on minimal Debians and runs inside.sh there. Needs root, debootstrap and Debian's mirror. A
# minimal system is kept as target/bare-RELEASE-ARCH.tar, and the packages installed in it in target/pack.
#
#   tests/pack/test.sh [RELEASE...]      # bullseye bookworm trixie
set -euo pipefail
# shellcheck source=packaging/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../packaging/common.sh"
# shellcheck source=packaging/bare.sh
. "$ROOT/packaging/bare.sh"
releases=("$@")
# The archive for ARM needs a newer glibc than Debian 11 has. An emulated release takes four minutes.
if [ $# = 0 ]; then
    case $ARCH in x86_64) releases=(bullseye bookworm trixie) ;; *) releases=(bookworm) ;; esac
fi
archive=$(newest_archive)

bare=$(mktemp -d)
trap 'bare_leave "$bare"' EXIT
intel=''
[ "$ARCH" != x86_64 ] || intel=$(wheel impi-rt)
for release in "${releases[@]}"; do
    rm -rf --one-file-system "$bare"
    mkdir -m 755 "$bare"
    bare_demo "$release" "$bare"
    mkdir "$bare/root/trireme"
    tar -C "$bare/root/trireme" --strip-components 1 -xJf "$archive"
    [ -z "$intel" ] || cp -r "$intel" "$bare/impi"
    cp "$ROOT/tests/pack/inside.sh" "$bare/root/"
    # emulated processes cannot read each other's memory
    LIMIT=${CROSS:+5400} bare_run "$bare" env ${CROSS:+EMULATED=1 OMPI_MCA_btl_vader_single_copy_mechanism=none} bash /root/inside.sh
    bare_keep "$release" "$bare"
    bare_unmount "$bare"
done
