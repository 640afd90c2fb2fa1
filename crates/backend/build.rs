//! Generates bindings to oneDNN's C API (2.x or 3.x) with bindgen. The header is the installed one, or the one in the
//! crate `onednn-src` (feature `bundled-onednn`).

use std::env;
use std::path::PathBuf;

/// Writes `$OUT_DIR/onednn.rs` and links libdnnl and libgomp (oneDNN's own OpenMP pool, which our loops share).
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let installed = Installed::find();
    println!("cargo:rerun-if-env-changed=DNNL_INCLUDE");
    println!("cargo:rerun-if-env-changed=DNNL_LIB");
    println!("cargo:rustc-check-cfg=cfg(onednn3)");
    let mut builder = bindgen::Builder::default()
        .header_contents(
            "onednn.h",
            "#include <dnnl.h>\nint omp_get_thread_num(void);\nint omp_get_num_threads(void);\n\
             void omp_set_num_threads(int);\nvoid omp_set_dynamic(int);\n\
             void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned);\n",
        )
        .allowlist_function(
            "dnnl_.*|omp_get_thread_num|omp_get_num_threads|omp_set_dynamic|omp_set_num_threads|GOMP_parallel",
        )
        .allowlist_type("dnnl_.*")
        .allowlist_var("DNNL_.*")
        .prepend_enum_name(false)
        .layout_tests(false)
        // only rustc reads the bindings, and rustfmt may be missing
        .formatter(bindgen::Formatter::None)
        .generate_comments(false);
    if let Some(dir) = &installed.headers {
        builder = builder.clang_arg(format!("-I{dir}"));
    }
    let bindings = builder.generate().unwrap_or_else(|e| {
        panic!(
            "cannot read oneDNN's header dnnl.h: {e}. Install libdnnl-dev and libclang-dev (make setup), or set DNNL_INCLUDE"
        )
    });
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    bindings.write_to_file(out.join("onednn.rs")).expect("OUT_DIR is writable");
    match major(&bindings.to_string()) {
        Some(2) => {}
        Some(3) => println!("cargo:rustc-cfg=onednn3"),
        other => panic!(
            "dnnl.h belongs to oneDNN {}, but only 2.x and 3.x are supported. Set DNNL_INCLUDE and DNNL_LIB to the folders of one",
            other.map_or("an unknown version".into(), |version| format!("{version}.x"))
        ),
    }
    installed.link();
    println!("cargo:rustc-link-lib=dylib=gomp");
    link_gomp_search_path();
}

/// The folders of oneDNN's headers and library. `None` stands for the system's default folders.
struct Installed {
    headers: Option<String>,
    library: Option<String>,
    /// True if oneDNN is compiled with this package. The crate `onednn-src` then links its static library.
    bundled: bool,
}

impl Installed {
    fn find() -> Self {
        if env::var_os("CARGO_FEATURE_BUNDLED_ONEDNN").is_none() {
            return Self { headers: env::var("DNNL_INCLUDE").ok(), library: env::var("DNNL_LIB").ok(), bundled: false };
        }
        let headers = env::var("DEP_DNNL_INCLUDE_PATH").expect("the crate onednn-src names its headers");
        Self { headers: Some(headers), library: None, bundled: true }
    }

    fn link(&self) {
        if let Some(dir) = &self.library {
            println!("cargo:rustc-link-search=native={dir}");
        }
        // the bundled static library needs the C++ runtime
        println!("cargo:rustc-link-lib=dylib={}", if self.bundled { "stdc++" } else { "dnnl" });
    }
}

/// Returns oneDNN's major version.
fn major(bindings: &str) -> Option<u32> {
    let (_, rest) = bindings.split_once("const DNNL_VERSION_MAJOR")?;
    let (_, value) = rest.split_once(';')?.0.split_once('=')?;
    value.trim().parse().ok()
}

/// Adds the folder of libgomp.so to the linker's search path. It is gcc's own folder, which the linker knows only if
/// gcc calls it. A cross compiler's folder is known, because rustc calls that compiler to link.
fn link_gomp_search_path() {
    if env::var_os("HOST") != env::var_os("TARGET") {
        return;
    }
    let out = std::process::Command::new("gcc").arg("-print-file-name=libgomp.so").output();
    if let Ok(out) = out {
        let path = PathBuf::from(String::from_utf8_lossy(&out.stdout).trim());
        if let Some(dir) = path.parent().filter(|d| d.is_absolute()) {
            println!("cargo:rustc-link-search=native={}", dir.display());
        }
    }
}
