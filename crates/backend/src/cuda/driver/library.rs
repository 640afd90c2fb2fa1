//! Versions of NVIDIA's libraries, and the check that they fit together.

use cudarc::driver;

use super::calls::{cublaslt, cudnn, nvrtc};
use super::load::{ALL, Library, loaded, require};
use super::status;
use crate::Error;

/// Returns the version of a loaded library as text.
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

/// Formats a CUDA version: 13020 becomes 13.2.
fn dotted(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// Loads all required libraries and checks that the driver supports their CUDA versions.
pub fn require_all() -> Result<(), Error> {
    ALL.into_iter().try_for_each(require)?;
    let (driver, nvrtc) = (driver_version()?, nvrtc_version()?);
    let too_old = |what: &str, library: Library, major: i32| {
        let why = format!(
            "the driver supports CUDA {}, but the {what} that was found is for CUDA {major}; update the driver, or use {what} \
             for CUDA {}: {}",
            dotted(driver),
            driver / 1000,
            library.cure()
        );
        Err(Error::Absent { what: "CUDA".into(), why })
    };
    if nvrtc.0 > driver / 1000 {
        return too_old("NVRTC", Library::Nvrtc, nvrtc.0);
    }
    // SAFETY: the library is loaded, and both functions have no arguments.
    let (version, built_with) = unsafe { (cudnn::cudnnGetVersion(), cudnn::cudnnGetCudartVersion()) };
    if version < 90_000 {
        let why =
            format!("cuDNN {} was found, but at least 9.0 is required; {}", cudnn_version(), Library::Cudnn.cure());
        return Err(Error::Absent { what: "CUDA".into(), why });
    }
    if built_with as i32 / 1000 > driver / 1000 {
        return too_old("cuDNN", Library::Cudnn, built_with as i32 / 1000);
    }
    // SAFETY: the library is loaded, and the function has no arguments.
    let built_with = unsafe { cublaslt::cublasLtGetCudartVersion() } as i32;
    if built_with / 1000 > driver / 1000 {
        return too_old("cuBLASLt", Library::CublasLt, built_with / 1000);
    }
    Ok(())
}

/// Returns the CUDA version that the driver supports, as 13020 for 13.2.
fn driver_version() -> Result<i32, Error> {
    let mut version = 0;
    // SAFETY: the driver is loaded, and the pointer is valid for the call. This function needs no initialisation.
    let answer = unsafe { driver::sys::cuDriverGetVersion(&mut version) };
    status::driver(answer, "cuDriverGetVersion", "the driver's version")?;
    Ok(version)
}

/// Returns major and minor version.
pub fn nvrtc_version() -> Result<(i32, i32), Error> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is loaded, and both pointers are valid for the call.
    status::nvrtc(unsafe { nvrtc::nvrtcVersion(&mut major, &mut minor) }, "nvrtcVersion", "its version")?;
    Ok((major, minor))
}

/// Formats a version of cuDNN or cuBLASLt: 91900 becomes 9.19.0.
fn three_parts(version: usize) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

/// Returns a version such as 9.19.0. The library must be loaded.
pub fn cudnn_version() -> String {
    // SAFETY: the caller has checked that the library is loaded. The function has no arguments.
    three_parts(unsafe { cudnn::cudnnGetVersion() })
}

/// Returns a version such as 13.0.1. The library must be loaded.
pub fn cublaslt_version() -> String {
    // SAFETY: the caller has checked that the library is loaded. The function has no arguments.
    three_parts(unsafe { cublaslt::cublasLtGetVersion() })
}

/// Returns a version such as 2.28.3.
pub fn nccl_version() -> Result<String, Error> {
    // SAFETY: ncclGetVersion has had this type since NCCL 2.0.
    let version = unsafe { loaded(Library::Nccl)?.version(Library::Nccl) };
    let version = version.map_err(|status| Error::Foreign {
        library: "NCCL",
        call: "ncclGetVersion",
        op: "its version".into(),
        status: status.to_string(),
    })?;
    // from 2.9 on, the minor version has two digits instead of one
    let parts = if version < 10_000 { (1_000, 100) } else { (10_000, 100) };
    Ok(format!("{}.{}.{}", version / parts.0, version % parts.0 / parts.1, version % parts.1))
}

/// Returns true if NVIDIA's driver is installed.
pub fn has_driver() -> bool {
    loaded(Library::Driver).is_ok()
}

/// Returns each library with its version and file, or with the problem, for `trireme doctor`.
pub fn report() -> Vec<(String, String)> {
    let row = |library: Library| {
        let found = loaded(library).and_then(|from| Ok(format!("{}, {}", version(library)?, from.words())));
        let found = found.unwrap_or_else(|e| match library {
            Library::Nccl => {
                format!(
                    "not found; runs on several GPUs are slower without it (`reduce.path`): {}",
                    Library::Nccl.cure()
                )
            }
            _ => e.to_string(),
        });
        (format!("lib{}", library.stem()), found)
    };
    ALL.into_iter().chain([Library::Nccl]).map(row).collect()
}
