//! Our kernels from source to the card's machine code: NVRTC, once; afterwards from a file, whose name is a hash of the source, of
//! the options and of the compiler's version.

use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};

use cudarc::nvrtc::sys;

use crate::backend::cuda::driver::library;
use crate::backend::cuda::driver::status::nvrtc;
use crate::backend::{Error, Precision, Rule};

/// All sources, in the order in which they are put together.
pub const SOURCES: &[(&str, &str)] = &[
    ("common.cuh", include_str!("../kernels/common.cuh")),
    ("columns.cuh", include_str!("../kernels/columns.cuh")),
    ("elementwise.cu", include_str!("../kernels/elementwise.cu")),
    ("bias.cu", include_str!("../kernels/bias.cu")),
    ("norm.cu", include_str!("../kernels/norm.cu")),
    ("pool.cu", include_str!("../kernels/pool.cu")),
    ("lrn.cu", include_str!("../kernels/lrn.cu")),
    ("shortcut.cu", include_str!("../kernels/shortcut.cu")),
    ("dropout.cu", include_str!("../kernels/dropout.cu")),
    ("loss.cu", include_str!("../kernels/loss.cu")),
    ("arena.cu", include_str!("../kernels/arena.cu")),
    ("update.cu", include_str!("../kernels/update.cu")),
    ("input.cu", include_str!("../kernels/input.cu")),
    ("codec.cu", include_str!("../kernels/codec.cu")),
];

/// What NVRTC is to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Machine code for this compute capability.
    Card(i32, i32),
    /// PTX, which the driver translates for any card from this compute capability on.
    Ptx(i32, i32),
}

impl Target {
    fn architecture(self) -> String {
        match self {
            Target::Card(major, minor) => format!("sm_{major}{minor}"),
            Target::Ptx(major, minor) => format!("compute_{major}{minor}"),
        }
    }
}

/// The kernels as one text.
pub fn source() -> String {
    SOURCES.iter().chain(Rule::SOURCES).map(|(name, text)| format!("#line 1 \"{name}\"\n{text}")).collect()
}

fn options(precision: Precision, target: Target) -> Vec<String> {
    let activations = match precision {
        Precision::F32 => 0,
        Precision::Bf16 => 1,
        Precision::F16 => 2,
    };
    vec![format!("-arch={}", target.architecture()), "-std=c++17".into(), format!("-DPRECISION={activations}")]
}

/// A program of NVRTC's.
struct Program(sys::nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: created by `compile`.
        let _ = unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
    }
}

/// Compiles the kernels. The library must be there.
pub fn compile(precision: Precision, target: Target) -> Result<Vec<u8>, Error> {
    compile_with(precision, target, &[]).map(|(code, _)| code)
}

/// Compiles the kernels, with these options too; gives the code and the compiler's log.
fn compile_with(precision: Precision, target: Target, more: &[&str]) -> Result<(Vec<u8>, String), Error> {
    let op = format!("the kernels in {precision} for {}", target.architecture());
    let text = |s: String| CString::new(s).map_err(|e| Error::Unsupported { op: op.clone(), why: e.to_string() });
    let (source, name) = (text(source())?, text("trireme.cu".into())?);
    let mut program = Program(std::ptr::null_mut());
    // SAFETY: both strings live until the program is destroyed; there are no headers.
    let status = unsafe {
        let none = std::ptr::null();
        sys::nvrtcCreateProgram(&mut program.0, source.as_ptr(), name.as_ptr(), 0, none, none)
    };
    nvrtc(status, "nvrtcCreateProgram", &op)?;
    let more = more.iter().map(|o| (*o).into());
    let options = options(precision, target).into_iter().chain(more).map(text).collect::<Result<Vec<_>, _>>()?;
    let pointers: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
    // SAFETY: the program is valid, and so are as many strings as said.
    let status = unsafe { sys::nvrtcCompileProgram(program.0, pointers.len() as i32, pointers.as_ptr()) };
    if status != sys::nvrtcResult::NVRTC_SUCCESS {
        nvrtc(status, "nvrtcCompileProgram", &format!("{op}: {}", log(&program, &op)?))?;
    }
    // SAFETY: the program is compiled; the second call fills as many bytes as the first gave.
    unsafe {
        let mut size = 0;
        let mut code;
        match target {
            Target::Card(..) => {
                nvrtc(sys::nvrtcGetCUBINSize(program.0, &mut size), "nvrtcGetCUBINSize", &op)?;
                code = vec![0u8; size];
                nvrtc(sys::nvrtcGetCUBIN(program.0, code.as_mut_ptr().cast()), "nvrtcGetCUBIN", &op)?;
            }
            Target::Ptx(..) => {
                nvrtc(sys::nvrtcGetPTXSize(program.0, &mut size), "nvrtcGetPTXSize", &op)?;
                code = vec![0u8; size];
                nvrtc(sys::nvrtcGetPTX(program.0, code.as_mut_ptr().cast()), "nvrtcGetPTX", &op)?;
            }
        }
        Ok((code, log(&program, &op)?))
    }
}

fn log(program: &Program, op: &str) -> Result<String, Error> {
    let mut size = 0;
    // SAFETY: the program is valid; the second call fills as many bytes as the first gave.
    unsafe {
        nvrtc(sys::nvrtcGetProgramLogSize(program.0, &mut size), "nvrtcGetProgramLogSize", op)?;
        let mut text = vec![0u8; size];
        nvrtc(sys::nvrtcGetProgramLog(program.0, text.as_mut_ptr().cast()), "nvrtcGetProgramLog", op)?;
        Ok(String::from_utf8_lossy(&text).trim_end_matches(['\0', '\n']).to_string())
    }
}

/// The kernels for a card: from the cache, else compiled and put there. Where NVRTC is older than the card, PTX.
pub fn for_card(precision: Precision, (major, minor): (i32, i32)) -> Result<Vec<u8>, Error> {
    let (target, version) = (Target::Card(major, minor), library::nvrtc_version()?);
    let file =
        crate::backend::cuda::driver::cache::folder().map(|folder| folder.join(file_name(precision, target, version)));
    if let Some(code) = file.as_deref().and_then(crate::backend::cuda::driver::cache::read) {
        return Ok(code);
    }
    let code = match compile(precision, target) {
        // the last architecture that every NVRTC since 11 knows
        Err(_) if (major, minor) > (9, 0) => compile(precision, Target::Ptx(7, 5))?,
        other => other?,
    };
    if let Some(file) = file {
        crate::backend::cuda::driver::cache::write(&file, &code);
    }
    Ok(code)
}

fn file_name(precision: Precision, target: Target, version: (i32, i32)) -> PathBuf {
    let text = format!("{}\n{:?}\n{version:?}", source(), options(precision, target));
    let name = format!(
        "kernels-{}-{precision}-{:016x}.cubin",
        target.architecture(),
        crate::backend::cuda::driver::cache::hash(text.as_bytes())
    );
    Path::new(&name).to_path_buf()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::backend::cuda::driver::library::Library;

    /// Whether NVRTC is there; says so if not, and fails where `make test-cuda-check` has fetched it.
    fn nvrtc_is_there() -> bool {
        let found = library::require(Library::Nvrtc);
        let must = std::env::var_os("TRIREME_CUDA_CHECK").is_some();
        assert!(!must || found.is_ok(), "NVRTC was fetched, but does not load: {found:?}");
        if let Err(e) = &found {
            // past the test harness, which keeps what tests print
            let _ = writeln!(std::io::stderr(), "SKIPPED (1 test): the kernels are not compiled: {e}");
        }
        found.is_ok()
    }

    #[test]
    fn all_kernels_compile_for_every_architecture_and_precision() {
        if !nvrtc_is_there() {
            return;
        }
        for precision in [Precision::F32, Precision::Bf16, Precision::F16] {
            for target in [Target::Card(8, 0), Target::Card(9, 0), Target::Ptx(7, 5)] {
                let verbose = ["--ptxas-options=-v"];
                let (code, log) = compile_with(precision, target, &verbose).unwrap_or_else(|e| panic!("{e}"));
                assert!(code.len() > 10_000, "{precision} for {target:?}: {} bytes", code.len());
                if let Target::Card(..) = target {
                    println!("{precision} for {}: {}", target.architecture(), pressure(&log));
                }
            }
        }
    }

    /// The most registers and the most shared memory that a kernel takes, and which kernels spill, from the assembler's log.
    fn pressure(log: &str) -> String {
        let number = |text: &str, unit: &str| {
            let before = text.split(unit).next()?;
            before.rsplit(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty())?.parse::<u32>().ok()
        };
        let (mut kernel, mut kernels, mut registers, mut shared) = ("", 0, 0, 0);
        let mut spills = Vec::new();
        for line in log.lines() {
            if let Some((_, name)) = line.split_once("Function properties for ") {
                (kernel, kernels) = (name.trim(), kernels + 1);
            }
            if line.contains("bytes spill stores") {
                let bytes = number(line, " bytes spill stores").filter(|bytes| *bytes > 0);
                spills.extend(bytes.map(|bytes| format!("{kernel} {bytes} bytes")));
            }
            if line.contains("Used ") {
                registers = registers.max(number(line, " registers").unwrap_or(0));
                shared =
                    shared.max(if line.contains(" bytes smem") { number(line, " bytes smem").unwrap_or(0) } else { 0 });
            }
        }
        assert!(kernels > 0 && registers > 0, "no kernels in the log:\n{log}");
        // a block has 48 KiB without asking for more
        assert!(shared <= 48 << 10, "{shared} bytes of shared memory");
        let spills = if spills.is_empty() { "nothing spills".into() } else { format!("spills: {}", spills.join(", ")) };
        format!("{kernels} kernels, at most {registers} registers and {shared} bytes of shared memory, {spills}")
    }

    #[test]
    fn the_cache_knows_sources_options_and_compilers_apart() {
        let name = |p, t, v| file_name(p, t, v);
        let all = [
            name(Precision::F32, Target::Card(9, 0), (13, 0)),
            name(Precision::F32, Target::Card(8, 0), (13, 0)),
            name(Precision::Bf16, Target::Card(9, 0), (13, 0)),
            name(Precision::F32, Target::Card(9, 0), (12, 9)),
        ];
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len());
    }
}
