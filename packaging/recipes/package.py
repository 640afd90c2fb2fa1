# Package for Spack 1.0 or later: copy it to REPOSITORY/packages/trireme/package.py, then `spack install trireme`.
from spack_repo.builtin.build_systems.makefile import MakefilePackage

from spack.package import *


class Trireme(MakefilePackage):
    """Trains image classifiers data-parallel over MPI, on CPUs and NVIDIA GPUs."""

    homepage = "https://example.org/trireme"
    # `make dist` writes this archive with the sources of all crates
    url = "file:///path/to/trireme-0.2.0.tar.xz"

    license("MIT")

    # the first line of trireme-0.2.0.sha256
    version("0.2.0", sha256="0" * 64)

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("rust@1.89:", type="build")
    depends_on("llvm +clang", type="build")
    depends_on("cmake", type="build")
    depends_on("nasm", type="build", when="target=x86_64:")
    depends_on("pkgconfig", type="build")
    depends_on("mpi")
    depends_on("hdf5@1.10: ~mpi")
    depends_on("onednn@2: cpu_runtime=omp")

    def setup_build_environment(self, env):
        # the library's name differs from the package's, and its folder is lib or lib64
        onednn = self.spec["onednn"].prefix
        onednn_lib = find_libraries("libdnnl", onednn, shared=True, recursive=True).directories[0]
        env.set("HDF5_DIR", self.spec["hdf5"].prefix)
        env.set("DNNL_INCLUDE", onednn.include)
        env.set("DNNL_LIB", onednn_lib)
        env.set("LIBCLANG_PATH", self.spec["llvm"].prefix.lib)
        env.set("MPICC", self.spec["mpi"].mpicc)
        env.set("CARGO_NET_OFFLINE", "true")
        rpaths = [self.spec["hdf5"].prefix.lib, onednn_lib, self.spec["mpi"].prefix.lib]
        env.set("RUSTFLAGS", "-C link-arg=-Wl,-rpath," + ":".join(rpaths))

    def build(self, spec, prefix):
        make("build")

    def install(self, spec, prefix):
        make("install-files", f"PREFIX={prefix}")
