#%Module1.0
# Module for Environment Modules: copy it to MODULEPATH/trireme/0.2.0 and set `root` to the PREFIX of `make install`.
set root /apps/trireme/0.2.0
module-whatis "trains image classifiers data-parallel over MPI"
proc ModulesHelp {} {
    global root
    puts stderr "trireme trains image classifiers: mpirun -n N trireme train recipe.toml"
    puts stderr "Job scripts: $root/share/trireme/jobscripts, recipes: $root/share/trireme/recipes"
}
conflict trireme
# the MPI that trireme was built for
prereq openmpi
prepend-path PATH $root/bin
prepend-path MANPATH $root/share/man
setenv TRIREME_ROOT $root
# the job scripts read jobscripts/env.sh in this folder
setenv TRIREME_HOME $root/share/trireme
