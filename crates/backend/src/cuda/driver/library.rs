//! The versions of NVIDIA's libraries, and whether they go together.

use std::ffi::c_int;

use cudarc::{cublaslt, cudnn, driver, nvrtc};

use super::load::{ALL, Library, loaded, require};
use super::status;
use crate::Error;

/// The version of a library that is there, in words.
fn version(library: Library) -> Result<String, Error> {
    Ok(match library {
        Library::Driver => format!("CUDA {}", dotted(driver_version()?)),
        Library::Nvrtc => {
            let (major, minor) = nvrtc_version()?;
            format!("{major}.{minor}")
        }
        Library::Cudnn => cudnn_version(),
        Library::CublasLt => cublaslt_version(),
        Library::Nccl => nccl_version()?,
    })
}

/// 13020 is 13.2.
fn dotted(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
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
    let (version, built_with) = (cudnn::result::get_version(), cudnn::result::get_cudart_version());
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
    let v = cudnn::result::get_version();
    format!("{}.{}.{}", v / 10_000, v / 100 % 100, v % 100)
}

/// Like 13.0.1; the library must be there.
pub fn cublaslt_version() -> String {
    // SAFETY: the caller has seen that the library is there; the function takes nothing.
    let v = unsafe { cublaslt::sys::cublasLtGetVersion() };
    format!("{}.{}.{}", v / 10_000, v / 100 % 100, v % 100)
}

/// Like 2.28.3.
pub fn nccl_version() -> Result<String, Error> {
    let function = loaded(Library::Nccl)?.function(Library::Nccl.function());
    let mut version: c_int = 0;
    // SAFETY: NCCL's function of this name has had this type since 2.0, and the library was loaded because it has it; the pointer is
    // valid for the call, and where that fails the version stays 0.
    unsafe {
        let function: unsafe extern "C" fn(*mut c_int) -> c_int = std::mem::transmute(function);
        function(&mut version);
    }
    // from 2.9 on the parts have two digits more
    let parts = if version < 10_000 { (1_000, 100) } else { (10_000, 100) };
    Ok(format!("{}.{}.{}", version / parts.0, version % parts.0 / parts.1, version % parts.1))
}

/// Whether NVIDIA's driver is there.
pub fn has_driver() -> bool {
    loaded(Library::Driver).is_ok()
}

/// Each library with its version and the file that it came from, or what is wrong with it: for `trireme doctor`.
pub fn report() -> Vec<(String, String)> {
    let row = |library: Library| {
        let found = loaded(library).and_then(|from| Ok(format!("{}, {}", version(library)?, from.words())));
        let found = found.unwrap_or_else(|e| match library {
            Library::Nccl => format!("not there; only `reduce.path = \"nccl\"` needs it: {}", Library::Nccl.cure()),
            _ => e.to_string(),
        });
        (format!("lib{}", library.stem()), found)
    };
    ALL.into_iter().chain([Library::Nccl]).map(row).collect()
}
