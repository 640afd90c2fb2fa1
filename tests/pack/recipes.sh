#!/usr/bin/env bash
# Tests packaging/recipes with the package managers on this machine, without building: `make test-recipes`. Each recipe is skipped if its
# tool is missing. PYTHON may be a virtual environment with easybuild and py-rattler-build from PyPI.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/support/script.sh
. "$root/tests/support/script.sh"
recipes=$root/packaging/recipes
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -n 1)
other=$(grep -LF "$version" "$recipes"/*) || true
[ -z "$other" ] || { echo "not for version $version: $other" >&2; exit 1; }

# Creates modules for trireme and an empty openmpi. This trireme only prints its path and the variables of the module.
mkdir -p "$work"/{lua,tcl}/{trireme,openmpi} "$work/apps/bin"
# shellcheck disable=SC2016 # for the program
printf '#!/bin/sh\necho "$0 $TRIREME_ROOT $TRIREME_HOME"\n' >"$work/apps/bin/trireme"
chmod +x "$work/apps/bin/trireme"
sed "s|/apps/trireme/$version|$work/apps|" "$recipes/trireme.lua" >"$work/lua/trireme/$version.lua"
sed "s|/apps/trireme/$version|$work/apps|" "$recipes/trireme.tcl" >"$work/tcl/trireme/$version"
echo '--' >"$work/lua/openmpi/5.lua"
printf '#%%Module1.0\n' >"$work/tcl/openmpi/5"

# loads INIT FOLDER: loads and unloads the module with the `module` that INIT defines.
loads() {
    # shellcheck disable=SC2016 # for the inner shell
    env -i HOME="$work" PATH=/usr/bin:/bin bash -euo pipefail -c '
        set +u; . "$1"; module use "$2"; module load openmpi trireme
        [ "$(trireme)" = "$3/bin/trireme $3 $3/share/trireme" ]
        help=$(module help trireme 2>&1)
        [[ $help == *share/trireme/jobscripts* ]]
        module unload trireme
        [[ $PATH != *"$3"* && -z $TRIREME_ROOT$TRIREME_HOME ]]' bash "$1" "$work/$2" "$work/apps"
}
lmod=/usr/share/lmod/lmod/init/bash
tcl=/usr/share/modules/init/bash
# without &&, which would hide the failures from `set -e`
if [ -e "$lmod" ]; then loads "$lmod" lua; loads "$lmod" tcl; echo 'Lmod loads both modules'; else skip recipes::lmod 'no Lmod'; fi
if [ -e "$tcl" ]; then loads "$tcl" tcl; echo 'Environment Modules loads the module'; else skip recipes::tcl 'no Environment Modules'; fi

if [ -e "$lmod" ] && "$python" -c 'import easybuild.main' 2>/dev/null; then
    PATH="$(dirname "$(command -v "$python")"):/usr/share/lmod/lmod/libexec:$PATH" "$python" -m easybuild.main --dry-run --robot \
        --allow-use-as-root-and-accept-consequences --prefix "$work/easybuild" "$recipes"/*.eb >"$work/log" 2>&1 ||
        { tail -n 5 "$work/log" >&2; exit 1; }
    echo "EasyBuild finds all $(grep -c '\.eb (module: ' "$work/log") modules"
else
    skip recipes::easybuild 'no EasyBuild in PYTHON, or no Lmod'
fi

if "$python" -c 'import rattler_build' 2>/dev/null; then
    "$python" - "$recipes/recipe.yaml" <<'END'
import sys
from rattler_build import RenderConfig, Stage0Recipe, VariantConfig
(variant,) = Stage0Recipe.from_file(sys.argv[1]).render(VariantConfig(), RenderConfig())
recipe = variant.recipe.to_dict()
print("rattler-build reads the recipe:", recipe["package"], recipe["requirements"]["build"][:3])
END
else
    skip recipes::conda 'no py-rattler-build in PYTHON'
fi

"$python" -c 'import sys; compile(open(sys.argv[1]).read(), sys.argv[1], "exec")' "$recipes/package.py"
if command -v spack >/dev/null; then
    mkdir -p "$work/spack/packages/trireme"
    printf 'repo:\n  namespace: test_trireme\n' >"$work/spack/repo.yaml"
    cp "$recipes/package.py" "$work/spack/packages/trireme/"
    spack -C "$work" --config "repos:test_trireme:$work/spack" spec trireme
else
    skip recipes::spack 'no Spack'
fi
