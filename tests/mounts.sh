#!/usr/bin/env bash
# tests/mounts.sh TEST...: of these tests, which mount file systems, prints the arguments of libtest that leave out those that may not do
# so on this machine, and reports them as skipped.
set -euo pipefail
# shellcheck source=tests/support/skip.sh
. "$(dirname "$0")/support/skip.sh"

# may_mount OPTIONS...: as root, or with options of unshare for a user namespace; the same question as in support/mount.rs
may_mount() { unshare --mount "$@" mount -t tmpfs trireme-test /tmp 2>/dev/null; }

for test in "$@"; do
    if ! may_mount && ! may_mount --user --map-root-user; then
        why='no permission (neither root nor user namespaces)'
    elif [[ $test = stalls::* ]] && ! { : <>/dev/fuse; } 2>/dev/null; then
        why='no /dev/fuse'
    else
        continue
    fi
    skip "$test" "it mounts a file system: $why"
    echo "--skip $test"
done
