//! Tests of the emulated GPU itself. It must behave like CUDA and detect three errors: divergent threads at a barrier,
//! results read without waiting, and accesses outside of allocated memory.

mod in_a_process_of_its_own;

use crate::stdout_of;
use std::ffi::c_void;
use std::sync::Arc;
use support::gpu::alone;
use support::{emulator, mentions};

use cudarc::driver::{CudaContext, CudaFunction, CudaStream, DriverError, LaunchConfig, PushKernelArg, sys};
use cudarc::nvrtc::{CompileOptions, Ptx, compile_ptx_with_opts, result as nvrtc};

const KERNELS: &str = r#"
extern "C" __global__ void __launch_bounds__(256) sums(const float* __restrict__ x, float* y, int n) {
    __shared__ float part[8];
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
    for (int d = 16; d > 0; d >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, d);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        float s = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.0f;
        for (int d = 16; d > 0; d >>= 1) s += __shfl_xor_sync(0xffffffffu, s, d);
        if (threadIdx.x == 0) y[blockIdx.x] = s;
    }
}

extern "C" __global__ void warps(unsigned* ballot, int* up, int* from) {
    int i = threadIdx.x;
    ballot[i] = __ballot_sync(0xffffffffu, i % 3 == 0);
    up[i] = __shfl_up_sync(0xffffffffu, i, 1, 8);
    from[i] = __shfl_sync(0xffffffffu, i * 10, 5);
}

extern "C" __global__ void fill(float* x, float value, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] = value;
}

extern "C" __global__ void increment(float* x, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] += 1.0f;
}

extern "C" __global__ void parts(float* x) {
    if (threadIdx.x < 16) __syncthreads();
    x[threadIdx.x] = 1.0f;
}

extern "C" __global__ void races(float* x) {
    __shared__ float seen[64];
    seen[threadIdx.x] = threadIdx.x;
    x[threadIdx.x] = seen[63 - threadIdx.x];
}
"#;

struct Gpu {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    module: Arc<cudarc::driver::CudaModule>,
}

impl Gpu {
    fn new() -> Self {
        emulator::load();
        let context = CudaContext::new(0).expect("a context");
        // SAFETY: these tests order the work of their streams explicitly
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().expect("a stream");
        let module = context.load_module(compiled(KERNELS).expect("kernels compile")).expect("a module");
        Self { context, stream, module }
    }

    fn function(&self, name: &str) -> CudaFunction {
        self.module.load_function(name).expect(name)
    }

    /// Launches a kernel that has the parameters (pointer, count) on `stream`.
    fn over(&self, name: &str, stream: &CudaStream, at: sys::CUdeviceptr, count: i32) {
        let function = self.function(name);
        let mut launch = stream.launch_builder(&function);
        launch.arg(&at).arg(&count);
        // SAFETY: the kernel has these parameters
        unsafe { launch.launch(config(2, 64)) }.expect("a launch");
    }
}

fn config(blocks: u32, threads: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 }
}

fn compiled(source: &str) -> Result<Ptx, String> {
    let options = CompileOptions { arch: Some("compute_90"), ..Default::default() };
    compile_ptx_with_opts(source, options).map_err(|e| format!("{e:?}"))
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn barriers_shuffles_and_ballots() {
    let _alone = alone();
    let gpu = Gpu::new();
    let x: Vec<f32> = (0..5000).map(|i| (i % 97) as f32).collect();
    let from = gpu.stream.clone_htod(&x).expect("upload");
    let mut to = gpu.stream.alloc_zeros::<f32>(3).expect("memory");
    let sums = gpu.function("sums");
    let mut launch = gpu.stream.launch_builder(&sums);
    launch.arg(&from).arg(&mut to).arg(&5000);
    // SAFETY: the kernel has these parameters
    unsafe { launch.launch(config(3, 256)) }.expect("a launch");
    let got = gpu.stream.clone_dtoh(&to).expect("download");
    assert_eq!(got.iter().sum::<f32>(), x.iter().sum::<f32>());

    let (mut ballot, mut up, mut from) = (
        gpu.stream.alloc_zeros::<u32>(40).expect("memory"),
        gpu.stream.alloc_zeros::<i32>(40).expect("memory"),
        gpu.stream.alloc_zeros::<i32>(40).expect("memory"),
    );
    let warps = gpu.function("warps");
    let mut launch = gpu.stream.launch_builder(&warps);
    launch.arg(&mut ballot).arg(&mut up).arg(&mut from);
    // SAFETY: the kernel has these parameters
    unsafe { launch.launch(config(1, 40)) }.expect("a launch");
    let (ballot, up) = (gpu.stream.clone_dtoh(&ballot).expect("b"), gpu.stream.clone_dtoh(&up).expect("u"));
    let from = gpu.stream.clone_dtoh(&from).expect("f");
    let expected = (0..32).filter(|i| i % 3 == 0).fold(0u32, |bits, i| bits | 1 << i);
    assert_eq!(ballot[7], expected);
    assert_eq!(ballot[39], (32..40).filter(|i| i % 3 == 0).fold(0u32, |bits, i| bits | 1 << (i - 32)));
    assert_eq!(&up[6..10], &[5, 6, 8, 8]);
    assert_eq!((from[3], from[35]), (50, 370));
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn work_waits_until_somebody_waits_for_it() {
    let _alone = alone();
    let gpu = Gpu::new();
    let other = gpu.context.new_stream().expect("a stream");
    let mut x = gpu.stream.alloc_zeros::<f32>(100).expect("memory");
    // SAFETY: all elements are written below
    let mut pinned = unsafe { gpu.context.alloc_pinned::<f32>(100) }.expect("pinned memory");
    pinned.as_mut_slice().expect("host").fill(7.0);
    gpu.stream.memcpy_htod(&pinned, &mut x).expect("upload");
    let uploaded = gpu.context.new_event(None).expect("an event");
    uploaded.record(&gpu.stream).expect("record");
    assert!(!uploaded.is_complete());
    let at = { cudarc::driver::DevicePtr::device_ptr(&x, &gpu.stream).0 };

    // without the wait, the other stream runs before the upload
    gpu.over("increment", &other, at, 100);
    other.synchronize().expect("other");
    uploaded.synchronize().expect("uploaded");
    assert_eq!(gpu.stream.clone_dtoh(&x).expect("download")[3], 7.0);

    // with the wait, it runs after the upload
    gpu.stream.memcpy_htod(&pinned, &mut x).expect("upload");
    uploaded.record(&gpu.stream).expect("record");
    other.wait(&uploaded).expect("wait");
    gpu.over("increment", &other, at, 100);
    other.synchronize().expect("other");
    assert!(uploaded.is_complete());
    assert_eq!(gpu.stream.clone_dtoh(&x).expect("download")[3], 8.0);
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn a_graph_replays_two_streams_and_marks_its_middle() {
    let _alone = alone();
    let gpu = Gpu::new();
    let side = gpu.context.new_stream().expect("a stream");
    let x = gpu.stream.alloc_zeros::<f32>(10).expect("memory");
    let y = gpu.stream.alloc_zeros::<f32>(10).expect("memory");
    let (fork, join, middle) = (
        gpu.context.new_event(None).expect("an event"),
        gpu.context.new_event(None).expect("an event"),
        gpu.context.new_event(None).expect("an event"),
    );
    let at = |s: &cudarc::driver::CudaSlice<f32>| cudarc::driver::DevicePtr::device_ptr(s, &gpu.stream).0;
    gpu.stream.synchronize().expect("zeros");
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    gpu.stream.begin_capture(mode).expect("capture");
    gpu.over("increment", &gpu.stream, at(&x), 10);
    // SAFETY: both handles are valid
    unsafe { sys::cuEventRecordWithFlags(middle.cu_event(), gpu.stream.cu_stream(), 1) }.result().expect("mark");
    fork.record(&gpu.stream).expect("fork");
    side.wait(&fork).expect("fork");
    gpu.over("increment", &side, at(&y), 10);
    join.record(&side).expect("join");
    gpu.over("increment", &gpu.stream, at(&x), 10);
    gpu.stream.wait(&join).expect("join");
    let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = gpu.stream.end_capture(flags).expect("end").expect("a graph");
    assert_eq!(gpu.stream.clone_dtoh(&x).expect("x")[0], 0.0, "capturing must not run kernels");

    graph.launch().expect("launch");
    middle.synchronize().expect("middle");
    let mut halfway = [0.0f32; 10];
    // SAFETY: `x` has ten elements
    unsafe { cudarc::driver::result::memcpy_dtoh_sync(&mut halfway, at(&x)) }.expect("x");
    assert_eq!(halfway[9], 1.0, "work after the event has run");
    graph.launch().expect("launch");
    assert_eq!(gpu.stream.clone_dtoh(&x).expect("x")[9], 4.0);
    assert_eq!(gpu.stream.clone_dtoh(&y).expect("y")[9], 2.0);
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn captures_refuse_what_cuda_refuses() {
    let _alone = alone();
    let gpu = Gpu::new();
    let side = gpu.context.new_stream().expect("a stream");
    let fork = gpu.context.new_event(None).expect("an event");
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let x = gpu.stream.alloc_zeros::<f32>(10).expect("memory");
    let at = cudarc::driver::DevicePtr::device_ptr(&x, &gpu.stream).0;

    gpu.stream.begin_capture(mode).expect("capture");
    assert_eq!(gpu.stream.synchronize(), Err(DriverError(sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)));
    let ended = gpu.stream.end_capture(flags).map(|_| ());
    assert_eq!(ended, Err(DriverError(sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)));

    gpu.stream.begin_capture(mode).expect("capture");
    fork.record(&gpu.stream).expect("fork");
    side.wait(&fork).expect("fork");
    gpu.over("increment", &side, at, 10);
    assert_eq!(fork.synchronize(), Err(DriverError(sys::CUresult::CUDA_ERROR_CAPTURED_EVENT)));
    let ended = gpu.stream.end_capture(flags).map(|_| ());
    assert_eq!(ended, Err(DriverError(sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED)));
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn compiler_errors_come_with_their_line() {
    let _alone = alone();
    emulator::load();
    let error = compiled("extern \"C\" __global__ void k(float* x) {\n    x[0] = nothing;\n}")
        .map(|_| ())
        .expect_err("an error");
    assert!(error.contains("default_program:2") && error.contains("nothing"), "{error}");
    let error =
        compiled("extern \"C\" __global__ void k(float* x) { atomicAdd(x, 1.0f); }").map(|_| ()).expect_err("an error");
    assert!(error.contains("atomics on integers"), "{error}");
    let error =
        compiled("#include <cuda_fp16.h>\nextern \"C\" __global__ void k() {}").map(|_| ()).expect_err("an error");
    mentions(error, &["source file", "cuda_fp16.h"]);
    let program = nvrtc::create_program(c"extern \"C\" __global__ void k() {}", None).expect("a program");
    // SAFETY: the program is valid
    let refused = unsafe { nvrtc::compile_program(program, &["--no-such-option"]) };
    assert_eq!(refused.map_err(|e| e.0), Err(cudarc::nvrtc::sys::nvrtcResult::NVRTC_ERROR_INVALID_OPTION));
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn images_are_checked() {
    let _alone = alone();
    emulator::load();
    let context = CudaContext::new(0).expect("a context");
    let cubin = |arch: &str| {
        let program = nvrtc::create_program(c"extern \"C\" __global__ void k() {}", None).expect("a program");
        // SAFETY: the program is valid, and the buffer has the requested size
        unsafe {
            nvrtc::compile_program(program, &[format!("-arch={arch}")]).expect("compiles");
            let mut size = 0;
            cudarc::nvrtc::sys::nvrtcGetCUBINSize(program, &mut size).result().expect("a size");
            let mut bytes = vec![0u8; size];
            cudarc::nvrtc::sys::nvrtcGetCUBIN(program, bytes.as_mut_ptr().cast()).result().expect("a cubin");
            bytes
        }
    };
    let load = |bytes: &[u8]| context.load_module(Ptx::from_binary(bytes.to_vec())).map(|_| ()).map_err(|e| e.0);
    let good = cubin("sm_90");
    assert_eq!(load(&good), Ok(()));
    assert_eq!(load(&cubin("sm_80")), Err(sys::CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU));
    let mut flipped = good.clone();
    flipped[5000] ^= 1;
    assert_eq!(load(&flipped), Err(sys::CUresult::CUDA_ERROR_INVALID_IMAGE));
    assert_eq!(load(b"rubbish, and rather more of it than a head has"), Err(sys::CUresult::CUDA_ERROR_INVALID_IMAGE));
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn allocations_beyond_the_memory_fail() {
    let _alone = alone();
    let gpu = Gpu::new();
    let (free, total) = gpu.context.mem_get_info().expect("sizes");
    assert!(free <= total && total == 2 << 30);
    let error = gpu.stream.alloc_zeros::<u8>(total + 1).map(|_| ()).expect_err("no such memory");
    assert_eq!(error.0, sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    // new memory is filled with NaN
    // SAFETY: reading uninitialised device memory is what this checks
    let fresh = unsafe { gpu.stream.alloc::<f32>(3) }.expect("memory");
    assert!(gpu.stream.clone_dtoh(&fresh).expect("download").iter().all(|v| v.is_nan()));
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn faulty_kernels_are_named() {
    let _alone = alone();
    emulator::load();
    for (test, parts) in [
        ("threads_part", ["kernel parts", "block (0, 0, 0)", "thread (15, 0, 0)"]),
        ("past_the_end", ["kernel fill", "touched", "device memory"]),
        ("close_past_the_end", ["wrote", "past the end", "40 bytes"]),
        ("host_touches", ["the host", "touched", "device memory"]),
    ] {
        let ended = emulator::alone(&format!("emulator::in_a_process_of_its_own::{test}"), &[]);
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success(), "{test}: {}\n{stderr}", ended.status);
        mentions(stderr, &parts);
    }
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn a_race_gives_other_results_in_another_order() {
    let _alone = alone();
    emulator::load();
    let digest = |order: &str| {
        let stdout = stdout_of("emulator::in_a_process_of_its_own::race", &[("TRIREME_EMULATED_ORDER", order)]);
        stdout.lines().find_map(|l| l.split_once("bits ")).map(|(_, bits)| bits.to_owned()).expect("the bits")
    };
    let forward = digest("lazy");
    assert_eq!(forward, digest("eager"));
    assert_ne!(forward, digest("reverse"));
    assert_ne!(forward, digest("5"));
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn settings_make_devices_and_faults() {
    let _alone = alone();
    emulator::load();
    let devices = [("TRIREME_EMULATED_DEVICES", "3"), ("CUDA_VISIBLE_DEVICES", "2,0")];
    stdout_of("emulator::in_a_process_of_its_own::two_devices", &devices);
    stdout_of("emulator::in_a_process_of_its_own::falls_off", &[("TRIREME_EMULATED_FAULT", "12:719")]);
}
