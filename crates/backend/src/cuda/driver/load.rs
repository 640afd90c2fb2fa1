//! Loads one of NVIDIA's libraries from the place that comes first, with what belongs to it, in such a way that cudarc finds it.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::alias::alias;
use super::candidates::{Candidate, candidates, cuda_of_package};
use super::nvidia::Library;
use super::places::{children, places};

/// A library in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The loader's handle, never closed.
    handle: usize,
    /// Where it came from.
    pub file: PathBuf,
    /// How many libraries of the same folder were loaded with it.
    pub companions: usize,
}

/// Loads a library; `driver` is the major version of CUDA that the driver knows. Fails with what the loader says of each file that is
/// there and does not load.
pub fn load(library: Library, driver: u32) -> Result<Loaded, Vec<String>> {
    let mut failures = Vec::new();
    let handle = choose(library, driver, &mut failures).ok_or(failures)?;
    let file = file_of(handle, library.function()).unwrap_or_default();
    let companions = library.companions().map_or(0, |prefix| companions(&file, prefix));
    if library == Library::Nccl {
        return Ok(Loaded { handle, file, companions });
    }
    // the driver keeps its own names: profilers and debuggers know it by them
    if library != Library::Driver {
        alias(&format!("lib{}.so", library.stem()), &file.to_string_lossy());
    }
    // what cudarc takes, by the names that it tries
    let names = cudarc::get_lib_name_candidates(library.stem());
    let taken = names.iter().find_map(|name| open(name.as_ref(), 0).ok());
    let taken = taken.ok_or_else(Vec::new)?;
    let file = file_of(taken, library.function()).unwrap_or(file);
    Ok(Loaded { handle: taken, file, companions })
}

impl Loaded {
    /// Where it came from, in words.
    pub fn words(&self) -> String {
        match self.companions {
            0 => self.file.display().to_string(),
            n => format!("{} and {n} more of its folder", self.file.display()),
        }
    }

    /// A function of the library; null if it has none of this name.
    pub fn function(&self, name: &CStr) -> *mut c_void {
        function(self.handle, name)
    }

    /// The same, to be called.
    ///
    /// # Safety
    /// `F` is the type of a pointer to the function.
    pub unsafe fn find<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let function = self.function(name);
        // SAFETY: the function is there, and its library stays open; the rest as the caller promises.
        (!function.is_null()).then(|| unsafe { std::mem::transmute_copy(&function) })
    }
}

/// The library that the process has already, else the first that loads: of the files of all places, then of the loader's folders, first
/// those that suit the driver.
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

/// Loads a file; notes why it does not load.
fn attempt(library: Library, file: &Path, failures: &mut Vec<String>) -> Option<usize> {
    named(library, file).map_err(|why| failures.push(why)).ok()
}

fn named(library: Library, name: &Path) -> Result<usize, String> {
    let handle = open(name, 0)?;
    if function(handle, library.function()).is_null() {
        return Err(format!("{}: it has no function {}", name.display(), library.function().to_string_lossy()));
    }
    Ok(handle)
}

/// The handle of a library, by path or by name, or what the loader says.
fn open(name: &Path, flags: c_int) -> Result<usize, String> {
    let name = CString::new(name.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
    // SAFETY: the name is a C string; NVIDIA's libraries have no initialisers that could do harm; the message is copied at once.
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
    // SAFETY: the handle was given by the loader and is never closed, the name is a C string.
    unsafe { libc::dlsym(handle as *mut c_void, name.as_ptr()) }
}

/// The file that a function of a library is in.
fn file_of(handle: usize, name: &CStr) -> Option<PathBuf> {
    let address = function(handle, name);
    // SAFETY: all zeros is a valid Dl_info; the loader fills it, and its name lives as long as the library.
    let name = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if address.is_null() || libc::dladdr(address, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(info.dli_fname).to_owned()
    };
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(name.as_bytes())))
}

/// Loads what a library opens by name later on, from the library's own folder, so that all is of one version whatever other folders
/// hold; not what attention alone needs, which is large. Gives how many; what does not load, the library will miss in its own words.
fn companions(file: &Path, prefix: &str) -> usize {
    let Some(folder) = file.parent().filter(|folder| folder.is_absolute()) else { return 0 };
    let name = |file: &PathBuf| file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let wanted = |name: &str| name.contains(".so.") && !name.contains("_adv.");
    let mut files: Vec<PathBuf> = children(folder, prefix).into_iter().filter(|file| wanted(&name(file))).collect();
    // these two are needed by the others, for which the loader would look in its own folders
    let first = ["libcudnn_graph.", "libcudnn_ops."];
    files.sort_by_key(|file| first.iter().position(|n| name(file).starts_with(n)).unwrap_or(first.len()));
    // a file that has several names has one handle
    files.iter().filter_map(|file| open(file, 0).ok()).collect::<BTreeSet<_>>().len()
}
