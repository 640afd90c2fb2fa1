//! Compiles kernels from source to machine code with NVRTC. The result is cached in a file that is named after a hash
//! of the source, the options and the compiler's version.

use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};

use super::calls::nvrtc::{self as sys, nvrtcProgram, nvrtcResult};
use super::status::nvrtc;
use super::{cache, library};
use crate::{Error, Precision};
use base::fnv;

/// The kind of code that NVRTC generates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Machine code for this compute capability.
    Gpu(i32, i32),
    /// PTX, which the driver translates for any GPU with at least this compute capability.
    Ptx(i32, i32),
}

impl Target {
    pub fn architecture(self) -> String {
        match self {
            Target::Gpu(major, minor) => format!("sm_{major}{minor}"),
            Target::Ptx(major, minor) => format!("compute_{major}{minor}"),
        }
    }
}

/// Compiled code and the compiler's log.
pub struct Compiled {
    pub code: Vec<u8>,
    /// Registers and shared memory of each kernel, if an option requests them.
    #[cfg_attr(not(test), allow(dead_code))]
    pub log: String,
}

fn options(precision: Precision, target: Target) -> Vec<String> {
    let activations = match precision {
        Precision::F32 => 0,
        Precision::Bf16 => 1,
        Precision::F16 => 2,
    };
    let (arch, precision) = (format!("-arch={}", target.architecture()), format!("-DPRECISION={activations}"));
    // generic lambdas cannot be marked `__device__`
    vec![arch, "-std=c++17".into(), "-default-device".into(), precision]
}

/// A program of NVRTC. Dropping it destroys it.
struct Program {
    raw: nvrtcProgram,
    /// Description of the program in messages.
    name: String,
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: `new` created it.
        let _ = unsafe { sys::nvrtcDestroyProgram(&mut self.raw) };
    }
}

/// Name and address of a function that returns a size.
type SizeOf = (&'static str, unsafe fn(nvrtcProgram, *mut usize) -> nvrtcResult);

/// Name and address of a function that fills a buffer of the size that [`SizeOf`] returns.
type Fill = (&'static str, unsafe fn(nvrtcProgram, *mut c_char) -> nvrtcResult);

impl Program {
    fn new(source: &str, name: String) -> Result<Self, Error> {
        let (source, file) = (c_string(source, &name)?, c"trireme.cu");
        let mut program = Self { raw: std::ptr::null_mut(), name };
        let none: *const *const c_char = std::ptr::null();
        // SAFETY: both strings live until the call returns, and the call copies them. There are no headers.
        let status =
            unsafe { sys::nvrtcCreateProgram(&mut program.raw, source.as_ptr(), file.as_ptr(), 0, none, none) };
        nvrtc(status, "nvrtcCreateProgram", &program.name)?;
        Ok(program)
    }

    fn compile(&self, options: &[String]) -> Result<(), Error> {
        let options = options.iter().map(|o| c_string(o, &self.name)).collect::<Result<Vec<_>, _>>()?;
        let pointers: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        // SAFETY: the program is valid, and the passed number is the number of pointers. `options` owns the strings.
        let status = unsafe { sys::nvrtcCompileProgram(self.raw, pointers.len() as i32, pointers.as_ptr()) };
        let log = if status == nvrtcResult::NVRTC_SUCCESS { String::new() } else { self.log()? };
        if log.is_empty() {
            return nvrtc(status, "nvrtcCompileProgram", &self.name);
        }
        let why = format!(
            "NVRTC cannot compile the kernel sources. If TRIREME_KERNELS replaces sources, correct those files; otherwise please report \
             this with the output of `trireme doctor`. The compiler's log:\n{log}"
        );
        Err(Error::Unsupported { op: self.name.clone(), why })
    }

    fn read(&self, size_of: SizeOf, fill: Fill) -> Result<Vec<u8>, Error> {
        let mut size = 0;
        // SAFETY: the program is valid. The second call fills as many bytes as the first one reported.
        unsafe {
            nvrtc((size_of.1)(self.raw, &mut size), size_of.0, &self.name)?;
            let mut bytes = vec![0u8; size];
            nvrtc((fill.1)(self.raw, bytes.as_mut_ptr().cast()), fill.0, &self.name)?;
            Ok(bytes)
        }
    }

    fn code(&self, target: Target) -> Result<Vec<u8>, Error> {
        match target {
            Target::Gpu(..) => {
                self.read(("nvrtcGetCUBINSize", sys::nvrtcGetCUBINSize), ("nvrtcGetCUBIN", sys::nvrtcGetCUBIN))
            }
            Target::Ptx(..) => self.read(("nvrtcGetPTXSize", sys::nvrtcGetPTXSize), ("nvrtcGetPTX", sys::nvrtcGetPTX)),
        }
    }

    fn log(&self) -> Result<String, Error> {
        let size_of: SizeOf = ("nvrtcGetProgramLogSize", sys::nvrtcGetProgramLogSize);
        let text = self.read(size_of, ("nvrtcGetProgramLog", sys::nvrtcGetProgramLog))?;
        Ok(String::from_utf8_lossy(&text).trim_end_matches(['\0', '\n']).to_string())
    }
}

fn c_string(text: &str, op: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|e| Error::Unsupported { op: op.into(), why: e.to_string() })
}

/// Compiles kernels with the usual options and `more`. The library must be loaded.
pub fn compile(source: &str, precision: Precision, target: Target, more: &[&str]) -> Result<Compiled, Error> {
    let program = Program::new(source, format!("the kernels in {precision} for {}", target.architecture()))?;
    let more = more.iter().map(|o| o.to_string());
    program.compile(&options(precision, target).into_iter().chain(more).collect::<Vec<_>>())?;
    Ok(Compiled { code: program.code(target)?, log: program.log()? })
}

/// Returns the kernels for a GPU, from the cache or newly compiled. If NVRTC is too old for the GPU, returns PTX.
pub fn for_gpu(source: &str, precision: Precision, (major, minor): (i32, i32)) -> Result<Vec<u8>, Error> {
    let (target, version) = (Target::Gpu(major, minor), library::nvrtc_version()?);
    if version >= (13, 0) && (major, minor) < (7, 5) {
        let gpu = format!("a GPU of compute capability {major}.{minor}");
        let why = format!(
            "NVRTC {}.{} cannot compile for {gpu}; load the NVRTC of CUDA 12, or use --device cpu",
            version.0, version.1
        );
        return Err(Error::Absent { what: "CUDA".into(), why });
    }
    let file = cache::folder().map(|folder| folder.join(file_name(source, precision, target, version)));
    if let Some(code) = file.as_deref().and_then(cache::read) {
        return Ok(code);
    }
    let compiled = match compile(source, precision, target, &[]) {
        // Every NVRTC since CUDA 11 supports compute_75, but NVRTC 11.0 supports no compute capability above
        // 8.0. If the sources have an error, the message is about compute_75.
        Err(_) if (major, minor) > (7, 5) => compile(source, precision, Target::Ptx(7, 5), &[])?,
        other => other?,
    };
    if let Some(file) = file {
        cache::write(&file, &compiled.code);
    }
    Ok(compiled.code)
}

fn file_name(source: &str, precision: Precision, target: Target, version: (i32, i32)) -> PathBuf {
    let text = format!("{source}\n{:?}\n{version:?}", options(precision, target));
    let name = format!("kernels-{}-{precision}-{:016x}.cubin", target.architecture(), fnv::hash(text.as_bytes()));
    Path::new(&name).to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_file_names_differ_by_source_options_and_compiler() {
        let all = [
            file_name("a", Precision::F32, Target::Gpu(9, 0), (13, 0)),
            file_name("b", Precision::F32, Target::Gpu(9, 0), (13, 0)),
            file_name("a", Precision::F32, Target::Gpu(8, 0), (13, 0)),
            file_name("a", Precision::Bf16, Target::Gpu(9, 0), (13, 0)),
            file_name("a", Precision::F32, Target::Gpu(9, 0), (12, 9)),
        ];
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len());
    }
}
