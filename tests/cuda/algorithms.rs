//! All ranks of a run use the algorithms of NVIDIA's libraries that rank 0 chose, also after a resume. If this is not
//! possible, the program prints a note.
//!
//! An environment variable makes the emulated libraries prefer other algorithms, whose results differ in the last bit.

use formats::checkpoint::StateFile;
use loaders::ImageSpec;

use crate::recipe;
use support::program::{ProgramOutput, events, on_ranks};
use support::setting::Setting;
use support::{gpu, mentions};

/// Creates a data set of 20 training images. The last batch has 2.
fn setting() -> Setting {
    let keys = r#"
model = "lenet"
epochs = 1
seed = 7
batch = 6
workers = 2
deterministic = true
"#;
    let recipe = recipe(keys, 0.01, r#""normalize""#, "[reduce]\ncodec = \"exact\"");
    Setting::new(&recipe, ImageSpec::new(8, 8, 3), [20, 6])
}

const OTHER: &str = "TRIREME_EMULATED_PREFERENCE=reverse";

/// Trains on one rank for each element of `ranks`. The element is an environment variable `NAME=VALUE` for this rank.
/// Returns the digest of the trained model.
#[track_caller]
fn train(setting: &Setting, out: &str, ranks: &[&str], more: &[&str]) -> (String, ProgramOutput) {
    let ended = run(setting, out, ranks, more).succeeded();
    (setting.digest(out), ended)
}

fn run(setting: &Setting, out: &str, ranks: &[&str], more: &[&str]) -> ProgramOutput {
    let out = setting.folder.at(out);
    let args =
        ["train", "-v", &setting.recipe, "--data", &setting.data, "--out", &out, "--device", "cuda", "--share-gpu"];
    let mut command = on_ranks(1, "env");
    for (rank, own) in ranks.iter().enumerate() {
        if rank > 0 {
            command.args([":", "-n", "1", "env"]);
        }
        command.args([own, env!("CARGO_BIN_EXE_trireme")]).args(args).args(more);
    }
    gpu::run(command)
}

fn notes(ended: &ProgramOutput) -> Vec<&str> {
    ended.stderr.lines().filter(|line| line.starts_with("note: ") && line.contains("algorithms")).collect()
}

/// Returns where the most recent run into the output folder `out` got its algorithms from, according to its log.
fn whose(setting: &Setting, out: &str) -> String {
    let starts = events(&setting.folder.at(out), "start");
    let said = starts.last().expect("a start")["facts"]["algorithms"].as_str().unwrap_or_default();
    said.rsplit(", ").next().unwrap_or_default().to_string()
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn all_ranks_and_all_starts_take_rank_0_s_choice() {
    let setting = setting();
    let (first, _) = train(&setting, "first", &["A=1"], &[]);
    let (other, _) = train(&setting, "other", &[OTHER], &[]);
    assert_ne!(first, other, "the preference must change the digest");
    for (out, ranks, want) in [("1", ["A=1", OTHER], &first), ("2", [OTHER, "A=1"], &other)] {
        let (made, ended) = train(&setting, out, &ranks, &[]);
        assert_eq!(made, *want, "{ranks:?}: rank 1 did not use rank 0's choice");
        assert_eq!(notes(&ended), [""; 0]);
        assert_eq!(whose(&setting, out), "rank 0's choice");
    }
    // stop the run, then resume it on one and on two ranks with libraries that prefer other algorithms
    for (out, ranks) in [("parts 1", &[OTHER][..]), ("parts 2", &["A=1", OTHER])] {
        train(&setting, out, &["A=1"], &["--max-steps", "2"]);
        let (made, ended) = train(&setting, out, ranks, &["--resume", "auto"]);
        assert_eq!(made, first, "{ranks:?}: the resumed run used other algorithms");
        assert_eq!(notes(&ended), [""; 0]);
        assert_eq!(whose(&setting, out), "the checkpoint's");
    }
}

#[test]
fn timed_choices_are_shared_by_all_ranks_and_starts() {
    let setting = setting();
    // both caches are empty, so that no start finds earlier timings
    let [first, second] = ["1", "2"].map(|name| format!("TRIREME_CACHE={}", setting.folder.at(name)));
    let timed = ["--set", "deterministic=false", "--set", "reduce.codec=float"];
    let algorithms = |step: u32| {
        let path = setting.folder.at(&format!("out/checkpoints/step-0000000{step}.h5"));
        let state = StateFile::read(path.as_ref()).unwrap_or_else(|e| panic!("{e}"));
        state.progress.algorithms
    };
    let (_, ended) = train(&setting, "out", &[&first, OTHER], &[&timed[..], &["--max-steps", "2"]].concat());
    assert_eq!(notes(&ended), [""; 0]);
    let chosen = algorithms(2);
    // two convolutions and two linear layers, each with a forward pass and two gradients, except that the gradient of the images is not
    // computed, and that trireme's own kernel computes the weight gradient of the last convolution because this layer has few weights
    let lines = |what: &str| chosen.lines().filter(|line| line.contains(what) && !line.ends_with(" images")).count();
    assert_eq!((lines(", cuDNN "), lines("\tconvolution "), lines("\tlinear ")), (1, 5, 4), "{chosen}");
    let more = [&timed[..], &["--resume", "auto", "--max-steps", "3"]].concat();
    let (_, ended) = train(&setting, "out", &[&second, &second], &more);
    assert_eq!(notes(&ended), [""; 0]);
    assert_eq!(algorithms(3), chosen);
}

#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn another_gpu_goes_on_and_says_what_no_longer_holds() {
    let setting = setting();
    train(&setting, "parts", &["TRIREME_EMULATED_DEVICES=2"], &["--max-steps", "2"]);
    let wide = "TRIREME_EMULATED_DEVICES=2";
    // in the emulator the second GPU has another name, so rank 1 has another kind of GPU
    let (_, ended) = train(&setting, "parts", &[wide, wide], &["--max-steps", "3", "--resume", "auto"]);
    let said = notes(&ended);
    assert_eq!(said.len(), 1, "{}", ended.stderr);
    mentions(said[0], &["rank 1 ", "cannot use", "Emulated GPU 0", "not for Emulated GPU 1", "bit-identical"]);
    let mut alone = setting.command("parts", 1, &["--device", "cuda", "--resume", "auto"]);
    alone.envs([("TRIREME_EMULATED_DEVICES", "2"), ("CUDA_VISIBLE_DEVICES", "1")]);
    let ended = gpu::run(alone).succeeded();
    let said = notes(&ended);
    assert_eq!(said.len(), 1, "{}", ended.stderr);
    let parts = ["other algorithms", "the checkpoint's", "for Emulated GPU 0", "not for Emulated GPU 1", "bit for bit"];
    mentions(said[0], &parts);
}

/// A checkpoint can name an engine that no longer runs, for example after a downgrade of the driver with the same
/// cuDNN. The run must choose another engine and say so.
#[test]
fn an_algorithm_that_does_not_run_is_replaced_and_named() {
    let setting = setting();
    train(&setting, "out", &["A=1"], &["--max-steps", "2"]);
    let path = setting.folder.path().join("out/checkpoints/step-00000002.h5");
    let mut state = StateFile::read(&path).unwrap_or_else(|e| panic!("{e}"));
    let sound = state.progress.algorithms.clone();
    let line = sound.lines().find(|line| line.ends_with("gradient of the weights")).expect("a convolution's gradient");
    let operation = line.split('\t').next_back().expect("an operation");
    state.progress.algorithms = sound.replace(line, &format!("9999 2=1\t{operation}"));
    state.write(&path).unwrap_or_else(|e| panic!("{e}"));
    let (_, ended) = train(&setting, "out", &["A=1", "A=1"], &["--max-steps", "3", "--resume", "auto"]);
    let said = notes(&ended);
    assert_eq!(said.len(), 1, "{}", ended.stderr);
    mentions(said[0], &["the checkpoint's differ for", operation, "bit for bit"]);
    let later = setting.folder.path().join("out/checkpoints/step-00000003.h5");
    let state = StateFile::read(&later).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(state.progress.algorithms, sound, "the new choice must equal the first one");
}

/// A run can continue from a CPU checkpoint on a GPU and from a GPU checkpoint on a CPU. A note says that the algorithms change.
#[test]
#[cfg_attr(feature = "real-gpu", ignore = "needs settings of the emulated GPU")]
fn runs_go_on_from_processor_to_gpu_and_back() {
    let setting = setting();
    let on = |device: &str, last: &str| {
        let args = ["--device", device, "--threads", "1", "--max-steps", last, "--resume", "auto"];
        gpu::run(setting.command("out", 1, &args)).succeeded()
    };
    assert_eq!(notes(&on("cpu", "1")), [""; 0]);
    let there = on("cuda", "2");
    assert!(notes(&there).len() == 1 && notes(&there)[0].contains("not for Emulated"), "{}", there.stderr);
    assert_eq!(whose(&setting, "out"), "rank 0's choice", "a CPU checkpoint has no algorithms for a GPU");
    let back = on("cpu", "3");
    assert!(notes(&back).len() == 1 && notes(&back)[0].contains("not for oneDNN"), "{}", back.stderr);
    assert_eq!(events(&setting.folder.at("out"), "step").len(), 3);
}
