//! Declarations that differ between oneDNN's major versions: descriptors of tensors and of primitives. The build script
//! reads the version from the header.

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

    /// Code that is compiled for the header of one major version does not work with a library of another major version.
    #[test]
    fn library_and_header_are_of_one_major_version() {
        assert_eq!(sys::DNNL_VERSION_MAJOR, if cfg!(onednn3) { 3 } else { 2 });
        let version = onednn::version();
        assert!(version.starts_with(&format!("oneDNN {}.", sys::DNNL_VERSION_MAJOR)), "{version}");
    }
}
