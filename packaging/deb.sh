#!/usr/bin/env bash
# Makes target/trireme_VERSION_ARCHITECTURE.deb from the build for this machine's Debian and MPI. Needs no root.
#
#   packaging/deb.sh        # or: make deb
set -euo pipefail
# shellcheck source=packaging/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$ROOT"

needs dpkg-shlibdeps dpkg-dev
[ -x "$TARGET/release/trireme" ] || fail 'no target/release/trireme; run: make build'
architecture=$(dpkg --print-architecture)
work=$(mktemp -d "$PARTS/new-XXXXXX")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
tree=$work/debian/trireme
umask 022

DESTDIR=$tree build/install.sh install "$TARGET/release/trireme" /usr >/dev/null
strip --strip-unneeded "$tree/usr/bin/trireme"
# Debian's places for the licence and the changes, and compressed man pages
install -D -m 644 LICENSE "$tree/usr/share/doc/trireme/copyright"
gzip -9nc CHANGELOG.md >"$tree/usr/share/doc/trireme/changelog.gz"
find "$tree/usr/share/man" -type f -exec gzip -9n {} +
# dpkg has its own list of files, and its own way to recognize an edited env.sh
env=usr/share/trireme/jobscripts/env.sh
rm "$tree/usr/share/trireme/installed" "$tree/$env.orig"

mkdir -p "$work/debian" "$tree/DEBIAN"
printf 'Source: trireme\n\nPackage: trireme\nArchitecture: %s\n' "$architecture" >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O --ignore-missing-info -e debian/trireme/usr/bin/trireme | sed -n 's/^shlibs:Depends=//p')
cat >"$tree/DEBIAN/control" <<END
Package: trireme
Version: $(version)
Architecture: $architecture
Maintainer: the trireme contributors <trireme@localhost>
Section: science
Priority: optional
Installed-Size: $(du -sk --exclude=DEBIAN "$tree" | cut -f 1)
Depends: $depends
Recommends: openmpi-bin
Description: trains image classifiers data-parallel over MPI
 Each rank owns a GPU or a group of CPU cores and reads its own part of the data set. The result does not depend on
 the number of ranks. Includes job scripts for Slurm and other schedulers, and recipes.
END
# dpkg keeps an edited env.sh
echo "/$env" >"$tree/DEBIAN/conffiles"
(cd "$tree" && find usr -type f ! -path "$env" -print0 | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
file=$TARGET/trireme_$(version)_$architecture.deb
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || date +%s) dpkg-deb --root-owner-group -Zxz -b "$tree" "$file" >/dev/null
echo "$file: $(($(stat -c %s "$file") / 1000000)) MB, depends on $depends"
