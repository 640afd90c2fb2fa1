//! Whole runs of the real binary with `--device cuda`, on this machine's card where TRIREME_TEST_GPU=1 says so, else on the emulated
//! one: the laws hold there, order and schedule of what the card does change nothing, and each thing that may be missing or broken
//! is named.

#[path = "support/emulator.rs"]
mod emulator;
#[path = "support/images.rs"]
mod images;
#[path = "support/program.rs"]
mod program;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use images::Images;
use loaders::ImageSpec;
use program::{Ended, Folder, events, start, trireme};

/// For the line that says what is left out.
const TESTS: usize = 13;

/// A run on the emulated card computes on one core, which other tests want too.
const PATIENCE: Duration = Duration::from_secs(300);

/// Batch normalisation, random transforms; 8x8 pixels are enough for the three stages.
const RESNET: &str = r#"
model = "resnet20"
data = "given with --data"
epochs = 2
seed = 7
batch = 8
workers = 4
deterministic = true

[optimizer]
kind = "sgd"
momentum = 0.9
weight_decay = 1e-4

[schedule]
kind = "constant"
base_lr = 0.01

[augment]
train = ["pad_crop(1)", "flip", "normalize"]
eval = ["normalize"]
"#;

/// A recipe, images, and where kernels and choices are kept.
struct Setting {
    folder: Folder,
    recipe: String,
    data: String,
}

impl Setting {
    fn new(recipe: &str) -> Self {
        Self::sized(recipe, 8)
    }

    /// With images of this height and width.
    fn sized(recipe: &str, size: u32) -> Self {
        let folder = Folder::new();
        let data = Images::new(&folder.path().join("data"), ImageSpec::new(size, size, 3), 43, 16).arg();
        let recipe = folder.write("recipe.toml", recipe);
        Self { folder, recipe, data }
    }

    /// `trireme train` on a GPU, ready to start, and its OUT.
    fn command(&self, name: &str, ranks: usize, more: &[&str], settings: &[(&str, &str)]) -> (Command, String) {
        let out = self.folder.at(name);
        let args = ["train", &self.recipe, "--data", &self.data, "--out", &out, "--device", "cuda"];
        let mut command = trireme(ranks, &[&args, more].concat());
        if !emulator::card() {
            let (variable, folders) = emulator::library_path();
            command.env(variable, folders);
        }
        command.envs(settings.iter().copied());
        (command, out)
    }

    #[track_caller]
    fn run(&self, name: &str, ranks: usize, more: &[&str], settings: &[(&str, &str)]) -> (Ended, String) {
        let (command, out) = self.command(name, ranks, more, settings);
        (start(command).wait(PATIENCE), out)
    }

    #[track_caller]
    fn train(&self, name: &str, ranks: usize, more: &[&str]) -> String {
        let (ended, out) = self.run(name, ranks, more, &[]);
        ended.succeeded();
        out
    }
}

fn available() -> bool {
    emulator::card() || emulator::available(TESTS)
}

/// Whether a test of the stand-in's settings can run: on a real card they mean nothing.
fn emulated() -> bool {
    !emulator::card() && emulator::available(TESTS)
}

fn model(out: &str) -> Vec<u8> {
    fs::read(Path::new(out).join("model.h5")).unwrap_or_else(|e| panic!("{out}/model.h5: {e}"))
}

fn losses(out: &str) -> Vec<f64> {
    events(out, "step").iter().map(|line| line["loss"].as_f64().expect("a loss")).collect()
}

const EXACT: &[&str] = &["--set", "reduce.codec=exact", "--share-gpu", "--max-steps", "8"];

#[test]
fn ranks_that_share_a_card_give_the_same_bits() {
    if !available() {
        return;
    }
    let setting = Setting::new(RESNET);
    let one = setting.train("1", 1, EXACT);
    assert_eq!(events(&one, "step").len(), 8);
    for ranks in [2, 4] {
        let out = setting.train(&ranks.to_string(), ranks, EXACT);
        assert_eq!(losses(&out), losses(&one), "{ranks} ranks");
        assert!(model(&out) == model(&one), "{ranks} ranks: another model.h5");
        let counts = |out: &str| events(out, "eval").iter().map(|e| e["count"].clone()).collect::<Vec<_>>();
        assert_eq!(counts(&out), counts(&one), "every test image once, on {ranks} ranks");
    }
}

#[test]
fn a_card_computes_what_the_processor_does() {
    if !available() {
        return;
    }
    let setting = Setting::new(RESNET);
    // from the eighth step on one processor's instruction sets differ by 1e-3 too: batch norm over two images magnifies rounding
    let more = ["--max-steps", "7"];
    let card = setting.train("card", 1, &more);
    let out = setting.folder.at("cpu");
    let args = ["train", &setting.recipe, "--data", &setting.data, "--out", &out, "--device", "cpu", "--threads", "1"];
    start(trireme(1, &[&args[..], &more].concat())).wait(PATIENCE).succeeded();
    let log = fs::read_to_string(Path::new(&card).join("metrics.jsonl")).expect("the log");
    assert!(log.contains("\"device\":\"cuda ("), "the log names another device");
    for (i, (got, want)) in losses(&card).iter().zip(losses(&out)).enumerate() {
        assert!((got / want - 1.0).abs() < 1e-5, "loss of step {}: {got} on the card, {want} on the processor", i + 1);
    }
    let samples = |out: &str| events(out, "step").iter().map(|s| s["samples"].clone()).collect::<Vec<_>>();
    assert_eq!(samples(&card), samples(&out));
}

#[test]
fn a_run_goes_on_as_if_it_had_never_stopped() {
    if !available() {
        return;
    }
    let setting = Setting::new(RESNET);
    let whole = setting.train("whole", 1, EXACT);
    let stopped = setting.train("stopped", 2, &[&EXACT[..3], &["--max-steps", "3"]].concat());
    let resumed = setting.train("stopped", 1, &[EXACT, &["--resume", "auto"]].concat());
    assert_eq!(stopped, resumed);
    assert_eq!(losses(&resumed), losses(&whole));
    assert!(model(&resumed) == model(&whole), "another model.h5");
}

#[test]
fn sixteen_bits_learn_too() {
    if !available() {
        return;
    }
    let setting = Setting::new(RESNET);
    for precision in ["bf16", "f16"] {
        let set = format!("precision={precision}");
        let out = setting.train(precision, 1, &["--set", &set, "--set", "epochs=4"]);
        let losses = losses(&out);
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        let (first, last) = (mean(&losses[..4]), mean(&losses[losses.len() - 4..]));
        assert!(last < 0.95 * first, "{precision}: mean loss {first} at first, {last} at last");
    }
}

#[test]
fn two_ranks_on_one_card_need_leave() {
    if !available() {
        return;
    }
    let setting = Setting::new(RESNET);
    let (ended, _) = setting.run("out", 2, &["--max-steps", "2"], &[]);
    ended.failed(1, &["have opened the same GPU", "--share-gpu"]);
}

/// The emulated card runs work as late as it may, at once, with threads and blocks backwards, and at random.
#[test]
fn no_schedule_changes_a_bit() {
    if !emulated() {
        return;
    }
    let setting = Setting::new(RESNET);
    // all that a codec and an optimizer can be asked for
    let sets = ["optimizer.kind=lars", "optimizer.clip_norm=0.5", "ema.decay=0.9", "reduce.codec=ternary"];
    let mut rich: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    rich.extend(["--set", "reduce.error_feedback=true", "--share-gpu", "--max-steps", "6"]);
    for (name, more) in [("exact", EXACT), ("rich", &rich)] {
        let run = |order: &str| {
            let out = format!("{name} {order}");
            let (ended, out) = setting.run(&out, 2, more, &[("TRIREME_EMULATED_ORDER", order)]);
            ended.succeeded();
            model(&out)
        };
        let lazy = run("lazy");
        for order in ["eager", "reverse", "3"] {
            assert!(
                run(order) == lazy,
                "{name}, order {order}: another model.h5: something is read before it is written"
            );
        }
    }
}

#[test]
fn every_rank_takes_a_card_of_its_own() {
    if !emulated() {
        return;
    }
    let setting = Setting::new(RESNET);
    let alone = setting.train("alone", 1, EXACT);
    let more = ["--set", "reduce.codec=exact", "--max-steps", "8"];
    let (ended, out) = setting.run("two", 2, &more, &[("TRIREME_EMULATED_DEVICES", "2")]);
    ended.succeeded();
    assert!(model(&out) == model(&alone), "another model.h5");
}

/// A folder with some of the stand-ins.
fn some_libraries(folder: &Folder, names: &[&str]) -> String {
    let here = folder.path().join("libraries");
    fs::create_dir_all(&here).expect("a folder");
    for name in names {
        symlink(emulator::folder().expect("built").join(name), here.join(name)).expect("a link");
    }
    here.display().to_string()
}

#[test]
fn what_is_missing_is_named() {
    if !emulated() {
        return;
    }
    let setting = Setting::new(RESNET);
    let none = some_libraries(&setting.folder, &[]);
    let (ended, _) = setting.run("no-driver", 1, &[], &[("LD_LIBRARY_PATH", &none)]);
    ended.failed(1, &["--device cuda", "libcuda is not there", &none, "install the NVIDIA driver"]);
    let some = some_libraries(&setting.folder, &["libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13"]);
    let (ended, _) = setting.run("no-cudnn", 1, &[], &[("LD_LIBRARY_PATH", &some)]);
    ended.failed(1, &["libcudnn is not there", "pip install nvidia-cudnn-cu13"]);
    let (ended, _) = setting.run("old", 1, &[], &[("TRIREME_EMULATED_DRIVER", "12040")]);
    ended.failed(1, &["the driver knows CUDA 12.4", "update the driver"]);
    let (ended, _) = setting.run("no-card", 1, &[], &[("CUDA_VISIBLE_DEVICES", "")]);
    ended.failed(1, &["--device cuda", "no GPU"]);
    let (ended, _) = setting.run("small", 1, &[], &[("TRIREME_EMULATED_CC", "60")]);
    ended.failed(1, &["compute capability 6.0", "at least 7.0"]);
}

#[test]
fn a_card_that_is_too_small_says_for_what() {
    if !emulated() {
        return;
    }
    let setting = Setting::new(RESNET);
    let (ended, _) = setting.run("out", 1, &[], &[("TRIREME_EMULATED_MEMORY", "3000000")]);
    ended.failed(1, &["memory", "MB", "smaller batch"]);
}

#[test]
fn a_broken_cache_is_made_again() {
    if !emulated() {
        return;
    }
    let setting = Setting::new(RESNET);
    let cache = setting.folder.at("cache");
    let run = |name: &str| setting.run(name, 1, &["--max-steps", "1"], &[("TRIREME_CACHE", &cache)]);
    run("first").0.succeeded();
    let kernels: Vec<_> = program::files(&cache).into_iter().filter(|file| file.ends_with(".cubin")).collect();
    assert_eq!(kernels.len(), 1, "{kernels:?}");
    let file = Path::new(&cache).join(&kernels[0]);
    let whole = fs::read(&file).expect("the kernels");
    for broken in [&whole[..whole.len() / 2], b"", &[&whole[..9000], b"!", &whole[9001..]].concat()] {
        fs::write(&file, broken).expect("written");
        let _ = fs::remove_dir_all(setting.folder.at("again"));
        run("again").0.succeeded();
        assert!(fs::read(&file).expect("the kernels") == whole, "made again");
    }
}

/// From some call of the driver on, every call fails on rank 1, as when its card has fallen off the bus: rank, host and card are said
/// once, and what to look at.
#[test]
fn a_card_that_falls_off_ends_all_ranks() {
    if !emulated() {
        return;
    }
    let setting = Setting::new(RESNET);
    let (_, folders) = emulator::library_path();
    let own = env!("CARGO_BIN_EXE_trireme");
    let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("this host's name");
    // in the middle of training, as two ways of falling; while the card is opened
    let (place, gone) = (format!("rank 1: on {}", host.trim()), "the GPU is gone");
    let (card, cure) = ("Emulated GPU 0 (GPU-", "dmesg | grep -i xid");
    for (fault, name, parts) in [
        ("3000:719", "CUDA_ERROR_LAUNCH_FAILED", [&place[..], card, gone, cure]),
        ("3000:999", "CUDA_ERROR_UNKNOWN", [&place, card, gone, cure]),
        ("20:999", "CUDA_ERROR_UNKNOWN", [&place, ": ", gone, cure]),
    ] {
        let out = setting.folder.at(fault);
        let args = ["train", &setting.recipe, "--data", &setting.data, "--out", &out, "--device", "cuda"];
        let path = format!("LD_LIBRARY_PATH={folders}");
        let mut command = program::on_ranks(1, "env");
        command.args([&path, own]).args(args).args(["--share-gpu", ":", "-n", "1", "env"]);
        command.args([&path, &format!("TRIREME_EMULATED_FAULT={fault}"), own]).args(args).arg("--share-gpu");
        start(command).wait(PATIENCE).failed(1, &[&parts[..], &[name]].concat());
    }
}

/// Two images a step make LeNet's first gradients too large for f16 at the first scale: all ranks leave those steps out alike.
const LENET: &str = r#"
model = "lenet"
data = "given with --data"
epochs = 1
seed = 7
batch = 2
workers = 2
precision = "f16"

[optimizer]
kind = "sgd"
momentum = 0.9

[schedule]
kind = "constant"
base_lr = 1e-4

[augment]
train = ["normalize(0.5, 0.01)"]
eval = ["normalize(0.5, 0.01)"]

[reduce]
codec = "exact"
"#;

fn digest(out: &str) -> String {
    let ends = events(out, "end");
    ends.last().expect("an end")["digest"].as_str().expect("a digest").to_string()
}

#[test]
fn a_step_that_f16_cannot_hold_is_left_out_on_all_ranks() {
    if !emulated() {
        return;
    }
    // at 8x8 one bucket has all parameters and zeros between them, which must stay zeros when a step is lost
    for (size, later) in [(32, "6"), (8, "16")] {
        let setting = Setting::sized(LENET, size);
        let train =
            |name: &str, ranks, more: &[&str]| digest(&setting.train(name, ranks, &[&["--share-gpu"], more].concat()));
        // left out: the rate, ten times as high, is not asked
        let first = ["--max-steps", "1"];
        let higher = [&first[..], &["--set", "schedule.base_lr=1e-3"]].concat();
        assert_eq!(train("first", 1, &first), train("higher", 1, &higher), "the first step was taken");
        assert_eq!(train("first of 2", 2, &first), train("first of 1", 1, &first));
        // and then the scale fits: the rate shows, and the bits are the same on any number of ranks
        let later = ["--max-steps", later];
        let one = train("one", 1, &later);
        assert_eq!(train("two", 2, &later), one);
        let higher = [&later[..], &["--set", "schedule.base_lr=1e-3"]].concat();
        assert_ne!(train("one higher", 1, &higher), one, "no step was taken");
    }
}

/// What f16 cannot hold in the forward pass no scale can help.
#[test]
fn a_loss_that_is_lost_in_f16_says_so() {
    if !emulated() {
        return;
    }
    let setting = Setting::new(LENET);
    let huge = ["--share-gpu", "--set", "augment.train=[\"normalize(0.5, 1e-6)\"]"];
    let (ended, _) = setting.run("out", 2, &huge, &[]);
    ended.failed(1, &["the loss of step 1 is not finite", "the loss of every rank", "precision = \"bf16\"", "65,504"]);
}
