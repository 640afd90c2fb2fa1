//! Loads each of NVIDIA's libraries once, from the first place that has it, with its companion libraries.
//!
//! cudarc loads the driver when one of its functions is first called, and panics if the driver is missing, as do our own
//! [`calls`](super::calls) of the other libraries. So everything else in this backend must call [`require`] first.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

pub use super::search::{ALL, Library};
use super::search::{Candidate, SEARCHED_PLACES, candidates, children, cuda_of_package, places};
use crate::Error;

/// A library that is loaded in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The dynamic loader's handle. It is never closed.
    handle: usize,
    /// The file that was loaded.
    pub file: PathBuf,
    /// Number of libraries that were loaded from the same folder together with this library.
    pub companions: usize,
}

/// Loads a library. `driver` is the major CUDA version that the driver supports. On failure, returns the dynamic
/// loader's message for each file that exists but does not load.
pub fn load(library: Library, driver: u32) -> Result<Loaded, Vec<String>> {
    let mut failures = Vec::new();
    let handle = choose(library, driver, &mut failures).ok_or(failures)?;
    let file = file_of(handle, library.function()).unwrap_or_default();
    let companions = library.companions().map_or(0, |prefix| companions(&file, prefix));
    if library != Library::Driver {
        return Ok(Loaded { handle, file, companions });
    }
    // cudarc opens the driver by its own list of names, so report the file that cudarc gets
    let names = cudarc::get_lib_name_candidates(library.stem());
    let taken = names.iter().find_map(|name| open(name.as_ref(), 0).ok());
    let taken = taken.ok_or_else(Vec::new)?;
    let file = file_of(taken, library.function()).unwrap_or(file);
    Ok(Loaded { handle: taken, file, companions })
}

impl Loaded {
    /// Describes the file for messages.
    pub fn words(&self) -> String {
        match self.companions {
            0 => self.file.display().to_string(),
            n => format!("{} and {n} more from its folder", self.file.display()),
        }
    }

    /// Returns the version that the library's [`Library::function`] reports, or the status with which the function
    /// fails.
    ///
    /// # Safety
    /// The function must take a pointer to an `int` and return an `int`.
    pub unsafe fn version(&self, library: Library) -> Result<c_int, c_int> {
        let mut version: c_int = 0;
        // SAFETY: the caller guarantees the type, and the pointer is valid for the call.
        let status = unsafe {
            let function: Option<unsafe extern "C" fn(*mut c_int) -> c_int> = self.find(library.function());
            function.map_or(-1, |function| function(&mut version))
        };
        if status == 0 { Ok(version) } else { Err(status) }
    }

    /// Returns a function of the library as a function pointer, or `None` if the library does not have it.
    ///
    /// # Safety
    /// `F` must be the type of a pointer to the function.
    pub unsafe fn find<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let function = function(self.handle, name);
        // SAFETY: the function exists, and its library stays open. The caller guarantees the type.
        (!function.is_null()).then(|| unsafe { std::mem::transmute_copy(&function) })
    }
}

/// Returns the library that the process has already loaded, or otherwise the first one that loads. Tries versions that
/// suit the driver first: the files in all places, then the dynamic loader's own folders.
fn choose(library: Library, driver: u32, failures: &mut Vec<String>) -> Option<usize> {
    let names = library.names(driver);
    if let Some(there) = names.iter().find_map(|name| open(name.as_ref(), libc::RTLD_NOLOAD).ok()) {
        return Some(there);
    }
    let places = places(&|name| std::env::var_os(name), Path::new("/"));
    let files = if library == Library::Driver { Vec::new() } else { candidates(library.stem(), &places) };
    let suits = |candidate: &Candidate| {
        let package = cuda_of_package(library.stem(), &candidate.file);
        library.suits(&candidate.version, driver) && package.is_none_or(|cuda| cuda <= driver)
    };
    let (good, other): (Vec<_>, Vec<_>) = files.into_iter().partition(suits);
    let mut first = |files: Vec<Candidate>| files.into_iter().find_map(|c| attempt(library, &c.file, failures));
    let by_name = || names.iter().find_map(|name| named(library, name.as_ref()).ok());
    first(good).or_else(by_name).or_else(|| first(other))
}

/// Loads a file. If that fails, adds the reason to `failures`.
fn attempt(library: Library, file: &Path, failures: &mut Vec<String>) -> Option<usize> {
    named(library, file).map_err(|why| failures.push(why)).ok()
}

fn named(library: Library, name: &Path) -> Result<usize, String> {
    let handle = open(name, 0)?;
    if function(handle, library.function()).is_null() {
        return Err(format!(
            "{}: the library has no function {}",
            name.display(),
            library.function().to_string_lossy()
        ));
    }
    Ok(handle)
}

/// Opens a library by path or name. Returns its handle or the dynamic loader's message.
fn open(name: &Path, flags: c_int) -> Result<usize, String> {
    let name = CString::new(name.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
    // SAFETY: the name is a C string. The initialisers of NVIDIA's libraries are harmless. The message is copied at
    // once.
    unsafe {
        let handle = libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL | flags);
        if !handle.is_null() {
            return Ok(handle as usize);
        }
        let words = libc::dlerror();
        Err(if words.is_null() { "no reason".into() } else { CStr::from_ptr(words).to_string_lossy().into_owned() })
    }
}

fn function(handle: usize, name: &CStr) -> *mut c_void {
    // SAFETY: the handle is from dlopen and is never closed, and the name is a C string.
    unsafe { libc::dlsym(handle as *mut c_void, name.as_ptr()) }
}

/// Returns the file that contains a function of a library.
fn file_of(handle: usize, name: &CStr) -> Option<PathBuf> {
    let address = function(handle, name);
    // SAFETY: an all-zero Dl_info is valid. dladdr fills it, and its name lives as long as the library.
    let name = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if address.is_null() || libc::dladdr(address, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(info.dli_fname).to_owned()
    };
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name.as_bytes())))
}

/// Loads libraries from the folder of `file` that the library would open later by name, so that all have the same
/// version. Skips cuDNN's libraries for attention, which are large. Returns the number of loaded files. If a file does
/// not load, the library reports the failure itself when it needs the file.
fn companions(file: &Path, prefix: &str) -> usize {
    let Some(folder) = file.parent().filter(|folder| folder.is_absolute()) else { return 0 };
    let name = |file: &PathBuf| file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let wanted = |name: &str| name.contains(".so.") && !name.contains("_adv.");
    let mut files: Vec<PathBuf> = children(folder, prefix).into_iter().filter(|file| wanted(&name(file))).collect();
    // The other libraries depend on these two, so load them first. Otherwise the dynamic loader would take them from
    // its own folders.
    let first = ["libcudnn_graph.", "libcudnn_ops."];
    files.sort_by_key(|file| first.iter().position(|n| name(file).starts_with(n)).unwrap_or(first.len()));
    // all names of a file have the same handle, so each file counts once
    files.iter().filter_map(|file| open(file, 0).ok()).collect::<BTreeSet<_>>().len()
}

// The libraries loaded so far, and the error for a missing library.

/// Returns a library, and loads it at the first call.
///
/// # Errors
///
/// Returns an error if the library is missing. The error names the library, the searched places, the files that did not
/// load and why, and the remedy.
pub fn loaded(library: Library) -> Result<&'static Loaded, Error> {
    static FOUND: [OnceLock<Loaded>; 5] = [const { OnceLock::new() }; 5];
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let found = &FOUND[library as usize];
    if let Some(loaded) = found.get() {
        return Ok(loaded);
    }
    // find the driver before taking the lock, because the other libraries need its version
    let driver = if library == Library::Driver { u32::MAX } else { driver_major() };
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(loaded) = found.get() {
        return Ok(loaded);
    }
    let loaded = load(library, driver).map_err(|failures| absent(library, &failures))?;
    Ok(found.get_or_init(|| loaded))
}

/// Returns a function of a library. Panics if the library is missing or lacks the function.
///
/// # Safety
/// `F` must be the type of a pointer to the function.
pub unsafe fn required<F: Copy>(library: Library, name: &str) -> F {
    let c_name = CString::new(name).expect("a function's name");
    // SAFETY: the caller ensures that `F` is the function's type.
    let function = loaded(library).ok().and_then(|loaded| unsafe { loaded.find(&c_name) });
    function.unwrap_or_else(|| panic!("lib{} has no function {name}", library.stem()))
}

/// Loads a library if necessary. Returns an error if it is missing, see [`loaded`].
pub fn require(library: Library) -> Result<(), Error> {
    loaded(library).map(|_| ())
}

/// Returns the major CUDA version that the driver supports, or `u32::MAX` if there is no driver.
fn driver_major() -> u32 {
    let Ok(driver) = loaded(Library::Driver) else { return u32::MAX };
    // SAFETY: cuDriverGetVersion has this type and needs no initialisation.
    let version = unsafe { driver.version(Library::Driver) };
    version.map_or(u32::MAX, |version| version as u32 / 1000)
}

fn absent(library: Library, failures: &[String]) -> Error {
    let stem = library.stem();
    let folders = match std::env::var("LD_LIBRARY_PATH") {
        Ok(path) if !path.is_empty() => format!("the folders of LD_LIBRARY_PATH ({path})"),
        _ => "LD_LIBRARY_PATH (not set)".to_string(),
    };
    let places = if library == Library::Driver { String::new() } else { format!(", {}", SEARCHED_PLACES) };
    let failures: String = failures.iter().map(|why| format!("; {why}")).collect();
    let why = format!(
        "lib{stem} was not found or could not be loaded; searched for lib{stem}.so* in {folders}{places} and the \
         system's folders (/etc/ld.so.conf, /lib, /usr/lib){failures}; {}",
        library.cure()
    );
    let what = if library == Library::Nccl { "NCCL" } else { "CUDA" };
    Error::Absent { what: what.into(), why }
}

/// Copies a C string that a library owns.
///
/// # Safety
/// `text` must be null or a C string that lives as long as the library.
pub unsafe fn words(text: *const c_char) -> String {
    if text.is_null() {
        return "no name".into();
    }
    // SAFETY: the caller passes null or a C string, and `text` is not null.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
