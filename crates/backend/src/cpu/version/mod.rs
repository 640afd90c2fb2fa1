//! What oneDNN's major versions declare differently: how tensors are described, and how the descriptions of primitives are made. The
//! build script reads the version in the header.

#[cfg(not(onednn3))]
mod v2;
#[cfg(onednn3)]
mod v3;

#[cfg(not(onednn3))]
pub use v2::{Descriptor, append_relu, describe};
#[cfg(onednn3)]
pub use v3::{Descriptor, append_relu, describe};

#[cfg(test)]
mod tests {
    use super::super::{onednn, sys};

    /// What is compiled for the header of one version means something else to a library of another.
    #[test]
    fn library_and_header_are_of_one_major_version() {
        assert_eq!(sys::DNNL_VERSION_MAJOR, if cfg!(onednn3) { 3 } else { 2 });
        let version = onednn::version();
        assert!(version.starts_with(&format!("oneDNN {}.", sys::DNNL_VERSION_MAJOR)), "{version}");
    }
}
