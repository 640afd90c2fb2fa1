//! Failures that leave a GPU unusable. The first call that detects the failure reports it, and the program then makes no
//! further calls to the GPU. Dropping buffers, queues and libraries afterwards does not fail.

use backend::cuda::{Cuda, Precision, Settings};
use backend::{Backend, Buffer, DeviceMemory, Error, PlanRequest, Planned, Queue, Reduction};
use net::{Conv, Op, Shape};

use crate::stdout_of;
use support::gpu::alone;
use support::numerics::cuda;
use support::program::Folder;
use support::{emulator, gpu, mentions};

/// Parts of the message about a failed kernel, a lost GPU, and a GPU that another process uses exclusively.
const KERNEL: &[&str] = &["kernel has failed", "last checkpoint", "TRIREME_CUDA_SYNC=1", "compute-sanitizer"];
const GONE: &[&str] = &["GPU is gone: ", "last checkpoint", "TRIREME_CUDA_SYNC=1", "compute-sanitizer"];
const TAKEN: &[&str] = &["another process has it: ", "nvidia-smi", "compute mode"];

/// For each driver error after which the context is unusable: its code, its name, and parts of the message.
const STICKY: [(u32, &str, &[&str]); 15] = [
    (700, "CUDA_ERROR_ILLEGAL_ADDRESS", KERNEL),
    (702, "CUDA_ERROR_LAUNCH_TIMEOUT", KERNEL),
    (710, "CUDA_ERROR_ASSERT", KERNEL),
    (714, "CUDA_ERROR_HARDWARE_STACK_ERROR", KERNEL),
    (715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", KERNEL),
    (716, "CUDA_ERROR_MISALIGNED_ADDRESS", KERNEL),
    (717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", KERNEL),
    (718, "CUDA_ERROR_INVALID_PC", KERNEL),
    (46, "CUDA_ERROR_DEVICE_UNAVAILABLE", TAKEN),
    (214, "CUDA_ERROR_ECC_UNCORRECTABLE", GONE),
    (220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", GONE),
    (709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", GONE),
    (719, "CUDA_ERROR_LAUNCH_FAILED", GONE),
    (911, "CUDA_ERROR_EXTERNAL_DEVICE", GONE),
    (999, "CUDA_ERROR_UNKNOWN", GONE),
];

fn say(error: &Error) {
    println!("lost {}: {error}", matches!(error, Error::Lost { .. }));
}

/// Runs a test of this file in a separate process and returns its stdout.
#[track_caller]
fn said(test: &str, settings: &[(&str, &str)]) -> String {
    stdout_of(&format!("failures::{test}"), settings)
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn a_kernel_that_fails_ends_the_use_of_the_gpu() {
    let _alone = alone();
    for (code, name, parts) in STICKY {
        let said = said("a_kernel_fails", &[("TRIREME_EMULATED_FAULT", &format!("kernel arena_scale:{code}"))]);
        let line = said.lines().find(|line| line.starts_with("lost true")).unwrap_or_else(|| panic!("{code}:\n{said}"));
        mentions(line, &[&[name][..], parts].concat());
        assert!(said.contains("all was dropped"), "{said}");
    }
    // an error that does not make the GPU unusable is not reported as a lost GPU
    let said = said("a_kernel_fails", &[("TRIREME_EMULATED_FAULT", "kernel arena_scale:1")]);
    assert!(said.contains("lost false") && said.contains("CUDA_ERROR_INVALID_VALUE"), "{said}");
}

#[test]
#[ignore = "run with settings"]
fn a_kernel_fails() {
    let device = cuda(Precision::F32);
    let (mut x, y) = (device.alloc(100).unwrap(), device.alloc(100).unwrap());
    x.write(0, &[1.0; 100]).unwrap();
    x.fetch().unwrap();
    plan(&device).unwrap();
    device.add(&mut x, &y).unwrap();
    device.mark(&mut x).unwrap();
    DeviceMemory::scale(&device, &mut x, 2.0).unwrap();
    let waited = device.loss_sums().map(|_| ());
    say(&waited.expect_err("the kernel has failed"));
    // later calls return the same error
    for later in [device.add(&mut x, &y), x.fetch(), x.read(0, &mut [0.0; 100]), device.alloc(1).map(|_| ())] {
        say(&later.expect_err("the GPU is gone"));
    }
    drop((x, y, device));
    println!("all was dropped");
}

fn plan(device: &Cuda) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let (op, image) = (Op::Conv(Conv::new(8, 3).pad(1)), Shape::image(4, 8, 8));
    let (shapes, x) = ([image], [device.input(4, image)]);
    device.plan(&PlanRequest::alone("conv", &op, &shapes, &x))
}

/// cuDNN's algorithms are timed one after another. If one makes the GPU unusable, the others would all seem to fail, so the choice ends.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn an_algorithm_that_kills_the_gpu_ends_the_choice() {
    let _alone = alone();
    let folder = Folder::new();
    for (i, work) in ["cuDNN's convolution:700", "cuDNN's gradient of filters:716"].into_iter().enumerate() {
        let cache = folder.at(&i.to_string());
        let said = said("algorithms_are_timed", &[("TRIREME_EMULATED_FAULT", work), ("TRIREME_CACHE", &cache)]);
        // the call that waits for the failed algorithm reports the error, not a call for the next algorithm
        let told = said.lines().find(|line| line.starts_with("lost true: ") && line.contains("kernel has failed"));
        let told = told.unwrap_or_else(|| panic!("{work}:\n{said}"));
        mentions(told, &["cuStreamSynchronize", "the work before"]);
        assert!(said.contains("all was dropped"), "{said}");
    }
}

/// Timing uses recorded passes over random numbers and chooses the fastest algorithm.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn algorithms_are_timed_as_they_will_run() {
    let _alone = alone();
    let folder = Folder::new();
    for (slow, fast) in [("0", "1"), ("1", "0")] {
        let cache = folder.at(slow);
        let variables = [("TRIREME_EMULATED_SLOW", slow), ("TRIREME_CACHE", &cache)];
        let said = said("algorithms_are_timed", &variables);
        assert!(said.contains(&format!("cuDNN engines {fast}, ")), "{slow} is slow:\n{said}");
        assert!(said.contains("of zeros 0,") && !said.contains(" 0 graphs"), "{said}");
        // an algorithm that cannot be recorded as a CUDA graph is not chosen; here none can, so cuDNN's first proposal is chosen
        let cache = folder.at(&format!("{slow} again"));
        let refused = [variables[0], ("TRIREME_CACHE", &cache), (gpu::REFUSAL, "call")];
        let said = self::said("algorithms_are_timed", &refused);
        assert!(said.contains("cuDNN engines 0, "), "{said}");
    }
}

/// After an error of NCCL, the host must not wait for the GPU: if another rank has ended, an earlier sum on the GPU
/// would never finish. The group is aborted instead.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn an_error_of_nccl_waits_for_nothing() {
    let _alone = alone();
    let said = said("nccl_fails", &[("TRIREME_EMULATED_NCCL", "0:sum:6")]);
    let printed = ["waits 0, groups left 1", "groups left in all 1"];
    mentions(&said, &[&printed[..], &["lost false: ", "ncclAllReduce", "remote process exited"]].concat());
    // if the GPU itself has failed, the error is a lost GPU and not an error of NCCL
    let said = self::said("nccl_fails", &[("TRIREME_EMULATED_FAULT", "ncclAllReduce:719")]);
    assert!(said.contains("lost true: ") && said.contains("CUDA_ERROR_LAUNCH_FAILED"), "{said}");
}

#[test]
#[ignore = "run with settings"]
fn nccl_fails() {
    let device = cuda(Precision::F32);
    let mut bucket = device.alloc(100).unwrap();
    bucket.write(0, &[1.0; 100]).unwrap();
    device.mark(&mut bucket).unwrap();
    let ready = device.collectives().expect("NCCL").ready().unwrap();
    let id = ready.new_id().unwrap();
    let mut group = ready.join(&id, 0, 1).unwrap();
    assert!(group.is_ready().unwrap(), "a group of one rank");
    let calls = |name: &str| emulator::calls(name).expect("the emulated GPU");
    let waits = || calls("cuStreamSynchronize") + calls("cuCtxSynchronize") + calls("cuEventSynchronize");
    let before = waits();
    say(&group.reduce(&mut bucket, Reduction::SumF32).expect_err("the sum has failed"));
    println!("waits {}, groups left {}", waits() - before, calls("ncclCommAbort"));
    drop(group);
    println!("groups left in all {}", calls("ncclCommAbort"));
    drop((bucket, device));
    println!("all was dropped");
}

/// cuDNN reports numerical notes for each engine, which say how its results may differ. An engine for which cuDNN
/// returns no notes is skipped.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn an_engine_without_notes_is_passed_over() {
    let _alone = alone();
    let folder = Folder::new();
    // engine 0 has no notes, and would otherwise be chosen because it is faster
    let variables = [("TRIREME_EMULATED_SILENT", "0"), ("TRIREME_EMULATED_SLOW", "1")];
    let cache = folder.at("cache");
    let said = said("algorithms_are_timed", &[&variables[..], &[("TRIREME_CACHE", &cache)]].concat());
    assert!(said.contains("cuDNN engines 1, "), "{said}");
}

#[test]
#[ignore = "run with settings"]
fn algorithms_are_timed() {
    emulator::load();
    let device = Cuda::open(0, Settings::default()).unwrap();
    match plan(&device) {
        Ok(plan) => {
            let calls = |name: &str| emulator::calls(name).unwrap();
            println!("{}, of zeros {},", plan.implementation(), calls("a convolution of zeros"));
            println!("chosen by {} graphs", calls("cuGraphLaunch"));
        }
        Err(error) => say(&error),
    }
    drop(device);
    println!("all was dropped");
}
