//! Our kernels on a card, and launches whose arguments are checked against the kernels' own text.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::Arc;

use cudarc::driver::sys;

use crate::backend::Error;
use crate::backend::cuda::driver::compile;
use crate::backend::cuda::driver::context::Context;
use crate::backend::cuda::driver::status::driver;
use crate::backend::cuda::driver::stream::Stream;
use crate::backend::cuda::settings::Precision;

/// Threads of a block, in every kernel.
pub const THREADS: u32 = 256;

/// One argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub enum Arg {
    /// An address on the card; 0 is null.
    At(u64),
    /// `int`.
    I32(i32),
    /// `u32`.
    U32(u32),
    /// `u64`.
    U64(u64),
    /// `float`.
    F32(f32),
    /// `double`.
    F64(f64),
}

impl Arg {
    fn kind(&self) -> Kind {
        match self {
            Arg::At(_) => Kind::Pointer,
            Arg::I32(_) => Kind::I32,
            Arg::U32(_) => Kind::U32,
            Arg::U64(_) => Kind::U64,
            Arg::F32(_) => Kind::F32,
            Arg::F64(_) => Kind::F64,
        }
    }

    /// Where its value lies.
    fn value(&mut self) -> *mut c_void {
        match self {
            Arg::At(v) | Arg::U64(v) => std::ptr::from_mut(v).cast(),
            Arg::I32(v) => std::ptr::from_mut(v).cast(),
            Arg::U32(v) => std::ptr::from_mut(v).cast(),
            Arg::F32(v) => std::ptr::from_mut(v).cast(),
            Arg::F64(v) => std::ptr::from_mut(v).cast(),
        }
    }
}

/// What a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pointer,
    I32,
    U32,
    U64,
    F32,
    F64,
}

/// Kernels and their parameters, read from the source.
fn signatures(source: &str) -> HashMap<String, Vec<Kind>> {
    let kernels = source.split("extern \"C\" __global__ void ").skip(1);
    let one = |text: &str| {
        // `__launch_bounds__(256) name(...)`
        let text =
            text.strip_prefix("__launch_bounds__").map_or(text, |rest| rest.split_once(") ").map_or("", |p| p.1));
        let (name, rest) = text.split_once('(')?;
        let (list, _) = rest.split_once(')')?;
        let parameters = list.split(',').map(kind).collect::<Option<Vec<_>>>()?;
        Some((name.to_string(), parameters))
    };
    kernels.filter_map(one).collect()
}

fn kind(parameter: &str) -> Option<Kind> {
    if parameter.contains('*') {
        return Some(Kind::Pointer);
    }
    match parameter.split_whitespace().next()? {
        "int" => Some(Kind::I32),
        "u32" => Some(Kind::U32),
        "u64" => Some(Kind::U64),
        "float" => Some(Kind::F32),
        "double" => Some(Kind::F64),
        _ => None,
    }
}

struct Kernel {
    function: sys::CUfunction,
    parameters: Vec<Kind>,
}

/// The module of all kernels.
pub struct Kernels {
    module: sys::CUmodule,
    kernels: HashMap<String, Kernel>,
    context: Arc<Context>,
}

// SAFETY: a module and its functions may be used from any thread with their context bound.
unsafe impl Send for Kernels {}
// SAFETY: as above; nothing changes them after `load`, and the driver locks.
unsafe impl Sync for Kernels {}

impl Kernels {
    /// Compiles (or finds) and loads them.
    pub fn load(context: &Arc<Context>, precision: Precision) -> Result<Self, Error> {
        context.bind()?;
        let code = compile::for_card(precision, context.card.capability)?;
        let mut module = std::ptr::null_mut();
        // SAFETY: the context is bound; the code is a whole cubin, or PTX that ends in a zero byte as NVRTC makes it.
        let status = unsafe { sys::cuModuleLoadData(&mut module, code.as_ptr().cast()) };
        driver(status, "cuModuleLoadData", format!("the kernels for {}", context.card.name))?;
        let mut all = Self { module, kernels: HashMap::new(), context: context.clone() };
        for (name, parameters) in signatures(&compile::source()) {
            let mut function = std::ptr::null_mut();
            let c_name =
                CString::new(name.as_str()).map_err(|e| Error::Unsupported { op: name.clone(), why: e.to_string() })?;
            // SAFETY: the module is loaded, the name a C string.
            let status = unsafe { sys::cuModuleGetFunction(&mut function, module, c_name.as_ptr()) };
            driver(status, "cuModuleGetFunction", name.clone())?;
            all.kernels.insert(name, Kernel { function, parameters });
        }
        Ok(all)
    }

    /// Enqueues a kernel over a grid (x, y) of blocks of [`THREADS`].
    ///
    /// # Safety
    /// Every address must be null where the kernel allows it, else of memory that holds what the kernel reads and writes until
    /// the stream is through.
    pub unsafe fn launch(&self, stream: &Stream, name: &str, grid: (u32, u32), args: &[Arg]) -> Result<(), Error> {
        let wrong = |why: String| Error::Unsupported { op: format!("kernel {name}"), why };
        let kernel = self.kernels.get(name).ok_or_else(|| wrong("there is none of this name".into()))?;
        if !args.iter().map(Arg::kind).eq(kernel.parameters.iter().copied()) {
            return Err(wrong(format!("it takes {:?}, got {args:?}", kernel.parameters)));
        }
        let mut args = args.to_vec();
        let mut pointers: Vec<*mut c_void> = args.iter_mut().map(Arg::value).collect();
        // SAFETY: as many arguments of such types as the kernel has, which the driver copies; the rest as the caller promises.
        let status = unsafe {
            let (x, y) = (grid.0.max(1), grid.1.max(1));
            let (none, pointers) = (std::ptr::null_mut(), pointers.as_mut_ptr());
            sys::cuLaunchKernel(kernel.function, x, y, 1, THREADS, 1, 1, 0, stream.handle(), pointers, none)
        };
        driver(status, "cuLaunchKernel", name)
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: loaded by `load`.
            let _ = unsafe { sys::cuModuleUnload(self.module) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_of_the_sources_has_a_known_signature() {
        let source = compile::source();
        let found = signatures(&source);
        assert_eq!(found.len(), source.matches("__global__ void").count());
        use Kind::*;
        assert_eq!(found["relu_forward"], [Pointer, Pointer, U64]);
        assert_eq!(found["bias_backward"], [Pointer, Pointer, Pointer, U64, U32, I32]);
        assert_eq!(found["dropout"], [Pointer, Pointer, U32, U32, U32, U64, Pointer, Pointer, U32, F32]);
        assert!(!source.contains("extern __shared__"));
    }
}
