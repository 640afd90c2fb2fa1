//! Ranks with GPUs enqueue a step before they read the loss sums of the previous step. A run with `--trace` reads each
//! step's sums before it enqueues the next step. Both must give the same results.

use std::fs;

use loaders::ImageSpec;
use support::gpu;
use support::images::{Images, offset_of};
use support::program::{self, events, start};
use support::setting::Setting;
use support::small_run::poke;

/// A recipe with batch normalisation, weight averages and two workers on the rank. The last batch of an epoch has 3 images instead of 8.
const RESNET: &str = r#"
model = "resnet20"
epochs = 2
seed = 7
batch = 8
workers = 2
precision = "bf16"
deterministic = true
optimizer.momentum = 0.9
optimizer.weight_decay = 1e-4
schedule.kind = "cosine"
schedule.base_lr = 0.01
ema.decay = 0.9
augment.train = ["pad_crop(1)", "flip", "normalize"]
"#;

const IMAGE: ImageSpec = ImageSpec { height: 8, width: 8, channels: 3 };

#[track_caller]
fn train(setting: &Setting, out: &str, more: &[&str]) {
    gpu::train(setting, out, 1, more, &[]).succeeded();
}

/// Returns the values of `keys` in each line of this event. `keys` must not include times, which differ between runs.
fn said(setting: &Setting, out: &str, event: &str, keys: &[&str]) -> Vec<String> {
    let lines = events(&setting.out(out), event);
    lines.iter().map(|line| keys.iter().map(|key| format!("{key} {} ", line[*key])).collect()).collect()
}

#[track_caller]
fn assert_same(setting: &Setting, got: &str, want: &str) {
    let steps = ["step", "epoch", "loss", "top1", "lr", "samples", "grad_norm"];
    assert_eq!(said(setting, got, "step", &steps), said(setting, want, "step", &steps));
    let scores = ["step", "top1", "loss", "count"];
    assert_eq!(said(setting, got, "eval", &scores), said(setting, want, "eval", &scores));
    let epochs = ["step", "loss", "top1"];
    assert_eq!(said(setting, got, "epoch", &epochs), said(setting, want, "epoch", &epochs));
    assert_eq!(setting.digest(got), setting.digest(want));
    assert!(setting.model(got) == setting.model(want), "model.h5 differs");
}

#[test]
fn enqueued_steps_match_steps_read_at_once() {
    let setting = Setting::new(RESNET, IMAGE, [43, 16]);
    let trace = setting.out("trace.json");
    for (sets, name) in [
        (&[][..], "plain"),
        (&["--set", "optimizer.clip_norm=0.5"], "clipped"),
        (&["--set", "precision=f16"], "scaled"),
        (&["--set", "loss.class_weights=effective(0.9)"], "weighted"),
    ] {
        let [ahead, at_once] = [format!("{name} ahead"), format!("{name} at once")];
        let more = [sets, &["--max-steps", "8"]].concat();
        train(&setting, &ahead, &more);
        train(&setting, &at_once, &[&more[..], &["--trace", &trace]].concat());
        assert_eq!(setting.losses(&ahead).len(), 8);
        assert_same(&setting, &ahead, &at_once);
        let steps = events(&setting.out(&ahead), "step");
        assert!(steps.iter().all(|step| step["step_ms"].as_f64().is_some_and(|ms| ms > 0.0)));
        assert!(steps.iter().all(|step| step["grad_norm"].is_f64() == (name == "clipped")));
    }
}

/// With class weights, the ranks need the sum of the weights of a step's images before their passes end. With an
/// integer codec, two ranks must give the same results as one.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn weights_are_summed_over_gpus() {
    let setting = Setting::new(RESNET, IMAGE, [43, 16]);
    let weights = ["--set", "loss.class_weights=effective(0.9)", "--set", "reduce.codec=exact", "--max-steps", "8"];
    let train = |out: &str, ranks: usize, more: &[&str]| {
        let more = [&weights[..], more].concat();
        gpu::train(&setting, out, ranks, &more, &[("TRIREME_EMULATED_DEVICES", "2")]).succeeded();
    };
    train("one", 1, &[]);
    train("two", 2, &["--set", "reduce.path=nccl"]);
    // model.h5 contains the recipe, which differs, so the digests of the tensors are compared
    assert_eq!(setting.digest("two"), setting.digest("one"));
    assert_eq!(setting.losses("two"), setting.losses("one"));
    train("plain", 1, &["--set", "loss.class_weights=[1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]);
    assert_ne!(setting.digest("plain"), setting.digest("one"), "the weights change nothing");
}

#[test]
fn checkpoints_contain_results_of_their_own_step() {
    let setting = Setting::new(RESNET, IMAGE, [43, 16]);
    train(&setting, "whole", &["--max-steps", "7"]);
    train(&setting, "stopped", &["--max-steps", "4", "--set", "checkpoint.every=3 steps"]);
    // imitate a run that was killed after step 3: remove the checkpoint of the last step
    let newest = setting.out("stopped") + "/checkpoints/step-00000004.h5";
    fs::remove_file(&newest).unwrap_or_else(|e| panic!("{newest}: {e}"));
    train(&setting, "stopped", &["--max-steps", "7", "--resume", "auto", "--set", "checkpoint.every=3 steps"]);
    assert_same(&setting, "stopped", "whole");
}

/// If the loader skips a record, the gradients of the step are rescaled by the number of remaining images. The host
/// must then wait for the sums of this step and cannot enqueue the next step early.
#[test]
fn skipped_records_give_the_same_results_with_steps_enqueued_ahead() {
    let setting = Setting::with(RESNET, |dir| Images::new(dir, IMAGE, 43, 16));
    let path = setting.images.shard("train", 1);
    poke(&path, offset_of(&path, 4) + 100, |byte| byte ^ 0x20);
    let trace = setting.out("trace.json");
    let skip = ["--max-steps", "6", "--set", "loader.on_corrupt=skip"];
    train(&setting, "ahead", &skip);
    train(&setting, "at once", &[&skip[..], &["--trace", &trace]].concat());
    assert_same(&setting, "ahead", "at once");
    let images = events(&setting.out("ahead"), "epoch")[0]["loader"]["skipped"].as_u64();
    assert_eq!(images, Some(1));
}

/// The message names the step with the bad loss, and the log has the lines of all steps up to it.
#[test]
fn a_loss_that_is_not_finite_is_reported_with_its_own_step() {
    let setting = Setting::new(RESNET, IMAGE, [43, 16]);
    let broken = ["--set", "schedule.kind=constant", "--set", "schedule.base_lr=1e30", "--device", "cuda"];
    let trace = setting.out("trace.json");
    let run = |out: &str, more: &[&str]| {
        let ended = start(gpu::find(setting.command(out, 1, &[&broken[..], more].concat()))).wait(gpu::PATIENCE);
        let stderr = ended.failed(1, &["is not finite"]).stderr;
        let line = stderr.lines().find(|line| line.contains("not finite")).map(String::from);
        let steps = events(&setting.out(out), "step");
        let last = steps.last().expect("the step that diverged");
        assert!(last["loss"].is_null(), "{last}");
        (line, steps.len(), last["step"].clone())
    };
    let at_once = run("at once", &["--trace", &trace]);
    assert_eq!(run("ahead", &[]), at_once);
}

/// The trace of one rank, which the emulated GPU has written.
struct Recorded {
    lines: Vec<(String, usize, String)>,
    /// Indices in `lines` at which a pass begins.
    passes: Vec<usize>,
}

impl Recorded {
    /// Reads the traces of all ranks.
    fn of(setting: &Setting, trace: &str) -> Vec<Self> {
        let files = program::files(&setting.folder.at(""));
        files
            .iter()
            .filter(|file| file.starts_with(&format!("{trace}.")))
            .map(|file| Self::read(&setting.out(file)))
            .collect()
    }

    fn read(path: &str) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let line = |line: &str| {
            let (what, rest) = line.split_once(' ').unwrap();
            let (item, name) = rest.split_once(' ').unwrap();
            (what.to_string(), item.parse().unwrap(), name.to_string())
        };
        let lines: Vec<(String, usize, String)> = text.lines().map(line).collect();
        let begins =
            |line: &(usize, &(String, usize, String))| line.1.0 == "enqueue" && line.1.2 == "kernel input_bytes";
        let passes = lines.iter().enumerate().filter(begins).map(|line| line.0).collect();
        Self { lines, passes }
    }

    /// Returns the number of kernels, copies and fills in a step.
    fn launches(&self, step: usize) -> usize {
        let lines = &self.lines[self.passes[step]..self.passes[step + 1]];
        let beside = ["cuEventRecord", "cuStreamWaitEvent", "ncclAllReduce's sum"];
        lines.iter().filter(|line| line.0 == "enqueue" && !beside.contains(&line.2.as_str())).count()
    }

    /// Returns the calls in which the host waited for the loss of a step, or for later work, before it enqueued the next step.
    fn waits(&self, step: usize) -> Vec<&str> {
        let lines = &self.lines[self.passes[step]..self.passes[step + 1]];
        let losses = ["kernel cross_entropy", "kernel soft_loss"];
        let loss = lines.iter().find(|line| losses.contains(&line.2.as_str())).expect("a loss").1;
        lines.iter().filter(|line| line.0 == "wait" && line.1 >= loss).map(|line| line.2.as_str()).collect()
    }
}

/// With two ranks, the host enqueues NCCL's gradient sums, the update and then the next step before it waits for the
/// loss of this step. A step may have at most 10 % more launches than on one rank.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn the_host_is_ahead_of_gpus_that_sum() {
    let setting = Setting::new(RESNET, IMAGE, [43, 16]);
    let record = |out: &str, ranks: usize, more: &[&str]| {
        let path = setting.out(&format!("{out} trace"));
        let variables = [("TRIREME_EMULATED_DEVICES", "2"), ("TRIREME_EMULATED_TRACE", path.as_str())];
        // clipping needs the norm of the gradients, but the host reads it only after it has enqueued the next step
        let same =
            ["--max-steps", "5", "--set", "reduce.codec=float", "--set", "optimizer.clip_norm=0.5", "--threads", "1"];
        gpu::train(&setting, out, ranks, &[&same[..], more].concat(), &variables).succeeded();
        let recorded = Recorded::of(&setting, &format!("{out} trace"));
        assert_eq!(recorded.len(), ranks);
        recorded
    };
    let one = record("one", 1, &["--set", "workers=1"]);
    let two = record("two", 2, &["--set", "reduce.path=nccl"]);
    let scaled = record("scaled", 2, &["--set", "reduce.path=nccl", "--set", "precision=f16"]);
    let weights = "loss.class_weights=effective(0.9)";
    let weighted = record("weighted", 2, &["--set", "reduce.path=nccl", "--set", weights]);
    let staged = record("staged", 2, &["--set", "reduce.path=staged"]);
    // the third step is the first one that is replayed
    for step in 2..4 {
        one.iter()
            .chain(&two)
            .chain(&scaled)
            .chain(&weighted)
            .for_each(|rank| assert_eq!(rank.waits(step), [""; 0], "step {step}"));
        let launches = [&one, &two].map(|ranks| ranks[0].launches(step));
        println!("step {step}: {launches:?} launches");
        assert!(10 * launches[1] <= 11 * launches[0], "{launches:?} launches");
    }
    assert!(!staged[0].waits(2).is_empty(), "the host takes part in staged sums");
}
