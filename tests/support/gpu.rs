//! Runs of the real binary with `--device cuda`: on this machine's GPU where TRIREME_TEST_GPU=1 says so, else on the emulated one.

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::emulator;
use super::program::{Ended, start};
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
pub fn find(mut command: Command) -> Command {
    if !emulator::real_gpu() {
        let (variable, folders) = emulator::library_path();
        command.env(variable, folders);
    }
    command
}

/// Trains on the GPU to the end, with these variables.
#[track_caller]
pub fn train(setting: &Setting, out: &str, ranks: usize, more: &[&str], variables: &[(&str, &str)]) -> Ended {
    let mut command = find(setting.command(out, ranks, &[&["--device", "cuda"], more].concat()));
    command.envs(variables.iter().copied());
    start(command).wait(PATIENCE)
}
