//! NVIDIA's libraries: which are there, which versions, and what to do where one is missing or too old for another.
//!
//! cudarc looks them up when one of their functions is first called, and panics where they are missing: so everything here asks
//! first, and everything else in this backend comes after [`require`].

use std::ffi::CStr;

use cudarc::{cublaslt, cudnn, driver, nvrtc};

use crate::backend::Error;
use crate::backend::cuda::driver::status;

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

/// What this backend needs, in the order in which it asks.
pub const ALL: [Library; 4] = [Library::Driver, Library::Nvrtc, Library::Cudnn, Library::CublasLt];

impl Library {
    /// Part of the file's name between `lib` and `.so`.
    fn stem(self) -> &'static str {
        match self {
            Library::Driver => "cuda",
            Library::Nvrtc => "nvrtc",
            Library::Cudnn => "cudnn",
            Library::CublasLt => "cublasLt",
        }
    }

    /// What to install.
    fn cure(self) -> &'static str {
        match self {
            Library::Driver => {
                "install the NVIDIA driver of this machine's card (Debian: nvidia-driver), or, in a container, start it with \
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

    /// Its version, in words; the library must be there.
    fn version(self) -> Result<String, Error> {
        Ok(match self {
            Library::Driver => format!("CUDA {}", dotted(driver_version()?)),
            Library::Nvrtc => format!("{}", Dotted(nvrtc_version()?)),
            Library::Cudnn => cudnn_version(),
            Library::CublasLt => cublaslt_version(),
        })
    }
}

/// A version in two parts.
struct Dotted((i32, i32));

impl std::fmt::Display for Dotted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0.0, self.0.1)
    }
}

/// 13020 is 13.2.
fn dotted(version: i32) -> Dotted {
    Dotted((version / 1000, version % 1000 / 10))
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

/// All libraries, and that their versions go together.
pub fn require_all() -> Result<(), Error> {
    ALL.into_iter().try_for_each(require)?;
    let (driver, nvrtc) = (driver_version()?, nvrtc_version()?);
    let too_old = |what: &str, major: i32| {
        let why = format!(
            "the driver knows CUDA {}, {what} is of CUDA {major}; update the driver, or use {what} of CUDA {}",
            dotted(driver),
            driver / 1000
        );
        Err(Error::Absent { what: "CUDA".into(), why })
    };
    if nvrtc.0 > driver / 1000 {
        return too_old("the NVRTC that was found", nvrtc.0);
    }
    // SAFETY: the library is there; the functions take nothing.
    let (version, built_with) = unsafe { (cudnn::sys::cudnnGetVersion(), cudnn::sys::cudnnGetCudartVersion()) };
    if version < 90_000 {
        let why = format!("cuDNN {} was found, at least 9.0 is needed; {}", cudnn_version(), Library::Cudnn.cure());
        return Err(Error::Absent { what: "CUDA".into(), why });
    }
    if built_with as i32 / 1000 > driver / 1000 {
        return too_old("the cuDNN that was found", built_with as i32 / 1000);
    }
    // SAFETY: the library is there; the function takes nothing.
    let built_with = unsafe { cublaslt::sys::cublasLtGetCudartVersion() } as i32;
    if built_with / 1000 > driver / 1000 {
        return too_old("the cuBLASLt that was found", built_with / 1000);
    }
    Ok(())
}

/// What the driver supports, as 13020 for 13.2.
fn driver_version() -> Result<i32, Error> {
    let mut version = 0;
    // SAFETY: the driver is there; the pointer is valid for the call. This one needs no initialisation.
    let answer = unsafe { driver::sys::cuDriverGetVersion(&mut version) };
    status::driver(answer, "cuDriverGetVersion", "the driver's version")?;
    Ok(version)
}

/// Major and minor.
pub fn nvrtc_version() -> Result<(i32, i32), Error> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is there; both pointers are valid for the call.
    status::nvrtc(unsafe { nvrtc::sys::nvrtcVersion(&mut major, &mut minor) }, "nvrtcVersion", "its version")?;
    Ok((major, minor))
}

/// Like 9.19.0; the library must be there.
pub fn cudnn_version() -> String {
    // SAFETY: the caller has seen that the library is there; the function takes nothing.
    let v = unsafe { cudnn::sys::cudnnGetVersion() };
    format!("{}.{}.{}", v / 10_000, v / 100 % 100, v % 100)
}

/// Like 13.0.1; the library must be there.
pub fn cublaslt_version() -> String {
    // SAFETY: the caller has seen that the library is there; the function takes nothing.
    let v = unsafe { cublaslt::sys::cublasLtGetVersion() };
    format!("{}.{}.{}", v / 10_000, v / 100 % 100, v % 100)
}

/// Each library, with its version or what is wrong with it: for `trireme doctor`.
pub fn report() -> Vec<(String, String)> {
    let row = |library: Library| {
        let found = require(library).and_then(|()| library.version());
        (format!("lib{}", library.stem()), found.unwrap_or_else(|e| e.to_string()))
    };
    ALL.into_iter().map(row).collect()
}

/// A C string that a library owns.
///
/// # Safety
/// `text` is null or a C string that lives as long as the library.
pub unsafe fn words(text: *const std::ffi::c_char) -> String {
    if text.is_null() {
        return "no name".into();
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
