//! Builds and loads the emulated CUDA libraries of `tests/emulator`, so that the CUDA backend can be tested without a GPU.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The emulated libraries in the order of loading: each library needs some that come earlier in the list.
const LIBRARIES: &[&str] = &["libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13", "libcudnn.so.9", "libnccl.so.2"];

/// Returns true if the tests use the real GPU of this machine.
pub fn real_gpu() -> bool {
    cfg!(feature = "real-gpu")
}

/// Returns the folder of the emulated libraries and builds them if they are older than their sources. Panics if they cannot be built.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(build)
}

fn build() -> PathBuf {
    if !cfg!(target_arch = "x86_64") {
        panic!("the emulated GPU runs on x86-64 only; use a real GPU: --features real-gpu");
    }
    for program in ["g++", "make"] {
        let works = Command::new(program).arg("--version").output().is_ok_and(|ended| ended.status.success());
        assert!(
            works,
            "the emulated GPU cannot be built: no {program}; install it with `make setup` (build-essential)"
        );
    }
    let folder = crate::built().with_file_name("emulator");
    fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let lock = File::create(folder.join("lock")).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    lock.lock().unwrap_or_else(|e| panic!("locking {}: {e}", folder.display()));
    let sources = crate::in_repository("tests/emulator");
    let made = Command::new("make")
        .args(["-s", "-C"])
        .arg(&sources)
        .arg(format!("OUT={}", folder.display()))
        .env_remove("MAKEFLAGS")
        .output()
        .unwrap_or_else(|e| panic!("make: {e}"));
    assert!(made.status.success(), "make in {}:\n{}", sources.display(), String::from_utf8_lossy(&made.stderr));
    folder
}

/// Loads the libraries into this process. The dynamic loader recognises a loaded library by its soname, so cudarc then finds them.
///
/// Panics if they cannot be built or if cudarc finds another driver.
pub fn load() {
    static LOADED: OnceLock<()> = OnceLock::new();
    LOADED.get_or_init(|| {
        for library in LIBRARIES {
            let path = CString::new(folder().join(library).into_os_string().into_encoded_bytes()).unwrap_or_default();
            // SAFETY: the libraries' constructors have no unsafe effects, and the message of dlerror is copied at once
            unsafe {
                if libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL).is_null() {
                    panic!("{}", CStr::from_ptr(libc::dlerror()).to_string_lossy());
                }
            }
        }
        let name = cudarc::driver::CudaContext::new(0).and_then(|context| context.name());
        assert!(
            name.as_ref().is_ok_and(|name| name.starts_with("Emulated")),
            "cudarc has found another driver before the emulated GPU's: {name:?}; to test on this machine's GPU, run \
             `make test-gpu` or `cargo test --features real-gpu`"
        );
    });
}

/// Returns how often this process has called the driver function `name`. Returns `None` on a real GPU.
pub fn calls(name: &str) -> Option<u64> {
    let call = CString::new(name).ok()?;
    // SAFETY: the emulated driver defines this symbol as a function with this signature; a missing symbol becomes
    // `None`
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"trireme_emulated_calls".as_ptr());
        let count: Option<extern "C" fn(*const libc::c_char) -> u64> = std::mem::transmute(found);
        count.map(|count| count(call.as_ptr()))
    }
}

/// Returns the environment variable with which a program finds the emulated libraries, for `Command::env` or `mpirun
/// -x`.
pub fn library_path() -> (&'static str, String) {
    let folder = folder().display().to_string();
    match std::env::var("LD_LIBRARY_PATH") {
        Ok(others) if !others.is_empty() => ("LD_LIBRARY_PATH", format!("{folder}:{others}")),
        _ => ("LD_LIBRARY_PATH", folder),
    }
}

pub fn empty_library(file: &Path) {
    let soname = format!("-Wl,-soname,{}", file.file_name().unwrap_or_default().to_string_lossy());
    let mut compiler = Command::new("g++");
    compiler.args(["-shared", "-x", "c++", "/dev/null", &soname, "-o"]).arg(file);
    assert!(compiler.status().is_ok_and(|status| status.success()), "{}", file.display());
}

/// Runs one ignored test of this test binary in a separate process, with these environment variables.
pub fn alone(test: &str, settings: &[(&str, &str)]) -> Output {
    let own = std::env::current_exe().unwrap_or_else(|e| panic!("the test's own path: {e}"));
    Command::new(own)
        .args(["--exact", test, "--include-ignored", "--nocapture"])
        .envs(settings.iter().copied())
        .output()
        .unwrap_or_else(|e| panic!("{test}: {e}"))
}
