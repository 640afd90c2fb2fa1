//! Resuming from a checkpoint with the real binary. A run that was stopped and resumed on another number of ranks ends
//! with the same bits as an undisturbed run. A checkpoint that a run must not use is refused by name.

use std::fs;
use std::path::{Path, PathBuf};

use formats::checkpoint::StateFile;
use loaders::record::masked_crc32c;
use serde_json::Value;

use support::images::{DIGITS, Images, THINGS};
use support::program::{PATIENCE, checkpoints, events, files, logged, run, signal, start, with_file_limit};
use support::setting::Setting;
use support::small_run::poke;
use support::weights::model;

/// A recipe with six steps per epoch. The last step is short.
const RECIPE: &str = r#"
model = "lenet-caffe"
epochs = 2
seed = 3
batch = 9
workers = 3
augment.train = ["normalize"]
schedule.kind = "cosine"
schedule.base_lr = 0.002
reduce.codec = "exact"
"#;

/// Optimizers of every kind, in every form that has its own state.
const OPTIMIZERS: &[&str] = &[
    "kind = \"sgd\"\nmomentum = 0.9\nnesterov = true\nclip_norm = 0.5",
    "kind = \"adam\"\nbeta1 = 0.8\n[ema]\ndecay = 0.99",
    "kind = \"adamw\"\nweight_decay = 0.05",
    "kind = \"rmsprop\"\ncentered = true\nmomentum = 0.5\n[ema]\ndecay = 0.9",
    "kind = \"rmsprop\"\nform = \"tf\"\neps = 1.0\nmomentum = 0.9",
    "kind = \"lars\"\neta = 0.02\nweight_decay = 1e-4",
    "kind = \"adagrad\"\ninitial_accumulator_value = 0.1",
    "kind = \"lion\"\nweight_decay = 0.01",
    "kind = \"lamb\"\nweight_decay = 0.01",
];

const DROPOUT: &str = r#"
input = [1, 28, 28]
classes = 10
nodes = [
    { name = "flat", op = "flatten" },
    { name = "dropout", op = "dropout", rate = 0.5 },
    { name = "fc", op = "linear", features = "classes" },
]
"#;

/// A small vision transformer. Each block has dropout and stochastic depth.
const VIT: &str = r#"
input = [3, 32, 32]
classes = 10
nodes = [
    { name = "patches", op = "conv", channels = 16, kernel = 8, stride = 8, bias = true },
    { name = "class_token", op = "class_token" },
    { name = "pos_embedding", op = "position_embedding" },
    { name = "layers", block = "layer", repeat = 2 },
    { name = "norm", op = "layer_norm" },
    { name = "token", op = "token" },
    { name = "flatten", op = "flatten" },
    { name = "head", op = "linear", features = "classes" },
]

[blocks.layer]
nodes = [
    { name = "norm1", op = "layer_norm" },
    { name = "qkv", op = "conv", channels = 48, kernel = 1, bias = true },
    { name = "attention", op = "attention", heads = 2 },
    { name = "proj", op = "conv", channels = 16, kernel = 1, bias = true },
    REST
]
"#;

/// A small Swin transformer: a block of each version, patch merging, and windows that do not divide the plane.
const SWIN: &str = r#"
input = [3, 32, 32]
classes = 10
nodes = [
    { name = "patches", op = "conv", channels = 16, kernel = 4, stride = 4, bias = true },
    { name = "first", block = "first" },
    { name = "second", block = "second" },
    { name = "merge", op = "space_to_depth" },
    { name = "reduction", op = "conv", channels = 16, kernel = 1 },
    { name = "last", block = "last" },
    { name = "norm", op = "layer_norm" },
    { name = "avgpool", op = "avgpool" },
    { name = "flatten", op = "flatten" },
    { name = "head", op = "linear", features = "classes" },
]

[blocks.first]
nodes = [
    { name = "qkv", op = "conv", channels = 48, kernel = 1, bias = true },
    { name = "attention", op = "attention", heads = 2, window = 4, position_bias = "table" },
    { name = "proj", op = "conv", channels = 16, kernel = 1, bias = true },
    REST
]

[blocks.second]
nodes = [
    { name = "qkv", op = "conv", channels = 48, kernel = 1, bias = true, linear = true, key_bias = false },
    { name = "attention", op = "attention", heads = 2, window = 4, shift = 2, cosine = true, position_bias = "continuous(8)" },
    { name = "proj", op = "conv", channels = 16, kernel = 1, bias = true },
    REST
]

[blocks.last]
nodes = [
    { name = "qkv", op = "conv", channels = 48, kernel = 1, bias = true, pad = [0, 0, 2, 2] },
    { name = "attention", op = "attention", heads = 2, window = 3, shift = 1, crop = 2, position_bias = "table" },
    { name = "proj", op = "conv", channels = 16, kernel = 1, bias = true },
    REST
]
"#;

/// The end of a transformer's block after attention.
const REST: &str = r#"
    { name = "dropout", op = "dropout", rate = 0.1 },
    { name = "drop_path1", op = "drop_path", rate = 0.2 },
    { name = "add1", op = "add", inputs = ["drop_path1", "input"] },
    { name = "norm2", op = "layer_norm" },
    { name = "mlp1", op = "conv", channels = 32, kernel = 1, bias = true },
    { name = "gelu", op = "gelu" },
    { name = "mlp2", op = "conv", channels = 16, kernel = 1, bias = true },
    { name = "drop_path2", op = "drop_path", rate = 0.2 },
    { name = "add2", op = "add", inputs = ["drop_path2", "add1"] },
"#;

const SIZES: [u64; 2] = [50, 20];

/// Returns the simplest run, with the first optimizer and without error feedback.
fn plain() -> Setting {
    Setting::new(&format!("{RECIPE}[optimizer]\n{}\n", OPTIMIZERS[0]), DIGITS, SIZES)
}

/// Compares a run on one rank with the same run in three parts on two, one and three ranks, stopped in the middle of
/// each epoch.
#[track_caller]
fn assert_stops_leave_no_trace(setting: &Setting, what: &str) {
    let whole = setting.trained("whole", 1, &[]);
    let parts = setting.trained("parts", 2, &["--max-steps", "4"]);
    setting.resumed("parts", 1, &["--max-steps", "9", "--set", "log.every=2"]);
    let log = events(&parts, "start");
    assert_eq!((log[1]["step"].as_u64(), log[1]["ranks"].as_u64()), (Some(4), Some(1)), "{what}");
    setting.train("parts", 3, &["--resume", "auto"]).succeeded();
    assert_same_end(what, &whole, &parts);
}

/// Checks that both runs have the same bytes in model.h5 and the same numbers in the log.
#[track_caller]
fn assert_same_end(what: &str, whole: &str, parts: &str) {
    let bytes = |out: &str| fs::read(Path::new(out).join("model.h5")).unwrap();
    assert!(bytes(whole) == bytes(parts), "{what}: model.h5 differs");
    let numbers = |out: &str, event: &str, fields: &[&str]| -> Vec<(u64, Vec<Value>)> {
        let values = |e: &Value| fields.iter().map(|field| e[field].clone()).collect();
        events(out, event).iter().map(|e| (e["step"].as_u64().unwrap(), values(e))).collect()
    };
    let steps = |out: &str| numbers(out, "step", &["epoch", "loss", "top1", "lr", "samples", "grad_norm"]);
    let all = steps(whole);
    assert_eq!(all.iter().map(|step| step.0).collect::<Vec<_>>(), (1..=all.len() as u64).collect::<Vec<_>>(), "{what}");
    let some = steps(parts);
    assert!(
        some.len() > all.len() / 2 && some.iter().all(|step| all.contains(step)),
        "{what}: got steps {some:?}, expected {all:?}"
    );
    for (event, fields) in
        [("epoch", vec!["epoch", "loss", "top1", "lr"]), ("eval", vec!["top1", "top5", "loss", "count"])]
    {
        assert_eq!(numbers(whole, event, &fields), numbers(parts, event, &fields), "{what}: {event}");
    }
}

fn checkpoint(out: &str, step: u64) -> PathBuf {
    Path::new(out).join(format!("checkpoints/step-{step:08}.h5"))
}

#[test]
fn every_optimizer_resumes_to_the_same_bits() {
    for optimizer in OPTIMIZERS {
        let setting = Setting::new(&format!("{RECIPE}[optimizer]\n{optimizer}\n"), DIGITS, SIZES);
        assert_stops_leave_no_trace(&setting, optimizer);
    }
}

/// Resumes the residuals of error feedback, running statistics of batch norm, random transforms and weight averages.
#[test]
fn residuals_and_statistics_resume_to_the_same_bits() {
    let recipe =
        RECIPE.replace("lenet-caffe", "resnet20").replace("\"exact\"", "\"ternary\"\nreduce.error_feedback = true");
    let recipe = recipe.replace("train = [", "train = [\"pad_crop(4)\", \"flip\", ");
    let setting = Setting::new(&format!("{recipe}[optimizer]\n{}\n[ema]\ndecay = 0.9\n", OPTIMIZERS[0]), THINGS, SIZES);
    assert_stops_leave_no_trace(&setting, "ternary, error feedback");
    let state = StateFile::read(&checkpoint(&setting.out("parts"), 12)).unwrap();
    let moved = state.residuals.iter().flatten().flat_map(|t| &t.2).filter(|r| **r != 0.0).count();
    assert!(state.residuals.len() == 3 && moved > 100, "{} workers, {moved} residuals", state.residuals.len());
}

/// Tests random draws in policies, and dropout masks when a batch has copies of an image.
#[test]
fn policies_and_repeats_resume_to_the_same_bits() {
    let list = "\"pad_crop(2, reflect)\", \"flip\", \"rand_augment\", \"augmix(3, 2)\"";
    let recipe = RECIPE.replace("augment.train = [", &format!("augment.repeats = 2\naugment.train = [{list}, "));
    let recipe = recipe.replace("lenet-caffe", "net.toml");
    let setting = Setting::new(&format!("{recipe}[optimizer]\n{}\n", OPTIMIZERS[0]), DIGITS, SIZES);
    setting.folder.write("net.toml", DROPOUT);
    assert_stops_leave_no_trace(&setting, "policies and repeats");
}

/// Tests transformers with dropout and stochastic depth: a vision transformer, and attention in windows with every kind of
/// position bias. The flips alternate between epochs.
#[test]
fn transformers_resume_to_the_same_bits() {
    for (name, net) in [("vit", VIT), ("swin", SWIN)] {
        let recipe = RECIPE.replace("lenet-caffe", &format!("{name}.toml"));
        let recipe = recipe.replace("train = [", "train = [\"pad_crop(4)\", \"alternating_flip\", ");
        let setting =
            Setting::new(&format!("{recipe}[optimizer]\n{}\nclip_norm = 1.0\n", OPTIMIZERS[2]), THINGS, SIZES);
        setting.folder.write(&format!("{name}.toml"), net.replace("REST", REST));
        assert_stops_leave_no_trace(&setting, name);
    }
}

/// Ranks that synchronise only from time to time resume from the synchronised model. Every step is done once.
#[test]
fn local_sgd_resumes_from_the_synchronised_model() {
    let recipe = RECIPE.replace("\"exact\"", "\"float\"").replace("workers = 3", "workers = 2");
    let setting = Setting::new(&format!("{recipe}[optimizer]\n{}\n", "kind = \"sgd\"\nmomentum = 0.9"), DIGITS, SIZES);
    for sync in ["sync=local(2)", "sync=easgd(2, 0.3)"] {
        let out = setting.out(sync);
        let every = ["--set", sync, "--set", "checkpoint.every=1 steps"];
        setting.train(sync, 2, &[&every[..], &["--max-steps", "7"]].concat()).succeeded();
        assert!(checkpoints(&out).contains(&7), "{:?}", files(&out));
        setting.train(sync, 2, &[&every[..], &["--resume", "auto"]].concat()).succeeded();
        let steps: Vec<u64> = events(&out, "step").iter().map(|e| e["step"].as_u64().unwrap()).collect();
        assert_eq!(steps, (1..=12).collect::<Vec<_>>(), "{sync}");
        let samples = StateFile::read(&checkpoint(&out, 12)).unwrap().progress.samples;
        assert_eq!((samples, events(&out, "eval").len()), (100, 2), "{sync}");
    }
}

/// `complete.rs` tests that resuming a finished run does nothing.
#[test]
fn a_finished_run_cannot_end_earlier_or_start_again() {
    let setting = plain();
    setting.trained("out", 0, &[]);
    let past = ["--resume", "auto", "--max-steps", "5"];
    setting.train("out", 2, &past).failed(2, &["--max-steps 5", "step-00000012.h5", "at step 12"]);
    setting.train("out", 0, &[]).failed(2, &["is not empty", "--resume auto"]);
}

#[test]
fn auto_without_a_checkpoint_starts_at_the_beginning() {
    let setting = plain();
    setting.train("out", 2, &["--resume", "auto", "--max-steps", "2"]).succeeded();
    assert_eq!(events(&setting.out("out"), "start")[0]["step"], 0);
    // a folder with a model but without checkpoints is refused; if both are missing, the run was killed before its
    // first checkpoint, and training starts at step 0
    fs::remove_dir_all(setting.out("out/checkpoints")).unwrap();
    setting.train("out", 2, &["--resume", "auto"]).failed(2, &["a model", "no checkpoint", "--out"]);
    setting.resumed("out", 2, &["--max-steps", "2"]);
    assert_eq!(events(&setting.out("out"), "step").len(), 2);
}

#[test]
fn checkpoints_are_kept_by_step_count_and_best_score() {
    let setting = plain();
    let more = ["--set", "checkpoint.every=2 steps", "--set", "checkpoint.keep=2"];
    setting.train("out", 0, &more).succeeded();
    let out = setting.out("out");
    let written: Vec<Value> = events(&out, "checkpoint");
    let steps: Vec<u64> = written.iter().map(|e| e["step"].as_u64().unwrap()).collect();
    assert!(steps.contains(&2) && steps.contains(&6) && steps.contains(&12), "{steps:?}");
    assert!(written.iter().all(|e| e["bytes"].as_u64() > Some(3_000_000) && e["error"].is_null()), "{written:?}");
    let best = StateFile::read(&checkpoint(&out, 12)).unwrap().progress.best.unwrap();
    let top1 = |e: &Value| (e["step"].as_u64().unwrap(), e["top1"].as_f64().unwrap());
    let scores: Vec<_> = events(&out, "eval").iter().map(top1).collect();
    assert!(
        scores.contains(&(best.step, best.score)) && scores.iter().all(|s| s.1 <= best.score),
        "{best:?}, {scores:?}"
    );
    let left = checkpoints(&out);
    let newest: Vec<u64> = {
        let mut all = steps.clone();
        all.sort();
        all.dedup();
        all.split_off(all.len() - 2)
    };
    let mut expected = [newest, vec![best.step]].concat();
    expected.sort();
    expected.dedup();
    assert_eq!(left, expected);
    // every checkpoint can be evaluated as a model
    let file = checkpoint(&out, 12).display().to_string();
    let score = |file: &str| {
        let score = run(0, &["eval", file, "--data", &setting.data, "--json"]).succeeded().json();
        ["top1", "top5", "loss", "count"].map(|field| score[field].clone())
    };
    assert_eq!(score(&file), score(&setting.out("out/model.h5")));
    assert_eq!(StateFile::read(Path::new(&file)).unwrap().model, model(&out));
}

fn flip(path: &Path) {
    poke(path, fs::metadata(path).unwrap().len() / 2, |byte| byte ^ 1);
}

#[test]
fn damaged_checkpoints_are_skipped_by_name() {
    let setting = plain();
    // each of these runs writes a checkpoint at its end
    for steps in ["3", "4", "5"] {
        setting.train("out", 0, &["--resume", "auto", "--max-steps", steps]).succeeded();
    }
    let (out, second, third) = (setting.out("out"), 4, 3);
    assert_eq!(checkpoints(&out), [3, 4, 5]);
    let cut = fs::read(checkpoint(&out, 5)).unwrap();
    fs::write(checkpoint(&out, 5), &cut[..cut.len() / 2]).unwrap();
    flip(&checkpoint(&out, second));
    let ended = setting.train("out", 2, &["--resume", "auto"]).succeeded();
    for (step, why) in [(5, "is cut short"), (second, "is damaged")] {
        let name = format!("step-{step:08}.h5");
        assert!(
            ended.stderr.lines().any(|l| l.contains("skipped a checkpoint") && l.contains(&name) && l.contains(why)),
            "{}",
            ended.stderr
        );
    }
    assert_eq!(events(&out, "start").last().unwrap()["step"], third);
    setting.train("whole", 1, &[]).succeeded();
    assert_same_end("after broken files", &setting.out("whole"), &out);
    // no intact checkpoint is left
    for step in checkpoints(&out) {
        flip(&checkpoint(&out, step));
    }
    setting.train("out", 2, &["--resume", "auto"]).failed(1, &["--resume auto: ", "no checkpoint", "step-00000012.h5"]);
    let named = checkpoint(&out, 12).display().to_string();
    setting.train("out", 2, &["--resume", &named]).failed(1, &[&named, "is damaged"]);
}

/// Tests files with a correct checksum but invalid content, and a FIFO. All are newer than the valid checkpoint.
#[test]
fn forged_checkpoints_are_skipped_for_older_ones() {
    let setting = plain();
    setting.train("out", 0, &["--max-steps", "2"]).succeeded();
    let out = setting.out("out");
    fs::remove_file(setting.out("out/model.h5")).unwrap();
    let good = StateFile::read(&checkpoint(&out, 2)).unwrap();
    let forge = |step: u64, change: fn(&mut StateFile)| {
        let mut state = good.clone();
        change(&mut state);
        state.write(&checkpoint(&out, step)).unwrap();
    };
    forge(3, |state| state.model.recipe = "model = \"lenet".into());
    forge(4, |state| state.model.network = "lenet".into());
    forge(5, |state| state.slots[0].1.truncate(1));
    forge(6, |state| state.model.input = [1, 65_536, 65_536]);
    let made = std::process::Command::new("mkfifo").arg(checkpoint(&out, 7)).status().unwrap();
    assert!(made.success());
    // sets the address of the root group to a position after the end of the file
    let mut bytes = fs::read(checkpoint(&out, 2)).unwrap();
    bytes[36..44].copy_from_slice(&(1u64 << 40).to_le_bytes());
    fs::write(checkpoint(&out, 8), with_checksum(bytes)).unwrap();
    let ended = setting.train("out", 0, &["--resume", "auto", "--max-steps", "3"]).succeeded();
    let whys = ["recipe", "lenet", "optim/", "expected shape", "a FIFO", "within the file's"];
    for (step, why) in (3..).zip(whys) {
        let name = format!("step-{step:08}.h5");
        let named = |line: &str| line.contains("skipped a checkpoint") && line.contains(&name) && line.contains(why);
        assert!(ended.stderr.lines().any(named), "{name}: {why} in {}", ended.stderr);
    }
    assert_eq!(events(&out, "start").last().unwrap()["step"], 2);
    // a recipe with an unknown key is probably from a newer version. Its steps must not be lost
    forge(9, |state| state.model.recipe.insert_str(0, "future_key = 1\n"));
    let before = files(&out);
    let ended = setting.train("out", 0, &["--resume", "auto"]);
    let ended = ended.failed(1, &["step-00000009.h5", "future_key", "nother version of trireme"]);
    assert!(!ended.stderr.contains("remove") && files(&out) == before, "{}{:?}", ended.stderr, files(&out));
    // the same is true for an unknown kind of layer
    let mut bytes = fs::read(checkpoint(&out, 2)).unwrap();
    let kind = b"linear 50 4 4";
    let at = bytes.windows(kind.len()).position(|window| window == kind).unwrap();
    bytes[at..at + 6].copy_from_slice(b"future");
    fs::write(checkpoint(&out, 10), with_checksum(bytes)).unwrap();
    let before = files(&out);
    let ended = setting.train("out", 0, &["--resume", "auto"]);
    let ended = ended.failed(1, &["step-00000010.h5", "fc1", "unknown kind", "future", "newer trireme"]);
    assert!(!ended.stderr.contains("remove") && files(&out) == before, "{}{:?}", ended.stderr, files(&out));
}

fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.truncate(bytes.len() - 4);
    let body = bytes.len() - 12;
    let each: Vec<u8> = bytes[..body].chunks(1 << 20).flat_map(|block| masked_crc32c(block).to_le_bytes()).collect();
    bytes.extend(masked_crc32c(&each).to_le_bytes());
    bytes
}

#[test]
fn a_run_that_would_compute_something_else_is_refused() {
    let setting = plain();
    setting.train("out", 2, &["--max-steps", "3"]).succeeded();
    let resume = |ranks: usize, more: &[&str], parts: &[&str]| {
        setting.train("out", ranks, &[&["--resume", "auto"], more].concat()).failed(2, parts);
    };
    for ranks in [0, 2] {
        resume(
            ranks,
            &["--set", "optimizer.momentum=0.8", "--set", "batch=10"],
            &["step-00000003.h5", "optimizer.momentum: 0.9 ", " 0.8 ", "batch: 9 ", " 10 "],
        );
        resume(ranks, &["--set", "model=lenet"], &["model: \"lenet-caffe\"", "\"lenet\""]);
        resume(ranks, &["--set", "workers=4"], &["workers: 3 ", " 4 "]);
        resume(ranks, &["--set", "ema.decay=0.9"], &["ema.decay: absent", " 0.9 "]);
    }
    resume(4, &[], &["step-00000003.h5", "3 workers", "4 ranks", "at most 3"]);
    let other = Images::new(&setting.folder.path().join("other"), DIGITS, 49, 20).arg();
    resume(2, &["--data", &other], &["another data set", "expected 50 images", "got 49 images"]);
    // a recipe without `workers` uses the number in the checkpoint
    let silent = fs::read_to_string(&setting.recipe).unwrap().replace("workers = 3\n", "");
    fs::write(&setting.recipe, silent).unwrap();
    setting.train("out", 2, &["--resume", "auto"]).succeeded();
    assert_eq!(events(&setting.out("out"), "start")[1]["workers"], 3);
}

#[test]
fn a_named_checkpoint() {
    let setting = plain();
    setting.train("out", 0, &["--set", "checkpoint.every=3 steps"]).succeeded();
    let out = setting.out("out");
    // a checkpoint that becomes due while another is being written is written later, so the steps of checkpoints vary
    let at = checkpoints(&out).into_iter().filter(|step| *step < 12).max().unwrap();
    let (next, named) = ((at + 1).to_string(), checkpoint(&out, at).display().to_string());
    let model = fs::read(setting.out("out/model.h5")).unwrap();
    // a named checkpoint can be resumed into a new output folder
    setting.train("fresh", 2, &["--resume", &named]).succeeded();
    assert!(fs::read(setting.out("fresh/model.h5")).unwrap() == model);
    assert_eq!(events(&setting.out("fresh"), "step")[0]["step"], at + 1);
    // but not into the folder of another run
    setting.train("other", 0, &["--max-steps", "1"]).succeeded();
    setting.train("other", 2, &["--resume", &named]).failed(2, &["is not empty", &named, "is not a checkpoint"]);
    // in the folder of the same run, later checkpoints get the prefix `aside-`
    setting.train("out", 2, &["--resume", &named, "--max-steps", &next]).succeeded();
    assert_eq!(events(&out, "step").last().unwrap()["step"], at + 1);
    assert!(checkpoints(&out).iter().all(|step| *step <= at + 1), "{:?}", files(&out));
    assert!(files(&out).contains(&"checkpoints/aside-step-00000012.h5".to_string()), "{:?}", files(&out));
    // such a file can be resumed in another folder
    let aside = setting.out("out/checkpoints/aside-step-00000012.h5");
    setting.train("out", 0, &["--resume", &aside]).failed(2, &[&aside, "was put aside", "another --out"]);
    setting.train("branch", 0, &["--resume", &aside]).succeeded();
    assert!(fs::read(setting.out("branch/model.h5")).unwrap() == model);
    // a model is not a checkpoint
    let model = setting.out("out/model.h5");
    setting
        .train("fresh2", 2, &["--resume", &model])
        .failed(2, &["model.h5", "not a checkpoint", "out/checkpoints", "[init]"]);
    setting
        .train("fresh2", 2, &["--resume", "nowhere.h5"])
        .failed(2, &["--resume nowhere.h5: ", "No such file", "`auto`"]);
    // a folder is not a checkpoint either, but the error names the newest one in it
    let newest = format!("{out}/checkpoints/step-{:08}.h5", checkpoints(&out).into_iter().max().unwrap());
    for folder in [out.clone(), format!("{out}/checkpoints")] {
        let option = format!("--resume {folder}: ");
        setting.train("fresh2", 2, &["--resume", &folder]).failed(2, &[&option, "a folder", &newest]);
    }
    setting.train("out", 0, &["--resume", &named.replace("step-", "stap-")]).failed(2, &["did you mean", "step-"]);
}

/// A run that resumes from another run's checkpoint in a new folder is killed before it writes a checkpoint. `--resume auto` must
/// continue from the same step. Without a split to score, there is no best checkpoint in the folder either.
#[test]
fn a_run_in_a_new_folder_resumes_before_its_first_checkpoint() {
    let setting = Setting::new(&format!("{RECIPE}[optimizer]\n{}\n", OPTIMIZERS[0]), DIGITS, [50, 0]);
    let keys = ["--set", "epochs=100000", "--set", "checkpoint.every=1h"];
    let part = setting.trained("part", 0, &[&keys[..], &["--max-steps", "3"]].concat());
    let (named, out) = (checkpoint(&part, 3).display().to_string(), setting.out("fresh"));
    let mut running = setting.start("fresh", 0, &[&keys[..], &["--resume", &named]].concat());
    running.until("second step", || logged(&out, "\"event\":\"step\"") >= 2);
    signal(running.id() as i32, libc::SIGKILL);
    assert!(!running.wait(PATIENCE).status.success());
    assert_eq!(checkpoints(&out), [3]);
    setting
        .train("fresh", 0, &[&keys[..], &["--resume", &named]].concat())
        .failed(2, &["is not empty", "--resume auto"]);
    let end = [&keys[..], &["--max-steps", "9"]].concat();
    setting.resumed("fresh", 0, &end);
    assert_eq!(events(&out, "start").last().unwrap()["step"], 3);
    setting.trained("whole", 0, &end);
    assert_eq!(setting.digest("fresh"), setting.digest("whole"));
    assert!(setting.model("fresh") == setting.model("whole"), "model.h5 differs");
}

/// A limit on the file size simulates a full disk: checkpoints (39.3 MB) do not fit, the model (13.1 MB) does.
#[test]
fn a_failed_checkpoint_does_not_end_the_run() {
    let setting = Setting::new(&format!("{RECIPE}[optimizer]\n{}\n", OPTIMIZERS[2]), DIGITS, SIZES);
    let mut command = with_file_limit(0, 30_000, env!("CARGO_BIN_EXE_trireme"));
    let out = setting.out("out");
    command.args(["train", &setting.recipe, "--data", &setting.data, "--out", &out, "--set", "model=lenet"]);
    let ended = start(command).wait(PATIENCE).succeeded();
    ended.says(&["warning: ", "no checkpoint", "step-00000006.h5", "`ulimit -f`"]);
    let failed = events(&out, "checkpoint");
    assert!(!failed.is_empty() && failed.iter().all(|e| e["error"].as_str().unwrap().contains("file size limit")));
    assert_eq!(files(&out), ["metrics.jsonl", "model.h5", "recipe.toml"]);
}
