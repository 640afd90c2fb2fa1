//! Compiles `src/header.c`, which reads constants from `mpi.h` that only C code can read. It uses the MPI that the
//! `mpi` crate was built for. The `mpi` crate itself links the MPI library.

use std::path::PathBuf;

const SHIM: &str = "src/header.c";

/// Compiles the shim into a static library of this crate.
///
/// This function searches for MPI in the same order as the `mpi` crate, so that both use the same `mpi.h`. The value of
/// `MPI_IN_PLACE` differs between MPI libraries.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={SHIM}");
    for name in ["MPI_PKG_CONFIG", "CRAY_MPICH_DIR", "MPICC"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    let mut shim = cc::Build::new();
    shim.file(SHIM);
    match find() {
        Found::Wrapper(mpicc) => {
            shim.compiler(mpicc);
        }
        Found::Headers(folders) => {
            shim.includes(folders);
        }
    }
    shim.compile("trireme_mpi_header");
}

/// How to compile against MPI.
enum Found {
    /// With this compiler wrapper, for example `mpicc`.
    Wrapper(String),
    /// With the C compiler and these include directories.
    Headers(Vec<PathBuf>),
}

fn find() -> Found {
    if let Ok(package) = std::env::var("MPI_PKG_CONFIG") {
        return Found::Headers(
            pkg_config(&package).unwrap_or_else(|error| {
                panic!("$MPI_PKG_CONFIG names {package}, which pkg-config cannot use: {error}")
            }),
        );
    }
    if let Ok(folder) = std::env::var("CRAY_MPICH_DIR")
        && let Ok(headers) = pkg_config(&format!("{folder}/lib/pkgconfig/mpich.pc"))
    {
        return Found::Headers(headers);
    }
    let wrapper = std::env::var("MPICC").unwrap_or_else(|_| "mpicc".into());
    let answers = |w: &str| std::process::Command::new(w).arg("-show").output().is_ok();
    if answers(&wrapper) {
        return Found::Wrapper(wrapper);
    }
    for package in ["mpich", "ompi"] {
        if let Ok(headers) = pkg_config(package) {
            return Found::Headers(headers);
        }
    }
    panic!(
        "no MPI found: neither `{wrapper}` nor pkg-config's mpich or ompi. Install one (Debian: apt-get install \
         libopenmpi-dev openmpi-bin), or name its compiler wrapper: MPICC=/path/to/mpicc cargo build"
    );
}

fn pkg_config(package: &str) -> Result<Vec<PathBuf>, pkg_config::Error> {
    let library = pkg_config::Config::new().cargo_metadata(false).probe(package)?;
    Ok(library.include_paths)
}
