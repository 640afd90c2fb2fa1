//! The families of MPI libraries. A program that was built for one member starts with every other of its family, whatever the version,
//! and with none of another: handles are pointers in one and numbers in the other, and neither mpirun can reach the other's library.

/// Libraries with one binary interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Open MPI 4 and 5, and what is made of it.
    OpenMpi,
    /// MPICH's common interface, libmpi.so.12: MPICH, Cray MPICH, Intel MPI, MVAPICH.
    Mpich,
}

impl Family {
    /// As users know it.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
        }
    }

    /// By the text of `MPI_Get_library_version`; `None` for a library that we do not know.
    pub fn of_library(version: &str) -> Option<Self> {
        let has = |names: &[&str]| names.iter().any(|name| version.contains(name));
        if has(&["Open MPI"]) {
            Some(Self::OpenMpi)
        } else if has(&["MPICH", "Intel(R) MPI", "MVAPICH"]) {
            Some(Self::Mpich)
        } else {
            None
        }
    }
}
