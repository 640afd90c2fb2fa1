//! Runs of the real binary with `--device cuda`: on this machine's GPU where TRIREME_TEST_GPU=1 says so, else on the emulated one.

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backend::Queue;
use backend::cuda::Cuda;

use super::emulator;
use super::program::{Ended, GPUS, NO_GPU, start};
use super::setting::Setting;

/// A run on the emulated GPU computes on one core, which other tests want too, and compiles its kernels at the first start.
pub const PATIENCE: Duration = Duration::from_secs(400);

/// Tests that use the GPU in this process take turns: one of them counts the driver's calls.
pub fn alone() -> MutexGuard<'static, ()> {
    static GPU: Mutex<()> = Mutex::new(());
    GPU.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether there is a GPU of either kind; says what is left out if not.
pub fn available(tests: usize) -> bool {
    emulator::real_gpu() || emulator::available(tests)
}

/// Whether tests of the emulated GPU's own settings can run; says what is left out if not.
pub fn emulated(test: &str) -> bool {
    if emulator::real_gpu() {
        eprintln!("left out: {test}: it needs settings of the emulated GPU");
        return false;
    }
    emulator::available(1)
}

/// Lets a program find the GPU.
pub fn find(command: Command) -> Command {
    let mut command = see(command);
    if !emulator::real_gpu() {
        let (variable, folders) = emulator::library_path();
        command.env(variable, folders);
    }
    command
}

/// Lets a program see GPUs again, unless the test says which.
pub fn see(mut command: Command) -> Command {
    if command.get_envs().any(|(name, value)| name == GPUS && value.is_some_and(|v| v == NO_GPU)) {
        match std::env::var_os(GPUS) {
            Some(own) => command.env(GPUS, own),
            None => command.env_remove(GPUS),
        };
    }
    command
}

/// What the log says of a pass that the driver does not record.
pub const NOT_RECORDED: &str = "is not replayed as a CUDA graph";

/// Runs a program that finds the GPU, unless it was told where to look, to its end. Every pass must be recorded, unless the emulated driver
/// was told to refuse that.
#[track_caller]
pub fn run(command: Command) -> Ended {
    let told = |variable: &str| command.get_envs().any(|(name, _)| name == variable);
    let (may, looks) = (told(REFUSAL), told("LD_LIBRARY_PATH"));
    let ended = start(if looks { see(command) } else { find(command) }).wait(PATIENCE);
    assert!(may || !ended.stderr.contains(NOT_RECORDED), "a pass was not recorded:\n{}", ended.stderr);
    ended
}

/// Has the emulated driver refuse captures.
pub const REFUSAL: &str = "TRIREME_EMULATED_CAPTURE";

/// Trains on the GPU to the end, with these variables.
#[track_caller]
pub fn train(setting: &Setting, out: &str, ranks: usize, more: &[&str], variables: &[(&str, &str)]) -> Ended {
    let mut command = setting.command(out, ranks, &[&["--device", "cuda"], more].concat());
    command.envs(variables.iter().copied());
    run(command)
}

/// No pass of this process so far was left unrecorded.
#[track_caller]
pub fn assert_recorded(cuda: &Cuda) {
    assert_eq!(cuda.take_notes(), [""; 0], "a pass was not recorded");
}
