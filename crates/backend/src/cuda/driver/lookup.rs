//! NVIDIA's libraries: which are there, and what to do where one is missing.
//!
//! cudarc loads them when one of their functions is first called, and panics where they are missing: everything else in this backend
//! comes after [`require`].

use std::ffi::{CStr, c_char, c_int};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::load::{Loaded, load};
pub use super::nvidia::{ALL, Library};
use super::places;
use crate::Error;

/// The library in this process: loaded at the first call that finds it. Fails where there is none: under which name and where it was
/// looked for, which files do not load and why, and the cure.
pub fn loaded(library: Library) -> Result<&'static Loaded, Error> {
    static FOUND: [OnceLock<Loaded>; 5] = [const { OnceLock::new() }; 5];
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let found = &FOUND[library as usize];
    if let Some(loaded) = found.get() {
        return Ok(loaded);
    }
    // the driver is looked for before the lock is taken, since the others ask for its version
    let driver = if library == Library::Driver { u32::MAX } else { driver_major() };
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(loaded) = found.get() {
        return Ok(loaded);
    }
    let loaded = load(library, driver).map_err(|failures| absent(library, &failures))?;
    Ok(found.get_or_init(|| loaded))
}

/// Fails where a library is not there, see [`loaded`].
pub fn require(library: Library) -> Result<(), Error> {
    loaded(library).map(|_| ())
}

/// The major version of CUDA that the driver knows; the largest number where there is no driver.
fn driver_major() -> u32 {
    let Ok(driver) = loaded(Library::Driver) else { return u32::MAX };
    let mut version: c_int = 0;
    let function = driver.function(Library::Driver.function());
    // SAFETY: the driver's function of this name has this type and needs no initialisation; the pointer is valid for the call, and the
    // library was loaded because it has the function.
    let status = unsafe {
        let function: unsafe extern "C" fn(*mut c_int) -> c_int = std::mem::transmute(function);
        function(&mut version)
    };
    if status == 0 { version as u32 / 1000 } else { u32::MAX }
}

fn absent(library: Library, failures: &[String]) -> Error {
    let stem = library.stem();
    let folders = match std::env::var("LD_LIBRARY_PATH") {
        Ok(path) if !path.is_empty() => format!("the folders of LD_LIBRARY_PATH ({path})"),
        _ => "LD_LIBRARY_PATH (which is not set)".to_string(),
    };
    let places = if library == Library::Driver { String::new() } else { format!(", {}", places::WORDS) };
    let failures: String = failures.iter().map(|why| format!("; {why}")).collect();
    let why = format!(
        "lib{stem} is not there, or does not load; looked for lib{stem}.so* in {folders}{places} and the system's folders \
         (/etc/ld.so.conf, /lib, /usr/lib){failures}; {}",
        library.cure()
    );
    let what = if library == Library::Nccl { "NCCL" } else { "CUDA" };
    Error::Absent { what: what.into(), why }
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
