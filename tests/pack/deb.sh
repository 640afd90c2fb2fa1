#!/usr/bin/env bash
# Installs the package of packaging/deb.sh on a minimal Debian 12, trains on two ranks there, and removes it: `make test-deb`. Needs root.
set -euo pipefail
# shellcheck source=packaging/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../packaging/common.sh"
# shellcheck source=packaging/bare.sh
. "$ROOT/packaging/bare.sh"
package=$TARGET/trireme_$(version)_$(dpkg --print-architecture).deb
[ -f "$package" ] || fail "no $package; run: make deb"

bare=$(mktemp -d)
trap 'bare_leave "$bare"' EXIT
bare_demo bookworm "$bare"
cp "$package" "$bare/trireme.deb"
cat >"$bare/root/deb.sh" <<'END'
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
apt-get -qq update >/dev/null
apt-get -qq install -y --no-install-recommends /trireme.deb openmpi-bin >/dev/null
trireme --version
trireme doctor
trireme data convert fashion-mnist /fashion-mnist /data --shards 4
mpirun -n 2 --bind-to none --oversubscribe trireme train /usr/share/trireme/recipes/fashion-mnist-lenet.toml --data /data --out /run-2 --max-steps 50
# not in a pipe, where grep would end zcat early, which counts as a failure
zcat /usr/share/man/man1/trireme-train.1.gz >/tmp/page
grep -q 'trireme' /tmp/page || { echo 'no man page' >&2; exit 1; }
# dpkg --verify ends with code 0 even if files differ
wrong=$(dpkg --verify trireme)
[ -z "$wrong" ] || { echo "not as in the package: $wrong" >&2; exit 1; }
env=/usr/share/trireme/jobscripts/env.sh
echo 'export SBATCH_ACCOUNT=mine' >>$env
dpkg --force-confold -i /trireme.deb >/dev/null
[ "$(tail -n 1 $env)" = 'export SBATCH_ACCOUNT=mine' ] || { echo 'an edited env.sh was replaced' >&2; exit 1; }
apt-get -qq purge -y trireme >/dev/null
left=$(find /usr -path '*trireme*' | head)
[ -z "$left" ] || { echo "left after removal: $left" >&2; exit 1; }
echo 'the package installs, trains on two ranks, and is removed completely'
END
bare_run "$bare" bash /root/deb.sh
bare_keep bookworm "$bare"
