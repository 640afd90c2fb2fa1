//! The CUDA module with our kernels, loaded on a GPU. Only this file launches them.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::Arc;

use cudarc::driver::sys;

use super::kernel::{Geometry, Kernel, THREADS};
use super::source;
use crate::cuda::driver::compile;
use crate::cuda::driver::context::{Context, Raw};
use crate::cuda::driver::status::driver;
use crate::cuda::driver::stream::Stream;
use crate::{Error, Precision};

pub struct Kernels {
    module: Raw<sys::CUmod_st>,
    functions: HashMap<String, Raw<sys::CUfunc_st>>,
    geometry: Geometry,
    context: Arc<Context>,
}

impl Kernels {
    /// Compiles the kernels or takes them from the cache, and loads them. If `grouped` is set, the kernels are those for
    /// batch normalisation in groups, which have the same names as without groups.
    pub fn load(context: &Arc<Context>, precision: Precision, grouped: bool) -> Result<Self, Error> {
        let source = if grouped { source::grouped()? } else { source::source()? };
        context.bind()?;
        let code = compile::for_gpu(&source, precision, context.gpu.capability)?;
        let geometry = Geometry { multiprocessors: context.gpu.multiprocessors, activation: precision.bytes() };
        let mut module = std::ptr::null_mut();
        // SAFETY: the context is bound. The code is a complete cubin, or PTX that ends in a zero byte, as NVRTC returns
        // it.
        let status = unsafe { sys::cuModuleLoadData(&mut module, code.as_ptr().cast()) };
        driver(status, "cuModuleLoadData", format!("the kernels for {}", context.gpu.name))?;
        let mut all = Self { module: Raw(module), functions: HashMap::new(), geometry, context: context.clone() };
        for name in source::names(&source) {
            let mut function = std::ptr::null_mut();
            let c_name =
                CString::new(name.as_str()).map_err(|e| Error::Unsupported { op: name.clone(), why: e.to_string() })?;
            // SAFETY: the module is loaded, and the name is a C string.
            let status = unsafe { sys::cuModuleGetFunction(&mut function, module, c_name.as_ptr()) };
            driver(status, "cuModuleGetFunction", name.clone())?;
            all.functions.insert(name, Raw(function));
        }
        Ok(all)
    }

    /// Returns the GPU's properties that grids depend on.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Enqueues a kernel with the grid that it declares. Does nothing if the grid has no blocks. The stream's context
    /// must be bound.
    pub fn launch(&self, stream: &Stream, kernel: &impl Kernel) -> Result<(), Error> {
        let (name, grid) = (kernel.name(), kernel.grid(&self.geometry));
        if grid.x == 0 {
            return Ok(());
        }
        kernel.check(grid)?;
        let missing =
            || Error::Unsupported { op: format!("kernel {name}"), why: "the sources have no such kernel".into() };
        let function = self.functions.get(name).ok_or_else(missing)?.0;
        let mut values = kernel.arguments();
        // scalars of 4 bytes are in the lower half of their word, which comes first on little-endian machines
        let mut pointers: Vec<*mut c_void> = values.iter_mut().map(|v| std::ptr::from_mut(v).cast()).collect();
        let [x, y, z] = [grid.x, grid.y, grid.z].map(|blocks| blocks as u32);
        // SAFETY: number and types of the arguments are those of the kernel, and the driver copies them. Their memory
        // is large enough (checked), and the driver frees it only after the work enqueued on it.
        let status = unsafe {
            let (none, pointers) = (std::ptr::null_mut(), pointers.as_mut_ptr());
            sys::cuLaunchKernel(function, x, y, z, THREADS, 1, 1, 0, stream.handle(), pointers, none)
        };
        self.context.launches.add(1);
        driver(status, "cuLaunchKernel", name)?;
        stream.settle(name)
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: `load` loaded it.
            let _ = unsafe { sys::cuModuleUnload(self.module.0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::assembly::{self, ARCHITECTURES};
    use super::*;
    use crate::cuda::driver::compile::Target;
    use crate::cuda::driver::load::{Library, require};

    const PRECISIONS: [Precision; 3] = [Precision::F32, Precision::Bf16, Precision::F16];

    /// Returns the folder where `make test-cuda-check` has put NVIDIA's tools.
    fn tools() -> PathBuf {
        std::env::var_os("TRIREME_CUDA_CHECK").map(PathBuf::from).expect("NVIDIA's tools: run `make test-cuda-check`")
    }

    #[test]
    #[ignore = "needs NVIDIA's compiler: make test-cuda-check"]
    fn all_kernels_compile_to_ptx_in_every_precision() {
        require(Library::Nvrtc).unwrap_or_else(|e| panic!("{e}"));
        for precision in PRECISIONS {
            let made = compile::compile(&source::text(), precision, Target::Ptx(7, 5), &[]);
            let made = made.unwrap_or_else(|e| panic!("{e}"));
            assert!(made.code.len() > 10_000, "{precision}: {} bytes", made.code.len());
        }
    }

    #[test]
    #[ignore = "needs NVIDIA's compiler: make test-cuda-check"]
    fn no_kernel_of_f32_spills_or_crowds_out_a_second_block() {
        inspect(Precision::F32);
    }

    #[test]
    #[ignore = "needs NVIDIA's compiler: make test-cuda-check"]
    fn no_kernel_of_bf16_spills_or_crowds_out_a_second_block() {
        inspect(Precision::Bf16);
    }

    #[test]
    #[ignore = "needs NVIDIA's compiler: make test-cuda-check"]
    fn no_kernel_of_f16_spills_or_crowds_out_a_second_block() {
        inspect(Precision::F16);
    }

    #[test]
    #[ignore = "needs NVIDIA's compiler: make test-cuda-check"]
    fn no_kernel_for_groups_spills_or_crowds_out_a_second_block() {
        PRECISIONS.into_iter().for_each(|precision| inspect_text(precision, &source::grouped().unwrap()));
    }

    /// Prints the table of all kernels in this precision and fails if a kernel has a problem. There is a test per
    /// precision, so that they can run in parallel: compiling and disassembling for all architectures takes a minute
    /// each.
    fn inspect(precision: Precision) {
        inspect_text(precision, &source::text());
    }

    fn inspect_text(precision: Precision, text: &str) {
        let tools = tools();
        let mut faults = Vec::new();
        let columns = ARCHITECTURES.each_ref().map(|on| (on, assembly::inspect(precision, on, &tools)));
        println!("{}\n", assembly::table(precision, &columns));
        for ((on, all), (name, bounds)) in columns.iter().flat_map(|c| source::bounds(text).map(move |b| (c, b))) {
            let facts = all.get(name).cloned().unwrap_or_default();
            let (major, minor) = on.capability;
            let whole = |fault| format!("{name} in {precision} on sm_{major}{minor} {fault}");
            faults.extend(assembly::faults(name, &facts, bounds, on, precision).into_iter().map(whole));
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}
