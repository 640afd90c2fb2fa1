//! Whole runs under `mpirun` on a test device with memory that the host cannot read and with delayed operations. The
//! guarantees of laws.rs hold on this device, too.
//!
//! Each test starts this test binary again, with the kind of device on which its ranks train.

use std::time::Instant;

use backend::reference::Reference;
use backend::{Backend, Error, Unavailable};
use loaders::{Draws, Dtype, ImageSpec};
use recipe::Changes;
use report::Verbosity;
use training::device::{Device, DeviceChoice, DeviceSettings};
use training::train;
use training::train::plan::request::{ResumeFrom, TrainRequest};

use support::bands::{At, images};
use support::program::{PATIENCE, ProgramOutput, events, on_ranks, start};
use support::remote::Remote;
use support::setting::Setting;

const CASE: &str = "TRIREME_TEST_CASE";

/// A device that needs no hardware.
struct TestDevice<B>(fn() -> B);

impl<B: Backend> Device for TestDevice<B> {
    type Backend = B;
    const NAME: &'static str = "test";
    const ABOUT: &'static str = "A device of tests";
    const REMOVABLE: bool = false;
    const USES_CORES: bool = false;
    const LAYOUT_CURE: &'static str = "there is but one layout";

    fn find(_: Vec<String>) -> Result<Self, Unavailable> {
        Err(Unavailable { why: "tests make it themselves".into(), present: false })
    }

    fn open(&self, _: &DeviceSettings) -> Result<B, Error> {
        Ok((self.0)())
    }
}

/// Runs one rank. The tests below start it, and it does nothing on its own. The case contains the kind of device, the
/// recipe, the output folder, the last step, whether to resume, and changes to the recipe.
#[test]
#[ignore = "the ranks' side of the other tests"]
fn worker() {
    let Ok(case) = std::env::var(CASE) else { return };
    comm::install_panic_hook();
    let words: Vec<String> = case.split('|').map(String::from).collect();
    let [kind, recipe, out, last, resume, sets @ ..] = words.as_slice() else { panic!("{case}") };
    let request = TrainRequest {
        recipe: recipe.into(),
        changes: Changes { sets: sets.to_vec(), ..Changes::default() },
        out: out.into(),
        resume: (resume == "resume").then_some(ResumeFrom::Newest),
        extend_epochs: false,
        steal_lock: false,
        device: DeviceChoice::Auto,
        share_gpu: false,
        time_limit: None,
        stall: train::observe::watch::Limits::default(),
        threads: None,
        max_steps: last.parse().ok(),
        find_lr: None,
        dry_run: false,
        stage: None,
        trace: None,
        trace_steps: 0,
        verbosity: Verbosity::Verbose,
    };
    let result = match kind.as_str() {
        "remote" => train::start::run(&TestDevice(Remote::new), &request, Instant::now()),
        _ => train::start::run(&TestDevice(Reference::default), &request, Instant::now()),
    };
    if let Err(error) = result {
        comm::die(i32::from(error.code()), &error.to_string());
    }
}

const RECIPE: &str = r#"
model = "resnet20"
epochs = 1
seed = 7
batch = 8
workers = 4
optimizer.momentum = 0.9
optimizer.nesterov = true
optimizer.weight_decay = 1e-4
schedule.base_lr = 0.01
augment.train = ["pad_crop(1)", "flip", "normalize"]
reduce.codec = "exact"
reduce.bucket_mb = 0.2
checkpoint.every = "4 steps"
"#;

/// Creates a data set of 42 images. The last batch of an epoch has 2, so two of the four workers have no image.
fn setting() -> Setting {
    Setting::new(RECIPE, ImageSpec::new(8, 8, 3), [42, 12])
}

fn run(setting: &Setting, kind: &str, out: &str, ranks: usize, how: [&str; 2], sets: &[&str]) -> ProgramOutput {
    let [last, resume] = how;
    let data = format!("data=\"{}\"", setting.data);
    let out = setting.folder.at(out);
    let case = [&[kind, &setting.recipe, &out, last, resume, &data], sets].concat().join("|");
    let mut program = on_ranks(ranks, std::env::current_exe().expect("this program has a path"));
    program.args(["remote::worker", "--exact", "--ignored", "--nocapture", "-q"]).env(CASE, case);
    start(program).wait(PATIENCE)
}

/// Trains to the end and returns the digest of the results and the losses of all steps and evaluations.
#[track_caller]
fn train(setting: &Setting, kind: &str, out: &str, ranks: usize, sets: &[&str]) -> (String, Vec<String>) {
    run(setting, kind, out, ranks, ["all", ""], sets).succeeded();
    let place = setting.folder.at(out);
    let losses = events(&place, "step").iter().chain(&events(&place, "eval")).map(|e| e["loss"].to_string()).collect();
    (setting.digest(out), losses)
}

#[test]
fn ranks_change_nothing() {
    let setting = setting();
    let plain = train(&setting, "reference", "plain", 1, &[]);
    for ranks in [1, 2, 4] {
        assert_eq!(train(&setting, "remote", &format!("remote{ranks}"), ranks, &[]), plain, "{ranks} ranks");
    }
}

/// The tests above transfer the images of each step as bytes. In this test, the device keeps the images.
#[test]
fn images_that_the_device_keeps_change_nothing() {
    let setting = setting();
    let plain = train(&setting, "reference", "plain", 2, &[]);
    assert_eq!(train(&setting, "remote", "kept", 2, &["loader.cache=\"device\""]), plain);
    let varied = ["loader.cache=\"device\"", "augment.train=[\"brightness(9)\", \"normalize\"]"];
    let ended = run(&setting, "remote", "not kept", 1, ["2", ""], &varied).succeeded();
    ended.says(&["loader.cache = \"device\"", "no effect"]);
}

/// Images that are not bytes reach the device in their stored type, and are normalised there.
#[test]
fn stored_values_of_other_types_change_nothing() {
    for dtype in [Dtype::U16, Dtype::I16, Dtype::F32] {
        let noise = |_: At, draws: &mut Draws| f64::from(draws.below(30_000));
        let setting = Setting::with(RECIPE, |dir| images(dir, (ImageSpec::new(8, 8, 5), dtype), [43, 16], noise));
        let lists = ["augment.train=[\"select_bands(4, 1, 2)\", \"pad_crop(1)\", \"flip\", \"normalize\"]"];
        let sets = [lists[0], "augment.eval=[\"select_bands(4, 1, 2)\", \"normalize\"]"];
        let plain = train(&setting, "reference", "plain", 1, &sets);
        assert_eq!(train(&setting, "remote", "remote", 2, &sets), plain, "{dtype}");
    }
}

#[test]
fn every_codec_and_sync_mode_equals_the_reference_device() {
    let setting = setting();
    let ternary = ["reduce.codec=\"ternary\"", "reduce.error_feedback=true", "ema.decay=0.9"];
    let local = ["reduce.codec=\"float\"", "sync=\"local(3)\"", "workers=2"];
    let easgd = ["reduce.codec=\"float\"", "sync=\"easgd(2, 0.3)\"", "workers=2"];
    let clipped = ["reduce.codec=\"int8\"", "optimizer.clip_norm=0.5", "loader.threads=1"];
    for (i, sets) in [ternary, local, easgd, clipped].iter().enumerate() {
        let plain = train(&setting, "reference", &format!("plain{i}"), 2, sets);
        assert_eq!(train(&setting, "remote", &format!("remote{i}"), 2, sets), plain, "{sets:?}");
    }
}

#[test]
fn a_resumed_run_equals_an_uninterrupted_one() {
    let setting = setting();
    let sets = ["epochs=2", "reduce.codec=\"ternary\"", "reduce.error_feedback=true", "ema.decay=0.9"];
    let whole = train(&setting, "remote", "whole", 2, &sets);
    run(&setting, "remote", "parts", 2, ["4", ""], &sets).succeeded();
    run(&setting, "remote", "parts", 4, ["all", "resume"], &sets).succeeded();
    assert_eq!(setting.digest("parts"), whole.0);
}
