#!/usr/bin/env bash
# Unpacks target/trireme-gpu.tar.xz on a minimal Debian of another release than the one it was made on, and runs the parts that need no GPU:
# doctor, the golden numbers, two ranks, and Python. Needs root and debootstrap. The minimal system is kept as target/bare-RELEASE-ARCH.tar.
set -euo pipefail
# shellcheck source=packaging/common.sh
. "$(dirname "$0")/../../packaging/common.sh"
# shellcheck source=packaging/bare.sh
. "$ROOT/packaging/bare.sh"
RELEASE=${RELEASE:-trixie}
if [ "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" = "$RELEASE" ]; then
    echo "this machine runs $RELEASE; set RELEASE to another Debian release" >&2
    exit 2
fi
bare=$(mktemp -d)
trap 'bare_leave "$bare"' EXIT
bare_new "$RELEASE" "$bare"
bare_mount "$bare"
tar -C "$bare/root" -xJf "$TARGET/trireme-gpu.tar.xz"
cp "$ROOT/tests/gpu/bare.sh" "$bare/root/bare.sh"
bare_run "$bare" bash /root/bare.sh
