-- Module for Lmod: copy it to MODULEPATH/trireme/0.2.0.lua and set `root` to the PREFIX of `make install`.
local root = "/apps/trireme/0.2.0"
whatis("Name: trireme")
whatis("Version: 0.2.0")
whatis("Description: trains image classifiers data-parallel over MPI")
help([[trireme trains image classifiers: mpirun -n N trireme train recipe.toml
Job scripts: ]] .. root .. [[/share/trireme/jobscripts, recipes: ]] .. root .. [[/share/trireme/recipes]])
conflict("trireme")
-- the MPI that trireme was built for
depends_on("openmpi")
prepend_path("PATH", pathJoin(root, "bin"))
prepend_path("MANPATH", pathJoin(root, "share/man"))
setenv("TRIREME_ROOT", root)
-- the job scripts read jobscripts/env.sh in this folder
setenv("TRIREME_HOME", pathJoin(root, "share/trireme"))
