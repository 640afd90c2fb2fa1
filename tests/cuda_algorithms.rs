//! The algorithms of NVIDIA's libraries: rank 0's choice is that of all ranks and of every start of a run; where it cannot be, that is said.
//! On the emulated card only: its libraries prefer other algorithms where they are told to, whose results differ in their last bit.

#[path = "support/card.rs"]
mod card;
#[path = "support/emulator.rs"]
mod emulator;
#[path = "support/images.rs"]
mod images;
#[path = "support/program.rs"]
mod program;
#[path = "support/setting.rs"]
mod setting;

use loaders::ImageSpec;
use program::{Ended, events, on_ranks, start};
use setting::Setting;
use trireme::checkpoint::StateFile;

const RECIPE: &str = r#"
model = "lenet"
data = "given with --data"
epochs = 1
seed = 7
batch = 6
workers = 2
deterministic = true

[optimizer]
kind = "sgd"
momentum = 0.9

[schedule]
kind = "constant"
base_lr = 0.01

[augment]
train = ["normalize"]
eval = ["normalize"]

[reduce]
codec = "exact"
"#;

/// 20 images: the last batch has 2.
fn setting() -> Setting {
    Setting::new(RECIPE, ImageSpec::new(8, 8, 3), [20, 6])
}

const OTHER: &str = "TRIREME_EMULATED_PREFERENCE=reverse";

/// Trains on as many ranks as there are settings of the environment, and gives the digest.
#[track_caller]
fn train(setting: &Setting, out: &str, ranks: &[&str], more: &[&str]) -> (String, Ended) {
    let ended = run(setting, out, ranks, more).succeeded();
    (setting.digest(out), ended)
}

fn run(setting: &Setting, out: &str, ranks: &[&str], more: &[&str]) -> Ended {
    let (_, folders) = emulator::library_path();
    let (path, out) = (format!("LD_LIBRARY_PATH={folders}"), setting.folder.at(out));
    let args = ["train", &setting.recipe, "--data", &setting.data, "--out", &out, "--device", "cuda", "--share-gpu"];
    // a cache of its own: nobody's timings
    let cache = format!("TRIREME_CACHE={}", setting.folder.at("cache"));
    let mut command = on_ranks(1, "env");
    for (rank, own) in ranks.iter().enumerate() {
        if rank > 0 {
            command.args([":", "-n", "1", "env"]);
        }
        command.args([&path[..], &cache, own, env!("CARGO_BIN_EXE_trireme")]).args(args).args(more);
    }
    start(command).wait(card::PATIENCE)
}

fn notes(ended: &Ended) -> Vec<&str> {
    ended.stderr.lines().filter(|line| line.contains("algorithms")).collect()
}

#[test]
fn all_ranks_and_all_starts_take_rank_0_s_choice() {
    if !card::emulated("one choice of algorithms for all ranks") {
        return;
    }
    let setting = setting();
    let (first, _) = train(&setting, "first", &["A=1"], &[]);
    let (other, _) = train(&setting, "other", &[OTHER], &[]);
    assert_ne!(first, other, "the preference must tell");
    for (out, ranks, want) in [("1", ["A=1", OTHER], &first), ("2", [OTHER, "A=1"], &other)] {
        let (made, ended) = train(&setting, out, &ranks, &[]);
        assert_eq!(made, *want, "{ranks:?}: rank 1 has chosen for itself");
        assert_eq!(notes(&ended), [""; 0]);
    }
    // stopped, and gone on with where the libraries would prefer others, on one rank and on two
    for (out, ranks) in [("parts 1", &[OTHER][..]), ("parts 2", &["A=1", OTHER])] {
        train(&setting, out, &["A=1"], &["--max-steps", "2"]);
        let (made, ended) = train(&setting, out, ranks, &["--resume", "auto"]);
        assert_eq!(made, first, "{ranks:?}: other algorithms after the stop");
        assert_eq!(notes(&ended), [""; 0]);
    }
}

/// Where a clock chooses, other ranks take what rank 0 has timed, too.
#[test]
fn ranks_take_what_rank_0_has_timed() {
    if !card::emulated("timed algorithms") {
        return;
    }
    let setting = setting();
    let timed = ["--set", "deterministic=false", "--set", "reduce.codec=float", "--max-steps", "2"];
    let (_, ended) = train(&setting, "out", &["A=1", OTHER], &timed);
    assert_eq!(notes(&ended), [""; 0]);
    let state = StateFile::read(&setting.folder.path().join("out/checkpoints/step-00000002.h5")).expect("a checkpoint");
    let algorithms = state.progress.algorithms;
    assert!(algorithms.starts_with("Emulated GPU 0, cuDNN 9.19.0, cuBLASLt 13.0.0\n"), "{algorithms}");
    // LeNet's two convolutions: one gradient of an input is not asked for
    for (what, count) in [("convolution ", 5), ("product ", 1)] {
        let found = algorithms.lines().filter(|line| line.contains(what)).count();
        assert!(found >= count, "{found} lines of {what:?} in:\n{algorithms}");
    }
}

#[test]
fn another_card_goes_on_and_says_what_no_longer_holds() {
    if !card::emulated("a run that goes on on another card") {
        return;
    }
    let setting = setting();
    train(&setting, "parts", &["TRIREME_EMULATED_DEVICES=2"], &["--max-steps", "2"]);
    let wide = "TRIREME_EMULATED_DEVICES=2";
    // the second card has another name
    let (_, ended) = train(&setting, "parts", &[wide, wide], &["--max-steps", "3", "--resume", "auto"]);
    let said = notes(&ended);
    assert_eq!(said.len(), 1, "{}", ended.stderr);
    for part in
        ["note: rank(s) 1 choose algorithms for themselves", "Emulated GPU 0", "this is Emulated GPU 1", "other bits"]
    {
        assert!(said[0].contains(part), "no {part:?} in {}", said[0]);
    }
    let resume = ["--resume", "auto"];
    let mut alone = setting.command("parts", 1, &[&["--device", "cuda"], &resume[..]].concat());
    card::find(&mut alone).env("TRIREME_EMULATED_DEVICES", "2").env("CUDA_VISIBLE_DEVICES", "1");
    let ended = start(alone).wait(card::PATIENCE).succeeded();
    let said = notes(&ended);
    assert_eq!(said.len(), 1, "{}", ended.stderr);
    for part in [
        "note: the checkpoint's algorithms are not this run's",
        "for Emulated GPU 0",
        "this is Emulated GPU 1",
        "not bit for bit",
    ] {
        assert!(said[0].contains(part), "no {part:?} in {}", said[0]);
    }
}

/// A processor has no choice: its checkpoints go on on a card, and the card's on a processor, which says so.
#[test]
fn runs_go_on_from_processor_to_card_and_back() {
    if !card::emulated("runs between processor and card") {
        return;
    }
    let setting = setting();
    let on = |device: &str, last: &str| {
        let args = ["--device", device, "--threads", "1", "--max-steps", last, "--resume", "auto"];
        let mut command = setting.command("out", 1, &args);
        start({
            card::find(&mut command);
            command
        })
        .wait(card::PATIENCE)
        .succeeded()
    };
    assert_eq!(notes(&on("cpu", "1")), [""; 0]);
    assert_eq!(notes(&on("cuda", "2")), [""; 0]);
    let back = on("cpu", "3");
    assert!(notes(&back).len() == 1 && notes(&back)[0].contains("this is cpu"), "{}", back.stderr);
    assert_eq!(events(&setting.folder.at("out"), "step").len(), 3);
}
