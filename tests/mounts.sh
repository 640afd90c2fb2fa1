#!/usr/bin/env bash
# tests/mounts.sh TEST...: TESTs are tests that mount file systems. Prints `--skip TEST` for libtest for each test that this machine does
# not allow, and reports it as skipped.
set -euo pipefail
# shellcheck source=tests/support/script.sh
. "$(dirname "$0")/support/script.sh"

# may_mount OPTIONS...: succeeds if a process may mount. OPTIONS are options of unshare for a user namespace, or empty for root. Like
# support/disk.rs.
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
