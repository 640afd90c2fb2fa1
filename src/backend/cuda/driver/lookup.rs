//! NVIDIA's libraries: which are there, and what to do where one is missing.
//!
//! cudarc loads them when one of their functions is first called, and panics where they are missing: everything else in this backend
//! comes after [`require`].

use std::ffi::{CStr, c_char};

use cudarc::{cublaslt, cudnn, driver, nvrtc};

use crate::backend::Error;

/// One library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// libcuda, of the driver's package.
    Driver,
    /// The compiler of our kernels.
    Nvrtc,
    /// Convolutions.
    Cudnn,
    /// Matrix products.
    CublasLt,
}

/// The libraries that this backend needs, in the order of the search.
pub const ALL: [Library; 4] = [Library::Driver, Library::Nvrtc, Library::Cudnn, Library::CublasLt];

impl Library {
    /// Part of the file's name between `lib` and `.so`.
    pub fn stem(self) -> &'static str {
        match self {
            Library::Driver => "cuda",
            Library::Nvrtc => "nvrtc",
            Library::Cudnn => "cudnn",
            Library::CublasLt => "cublasLt",
        }
    }

    /// What to install.
    pub fn cure(self) -> &'static str {
        match self {
            Library::Driver => {
                "install the NVIDIA driver of this machine's GPU (Debian: nvidia-driver), or, in a container, start it with \
                 --gpus all or --nv"
            }
            Library::Nvrtc => {
                "load the CUDA toolkit's module, or `pip install nvidia-cuda-nvrtc` and put its lib folder into LD_LIBRARY_PATH"
            }
            Library::Cudnn => {
                "load cuDNN's module (version 9), or `pip install nvidia-cudnn-cu13` (-cu12 for a driver of CUDA 12) and put \
                 its lib folder into LD_LIBRARY_PATH"
            }
            Library::CublasLt => {
                "load the CUDA toolkit's module, or `pip install nvidia-cublas` and put its lib folder into LD_LIBRARY_PATH"
            }
        }
    }

    fn present(self) -> bool {
        // SAFETY: each only opens and closes the library; NVIDIA's have no initialisers that could do harm.
        unsafe {
            match self {
                Library::Driver => driver::sys::is_culib_present(),
                Library::Nvrtc => nvrtc::sys::is_culib_present(),
                Library::Cudnn => cudnn::sys::is_culib_present(),
                Library::CublasLt => cublaslt::sys::is_culib_present(),
            }
        }
    }
}

/// Fails where a library is not there: which, under which names and where it was looked for, and the cure.
pub fn require(library: Library) -> Result<(), Error> {
    if library.present() {
        return Ok(());
    }
    let stem = library.stem();
    let candidates = cudarc::get_lib_name_candidates(stem);
    let versioned = candidates.iter().filter(|name| name.contains(".so") && !name.contains('_')).cloned();
    let folders = match std::env::var("LD_LIBRARY_PATH") {
        Ok(path) if !path.is_empty() => format!("the folders of LD_LIBRARY_PATH ({path})"),
        _ => "LD_LIBRARY_PATH (which is not set)".to_string(),
    };
    let names = versioned.collect::<Vec<_>>().join(", ");
    let why = format!(
        "lib{stem} is not there, or does not load; looked for {names} in {folders} and in the system's folders \
         (/etc/ld.so.conf, /lib, /usr/lib); {}",
        library.cure()
    );
    Err(Error::Absent { what: "CUDA".into(), why })
}

/// A C string that a library owns.
///
/// # Safety
/// `text` is null or a C string that lives as long as the library.
pub unsafe fn words(text: *const c_char) -> String {
    if text.is_null() {
        return "no name".into();
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
