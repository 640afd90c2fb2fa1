#!/usr/bin/env bash
# Makes target/trireme-VERSION.tar.xz: the sources of the last commit with the sources of all crates, so that `cargo build --offline --locked`
# works without a network. Also makes the list of components (SBOM, CycloneDX) and the checksums of all archives in target/. Two runs on the
# same commit write the same bytes.
#
#   packaging/dist.sh        # or: make dist
set -euo pipefail
# shellcheck source=packaging/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$ROOT"

needs git git
needs xz xz-utils
needs_room "$PARTS" 3000
git diff --quiet HEAD || echo 'note: the archive has the last commit, without your uncommitted changes' >&2
name=trireme-$(version)
when=$(git log -1 --format=%ct)
work=$(mktemp -d "$PARTS/new-XXXXXX")
trap 'rm -rf "$work"' EXIT

git archive --prefix="$name/" HEAD | tar -C "$work" -xf -
mkdir -p "$work/$name/.cargo"
(cd "$work/$name" && cargo vendor --quiet --locked --versioned-dirs vendor >/dev/null)
# with --quiet, cargo vendor does not print these lines
cat >>"$work/$name/.cargo/config.toml" <<'END'

[source.crates-io]
replace-with = "vendored-sources"

[source.vendored-sources]
directory = "vendor"
END
tar -C "$work" --sort=name --mtime="@$when" --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r,go-w -cf - "$name" |
    xz -T0 --block-size=32MiB >"$work/archive"
mv "$work/archive" "$TARGET/$name.tar.xz"

# cargo-cyclonedx writes its file beside Cargo.toml
(cd "$work/$name" && SOURCE_DATE_EPOCH=$when "$CYCLONEDX" cyclonedx --format json --spec-version 1.5 --override-filename sbom >/dev/null)
mv "$work/$name/sbom.json" "$TARGET/$name.cdx.json"

cd "$TARGET"
shopt -s nullglob
sha256sum "$name".tar.xz "$name".cdx.json "$name"-*.tar.xz "$name"-*.oci.tar trireme_"$(version)"*.deb >"$name.sha256"
echo "$TARGET/$name.tar.xz: $(($(stat -c %s "$name.tar.xz") / 1000000)) MB with $(find "$work/$name/vendor" -mindepth 1 -maxdepth 1 | wc -l) crates"
cat "$name.sha256"
