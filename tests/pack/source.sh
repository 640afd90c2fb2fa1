#!/usr/bin/env bash
# Builds the archive of packaging/dist.sh without a network and runs the program: `make test-dist`. In a network namespace if this user may
# create one, otherwise only with cargo's --offline.
set -euo pipefail
# shellcheck source=packaging/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../packaging/common.sh"
# shellcheck source=tests/support/script.sh
. "$ROOT/tests/support/script.sh"
name=trireme-$(version)
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-source-XXXXXX")
trap 'rm -rf "$work"' EXIT

(cd "$TARGET" && sha256sum --quiet -c "$name.sha256")
before=$(sha256sum <"$TARGET/$name.tar.xz")
"$ROOT/packaging/dist.sh" >/dev/null
[ "$before" = "$(sha256sum <"$TARGET/$name.tar.xz")" ] || fail 'a second run of packaging/dist.sh wrote other bytes'
echo 'two runs write equal bytes'
python3 - "$TARGET/$name.cdx.json" <<'END'
import json, sys
components = json.load(open(sys.argv[1]))["components"]
assert len(components) > 100 and all(c.get("version") and c.get("purl") for c in components), len(components)
print(f"the list of components has {len(components)} crates")
END

tar -C "$work" -xf "$TARGET/$name.tar.xz"
cd "$work/$name"
export CARGO_HOME=$work/cargo CARGO_TARGET_DIR=$work/target
if unshare --net true 2>/dev/null; then
    unshare --net cargo build --quiet --release --offline --locked
else
    skip test-dist 'this user may not create a network namespace, so the build could reach the network'
    cargo build --quiet --release --offline --locked
fi
"$work/target/release/trireme" --version
"$work/target/release/trireme" models resnet20 | head -n 3
echo 'the source archive builds without a network'
