#!/usr/bin/env bash
# tests/skipped.sh COMMAND...: runs the command, then prints how many of its tests could not run on this machine, and why.
#
# Such tests append their name, a tab and the reason to the file TRIREME_SKIPPED (support/skip.rs, support/script.sh).
set -euo pipefail
TRIREME_SKIPPED=$(mktemp)
export TRIREME_SKIPPED
trap 'rm -f "$TRIREME_SKIPPED"' EXIT
code=0
"$@" || code=$?
sort -u "$TRIREME_SKIPPED" | cut -f 2- | sort | uniq -c | while read -r count why; do
    echo "skipped: $count test$([ "$count" = 1 ] || echo s): $why"
done
exit "$code"
