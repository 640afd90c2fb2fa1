//! Tests of the CUDA backend and of runs with it. With the feature `real-gpu` they use this machine's GPU, otherwise the emulated GPU.

mod ahead;
mod algorithms;
mod backend;
mod codecs;
mod emulator;
mod f16;
mod failures;
mod folds;
mod handover;
mod launches;
mod libraries;
mod mix;
mod nccl;
mod norm_sums;
mod profile;
mod raw_gradients;
mod recording;
mod runs;
mod scripts;
mod steps;
mod switches;
mod transports;

/// Runs an ignored test of this binary in a process of its own, with these environment variables. Returns its stdout.
#[track_caller]
fn stdout_of(test: &str, settings: &[(&str, &str)]) -> String {
    let ended = support::emulator::alone(test, settings);
    let (stdout, stderr) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    let passed = ended.status.success() && stdout.contains("1 passed");
    assert!(passed, "{test}, {settings:?}: {}\n{stdout}{stderr}", ended.status);
    stdout.into_owned()
}

/// Returns a recipe with SGD, momentum 0.9 and a constant learning rate. `keys` are further keys, `train` are the
/// transforms in training, and `sections` are further sections.
fn recipe(keys: &str, base_lr: f64, train: &str, sections: &str) -> String {
    format!("{keys}\noptimizer.momentum = 0.9\nschedule.base_lr = {base_lr}\naugment.train = [{train}]\n{sections}\n")
}
