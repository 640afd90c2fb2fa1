//! Runs the real binary with `--device cuda`: on this machine's GPU with the feature `real-gpu`, otherwise on the emulated GPU.

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backend::Queue;
use backend::cuda::{Cuda, Precision};
use loaders::ImageSpec;

use super::emulator;
use super::numerics::cuda;
use super::program::{GPUS, NO_GPU, ProgramOutput, start};
use super::setting::Setting;

/// Time limit for a program. It is long because an emulated GPU computes on one core, shares it with other tests, and
/// compiles all kernels at the first start.
pub const PATIENCE: Duration = Duration::from_secs(400);

/// Locks the GPU for one test of this process, so that other tests do not disturb a test that counts driver calls.
pub fn alone() -> MutexGuard<'static, ()> {
    static GPU: Mutex<()> = Mutex::new(());
    GPU.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks the GPU for one test and opens it.
pub fn alone_with(precision: Precision) -> (MutexGuard<'static, ()>, Cuda) {
    (alone(), cuda(precision))
}

/// Sets the environment so that the program finds the real GPU or the emulated libraries.
pub fn find(command: Command) -> Command {
    let mut command = see(command);
    if !emulator::real_gpu() {
        let (variable, folders) = emulator::library_path();
        command.env(variable, folders);
    }
    command
}

/// Undoes the hiding of all GPUs by [`program::trireme`](super::program::trireme), unless the test has chosen specific GPUs.
pub fn see(mut command: Command) -> Command {
    if command.get_envs().any(|(name, value)| name == GPUS && value.is_some_and(|v| v == NO_GPU)) {
        match std::env::var_os(GPUS) {
            Some(own) => command.env(GPUS, own),
            None => command.env_remove(GPUS),
        };
    }
    command
}

/// Part of the warning that appears if the driver does not record a pass.
pub const NOT_RECORDED: &str = "is not replayed as a CUDA graph";

/// Runs a program to its end with a GPU.
///
/// If the test has set `LD_LIBRARY_PATH`, it stays as it is. Panics if a pass was not recorded, unless the test has set [`REFUSAL`].
#[track_caller]
pub fn run(command: Command) -> ProgramOutput {
    let told = |variable: &str| command.get_envs().any(|(name, _)| name == variable);
    let (may, looks) = (told(REFUSAL), told("LD_LIBRARY_PATH"));
    let ended = start(if looks { see(command) } else { find(command) }).wait(PATIENCE);
    assert!(may || !ended.stderr.contains(NOT_RECORDED), "a pass was not recorded:\n{}", ended.stderr);
    ended
}

/// A recipe with batch normalisation and random transforms.
pub const RESNET: &str = r#"
model = "resnet20"
epochs = 1
seed = 7
batch = 8
workers = 4
deterministic = true
optimizer.momentum = 0.9
optimizer.weight_decay = 1e-4
schedule.base_lr = 0.01
augment.train = ["pad_crop(1)", "flip", "normalize"]
"#;

/// Creates a setting with [`RESNET`], followed by `more` keys, and the given counts for training and test images. 8x8 pixels are large
/// enough for the network. With 26 training images, the last batch of an epoch has 2 images, so two of the four workers have no image.
pub fn resnet(more: &str, images: [u64; 2]) -> Setting {
    Setting::new(&format!("{RESNET}{more}"), ImageSpec::new(8, 8, 3), images)
}

/// Environment variable that makes the emulated driver refuse to capture.
pub const REFUSAL: &str = "TRIREME_EMULATED_CAPTURE";

/// Trains on the GPU to the end, with these environment variables.
#[track_caller]
pub fn train(setting: &Setting, out: &str, ranks: usize, more: &[&str], variables: &[(&str, &str)]) -> ProgramOutput {
    let mut command = setting.command(out, ranks, &[&["--device", "cuda"], more].concat());
    command.envs(variables.iter().copied());
    run(command)
}

/// Checks that the driver has recorded every pass of this process so far.
#[track_caller]
pub fn assert_recorded(cuda: &Cuda) {
    assert_eq!(cuda.take_notes(), [""; 0], "a pass was not recorded");
}
