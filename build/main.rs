//! Build script: bindings to oneDNN; the MPI shim.

mod mpi;
mod onednn;

fn main() {
    println!("cargo:rerun-if-changed=build");
    onednn::build();
    mpi::build();
}
