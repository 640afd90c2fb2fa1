//! Programs for the tests of the emulated GPU. Each runs in a separate process, because most of them abort.

use super::*;

#[test]
#[ignore = "dies"]
fn threads_part() {
    let gpu = Gpu::new();
    let mut x = gpu.stream.alloc_zeros::<f32>(32).expect("memory");
    let parts = gpu.function("parts");
    // SAFETY: the kernel has these parameters
    unsafe { gpu.stream.launch_builder(&parts).arg(&mut x).launch(config(1, 32)) }.expect("a launch");
    gpu.stream.synchronize().expect("never comes");
}

fn fill(count: i32) {
    let gpu = Gpu::new();
    let mut x = gpu.stream.alloc_zeros::<f32>(10).expect("memory");
    let fill = gpu.function("fill");
    let mut launch = gpu.stream.launch_builder(&fill);
    launch.arg(&mut x).arg(&1.0f32).arg(&count);
    // SAFETY: deliberately unsound: the kernel writes past the end, and the emulator must end the process
    unsafe { launch.launch(config(1, 32)) }.expect("a launch");
    drop(x);
    gpu.stream.synchronize().expect("never comes");
}

#[test]
#[ignore = "dies"]
fn past_the_end() {
    fill(100);
}

#[test]
#[ignore = "dies"]
fn close_past_the_end() {
    fill(11);
}

#[test]
#[ignore = "dies"]
fn host_touches() {
    let gpu = Gpu::new();
    let x = gpu.stream.alloc_zeros::<f32>(10).expect("memory");
    let at = cudarc::driver::DevicePtr::device_ptr(&x, &gpu.stream).0;
    // SAFETY: deliberately unsound: the host reads device memory, and the emulator must end the process
    println!("{}", unsafe { std::ptr::read_volatile(at as *const c_void as *const f32) });
}

#[test]
#[ignore = "run with settings"]
fn race() {
    let gpu = Gpu::new();
    let mut x = gpu.stream.alloc_zeros::<f32>(64).expect("memory");
    let races = gpu.function("races");
    // SAFETY: the kernel has these parameters
    unsafe { gpu.stream.launch_builder(&races).arg(&mut x).launch(config(1, 64)) }.expect("a launch");
    let bits: Vec<u32> = gpu.stream.clone_dtoh(&x).expect("download").iter().map(|v| v.to_bits()).collect();
    println!("bits {bits:?}");
}

#[test]
#[ignore = "run with settings"]
fn two_devices() {
    emulator::load();
    assert_eq!(CudaContext::device_count(), Ok(2));
    let (first, second) = (CudaContext::new(0).expect("first"), CudaContext::new(1).expect("second"));
    assert_eq!(first.name().expect("a name"), "Emulated GPU 2");
    assert_ne!(first.uuid().expect("one").bytes, second.uuid().expect("other").bytes);
    assert_eq!(CudaContext::new(2).map(|_| ()), Err(DriverError(sys::CUresult::CUDA_ERROR_INVALID_DEVICE)));
}

#[test]
#[ignore = "run with settings"]
fn falls_off() {
    emulator::load();
    let context = CudaContext::new(0).expect("a context");
    let stream = context.new_stream().expect("a stream");
    let failed = (0..20).find_map(|_| stream.alloc_zeros::<f32>(8).and_then(|_| stream.synchronize()).err());
    assert_eq!(failed, Some(DriverError(sys::CUresult::CUDA_ERROR_LAUNCH_FAILED)));
    assert!(stream.synchronize().is_err(), "the GPU must stay unusable");
}
