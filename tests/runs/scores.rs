//! Decisions that a run makes from its scores: which checkpoint it keeps, when it ends, and which epochs it evaluates.
//! They are the same on any number of ranks and after a stop.

use std::fs;
use std::path::Path;

use loaders::SplitManifest;
use serde_json::Value;

use support::images::DIGITS;
use support::program::{ProgramOutput, events, files, numbers, run, sets};
use support::setting::Setting;
use support::weights::model;

/// A recipe with six steps per epoch.
const RECIPE: &str = r#"
epochs = 5
seed = 3
batch = 8
workers = 3
optimizer.momentum = 0.9
schedule.base_lr = 0.003
reduce.codec = "exact"
"#;

fn setting() -> Setting {
    Setting::new(RECIPE, DIGITS, [48, 40])
}

/// Returns the epoch and a score of each evaluation of the weights, or of the averages.
fn scores(out: &str, ema: bool, field: &str) -> Vec<(u64, f64)> {
    let of = events(out, "eval").into_iter().filter(|line| (line["ema"] == true) == ema);
    of.map(|line| (line["epoch"].as_u64().unwrap(), line[field].as_f64().unwrap())).collect()
}

/// Evaluates with the batch size that one worker uses in training, so that the scores are rounded in the same way.
fn eval(out: &str, more: &[&str]) -> (Value, ProgramOutput) {
    let ended = run(0, &[&["eval", out, "--threads", "1", "--json", "--batch", "3"], more].concat()).succeeded();
    (ended.json(), ended)
}

fn end(out: &str) -> Value {
    events(out, "end").pop().expect("an end")
}

/// For each score, the best checkpoint is kept even if it is not the newest, and `--best` selects it. All numbers of
/// ranks agree.
#[test]
fn the_best_by_any_score_is_kept_and_found() {
    let setting = setting();
    for (by, field, ema, higher) in
        [("loss", "loss", false, false), ("macro_f1", "macro_f1", false, true), ("ema.loss", "loss", true, false)]
    {
        let name = format!("checkpoint.best_by={by}");
        // the rate grows until training diverges, so that the last epoch is not the best
        let keys = [&name, "ema.decay=0.9", "checkpoint.keep=1", "schedule.kind=exponential", "schedule.gamma=2.5"];
        let found: Vec<u64> = [0, 2, 3]
            .map(|ranks| {
                let out = setting.trained(&format!("{by}-{ranks}"), ranks, &sets(&keys));
                let all = scores(&out, ema, field);
                let better = |a: f64, b: f64| if higher { a > b } else { a < b };
                let best =
                    all.iter().copied().reduce(|best, next| if better(next.1, best.1) { next } else { best }).unwrap();
                assert!(best.0 < 5, "{by}: the last epoch is the best, so nothing is tested: {all:?}");
                let kept = Path::new(&out).join(format!("checkpoints/step-{:08}.h5", 6 * best.0));
                assert!(kept.exists(), "{by}: {all:?}, {:?}", files(&out));
                let averages: &[&str] = if ema { &["--ema"] } else { &[] };
                let (score, ended) = eval(&out, &[&["--best"], averages].concat());
                assert_eq!((score[field].as_f64(), score["step"].as_u64()), (Some(best.1), Some(6 * best.0)), "{by}");
                ended.says(&[&format!("best by {by} (")]);
                best.0
            })
            .into();
        assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "{by}: {found:?}");
    }
    let out = setting.out("loss-0");
    let picture = setting.folder.at("picture.png");
    image::GrayImage::new(28, 28).save(&picture).unwrap();
    let predicted = run(0, &["predict", &out, &picture, "--best"]).succeeded();
    predicted.says(&["best by loss"]);
    let exported = run(0, &["export", &out, "--best", "--to", "onnx", "-o", &setting.out("best.onnx")]).succeeded();
    exported.says(&["best by loss"]);
    run(0, &["eval", &format!("{out}/model.h5"), "--best"]).failed(2, &["--best", "is not a folder"]);
    fs::remove_dir_all(Path::new(&out).join("checkpoints")).unwrap();
    run(0, &["eval", &out, "--best"]).failed(1, &["--best", "has no checkpoints"]);
}

/// Tests which epochs are evaluated, on how many images, and whether the averages are evaluated, too.
#[test]
fn scorings_follow_the_eval_settings() {
    let setting = setting();
    let keys = ["eval.every=2", "eval.offset=1", "eval.limit=17", "ema.decay=0.9"];
    let [alone, two] = [0, 2].map(|ranks| setting.trained(&ranks.to_string(), ranks, &sets(&keys)));
    assert_eq!(numbers(&alone, "eval", "count"), [17.0; 6]);
    let epochs = |ema| scores(&alone, ema, "loss").iter().map(|one| one.0).collect::<Vec<_>>();
    assert_eq!((epochs(false), epochs(true)), (vec![1, 3, 5], vec![1, 3, 5]));
    for ema in [false, true] {
        assert_eq!(scores(&alone, ema, "loss"), scores(&two, ema, "loss"));
    }
    let off = setting.trained("off", 0, &sets(&["eval.every=3", "ema.decay=0.9", "eval.ema=false"]));
    assert_eq!(
        scores(&off, false, "top1").iter().map(|one| one.0).collect::<Vec<_>>(),
        [3, 5],
        "the last epoch must be evaluated"
    );
    assert!(scores(&off, true, "top1").is_empty());
    assert_eq!(setting.digest("off"), setting.digest("0"), "evaluations must not change the result");
    let (last, _) = eval(&alone, &["--ema"]);
    let whole = setting.trained("whole", 0, &sets(&["ema.decay=0.9"]));
    assert_eq!(scores(&whole, true, "loss")[4].1, last["loss"].as_f64().unwrap());
    assert!(events(&whole, "eval").iter().all(|line| line["count"] == 40));
}

/// A run ends after `stop.patience` evaluations without a better score. If it was stopped before and resumed on other
/// ranks, it ends at the same step with the same bits.
#[test]
fn patience_ends_a_stopped_run_at_the_same_step() {
    let setting = setting();
    // no top-1 can be better by 1, so no score after the first counts as better
    let keys = sets(&["stop.patience=2", "stop.min_delta=1", "epochs=50"]);
    let whole = setting.trained("whole", 1, &keys);
    assert_eq!((end(&whole)["step"].as_u64(), end(&whole)["ended"].as_str()), (Some(18), Some("patience")));
    setting.trained("parts", 2, &[&keys[..], &["--max-steps", "8"]].concat());
    setting.resumed("parts", 1, &[&keys[..], &["--max-steps", "14"]].concat());
    let last = setting.resumed("parts", 3, &keys);
    last.says(&["no better top1", "stop.patience", "step 18"]);
    setting.assert_same_bits("parts", "whole");
    // the run counts as complete until `stop.patience` is increased
    let again = setting.train("parts", 2, &[&keys[..], &["--resume", "auto"]].concat()).succeeded();
    assert!(again.stdout.contains("complete, 18 steps"), "{}{}", again.stdout, again.stderr);
    let longer = sets(&["stop.patience=3", "stop.min_delta=1", "epochs=50"]);
    setting.train("parts", 2, &[&longer[..], &["--resume", "auto"]].concat()).succeeded();
    setting.trained("longer", 0, &longer);
    assert_eq!(end(&setting.out("longer"))["step"], 24);
    assert!(setting.model("longer") == setting.model("parts"), "model.h5 differs");
}

/// A score that exists only because `--max-steps` ended the run, at an epoch that the recipe does not evaluate, does
/// not count.
#[test]
fn a_score_only_at_max_steps_does_not_count() {
    let setting = setting();
    let keys = sets(&["eval.every=2", "stop.patience=1", "stop.min_delta=1", "epochs=50"]);
    setting.trained("whole", 0, &keys);
    assert_eq!(end(&setting.out("whole"))["step"], 24);
    let parts = setting.trained("parts", 2, &[&keys[..], &["--max-steps", "6"]].concat());
    assert_eq!(scores(&parts, false, "loss").len(), 1, "the score must still be logged");
    setting.resumed("parts", 1, &keys);
    assert_eq!(setting.digest("whole"), setting.digest("parts"));
}

/// A resumed run may end at its checkpoint: because of `--max-steps`, or because it has already reached a lower
/// `stop.patience`. If that epoch was not evaluated, the resumed run evaluates it. So the model has its own scores.
#[test]
fn a_resumed_run_that_ends_at_once_is_scored() {
    let setting = setting();
    let common = ["eval.every=2", "stop.min_delta=1", "checkpoint.every=1 epochs", "checkpoint.keep=9", "epochs=7"];
    let keys = |patience| sets(&[&common[..], &[patience]].concat());
    let whole = setting.trained("whole", 0, &keys("stop.patience=9"));
    assert_eq!(scores(&whole, false, "loss").iter().map(|one| one.0).collect::<Vec<_>>(), [2, 4, 6, 7]);
    for (name, ranks, step, patience, last) in
        [("steps", 2, 18_u64, "stop.patience=9", "18"), ("patience", 0, 30, "stop.patience=1", "42")]
    {
        let from = format!("{whole}/checkpoints/step-{step:08}.h5");
        let more = ["--resume", &from, "--max-steps", last];
        let ended = setting.train(name, ranks, &[&keys(patience)[..], &more].concat());
        let ended = ended.succeeded();
        let out = setting.out(name);
        let evals = events(&out, "eval");
        assert_eq!(
            (evals.len(), &evals[0]["step"], &evals[0]["epoch"]),
            (1, &step.into(), &(step / 6).into()),
            "{name}"
        );
        // the log of a run that was killed before its end already has these scores
        let log = Path::new(&out).join("metrics.jsonl");
        let text = fs::read_to_string(&log).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| !line.contains("\"event\":\"end\"")).collect();
        fs::write(&log, lines.join("\n") + "\n").unwrap();
        let again = ["--resume", "auto", "--max-steps", last];
        setting.train(name, ranks, &[&keys(patience)[..], &again].concat()).succeeded();
        assert_eq!(events(&out, "eval"), evals, "{name}");
        let (scored, _) = eval(&out, &[]);
        let kept = model(&out).scores;
        for score in ["loss", "top1"] {
            let score_kept = kept.get(&format!("test/{score}")).copied();
            assert_eq!((score_kept, &evals[0][score]), (scored[score].as_f64(), &scored[score]), "{name}: {score}");
        }
        if patience == "stop.patience=1" {
            ended.says(&["no better top1", "stop.patience", "step 30"]);
        }
    }
}

/// Early stopping can be switched off in a resumed run. Its other keys then have no effect.
#[test]
fn patience_can_be_switched_off() {
    let setting = setting();
    let keys = sets(&["stop.patience=1", "stop.min_delta=1", "epochs=3"]);
    let out = setting.trained("out", 0, &[&keys[..], &["--max-steps", "6"]].concat());
    let last = setting.resumed("out", 2, &sets(&["stop.min_delta=1", "epochs=3"]));
    last.says(&["warning: stop.min_delta ", "without stop.patience"]);
    assert_eq!(end(&out)["step"], 18);
}

/// If a part of the run has no early stopping, its scores and all earlier scores do not count for a later part with early stopping.
#[test]
fn patience_begins_anew_when_it_is_switched_on_again() {
    let setting = setting();
    let with = sets(&["stop.patience=1", "stop.min_delta=1", "epochs=50"]);
    let without = sets(&["stop.min_delta=1", "epochs=50"]);
    let out = setting.trained("out", 0, &with);
    assert_eq!((end(&out)["step"].as_u64(), end(&out)["ended"].as_str()), (Some(12), Some("patience")));
    setting.resumed("out", 0, &[&without[..], &["--max-steps", "18"]].concat());
    setting.resumed("out", 2, &with);
    // the score of step 24 counts first, and the score of step 30 is not better by 1
    assert_eq!((end(&out)["step"].as_u64(), end(&out)["ended"].as_str()), (Some(30), Some("patience")));
}

#[test]
fn a_target_ends_a_run_and_its_time_is_logged() {
    let setting = setting();
    let keys = sets(&["stop.target=1000", "stop.score=loss"]);
    let out = setting.trained("out", 2, &keys);
    let line = end(&out);
    let (time, all) = (line["seconds_to_target"].as_f64().unwrap(), line["seconds"].as_f64().unwrap());
    assert_eq!((line["step"].as_u64(), line["ended"].as_str()), (Some(6), Some("target")));
    assert!(time > 0.0 && time < all, "{line}");
    let never = sets(&["stop.target=0", "stop.score=loss", "epochs=2"]);
    let out = setting.trained("never", 0, &[&never[..], &["--max-steps", "9"]].concat());
    assert!(end(&out)["ended"].is_null() && end(&out)["seconds_to_target"].is_null());
    // the logged time to the target includes the first part of the run
    let last = setting.resumed("never", 0, &sets(&["stop.target=1000", "stop.score=loss", "epochs=2"]));
    assert!(last.stderr.contains("target: loss") && last.stderr.contains("as in MLPerf"), "{}", last.stderr);
    assert_eq!(end(&out)["step"], 12);
    // the first part has no target and does not record its time, so no time to the target is logged
    let out = setting.trained("untimed", 0, &["--set", "epochs=2", "--max-steps", "6"]);
    let last = setting.resumed("untimed", 0, &sets(&["stop.target=0", "epochs=2"]));
    assert!(last.stderr.contains("target: top1") && !last.stderr.contains("MLPerf"), "{}", last.stderr);
    assert!(end(&out)["seconds_to_target"].is_null(), "{}", end(&out));
}

/// With both splits, `validation` selects the best model, and `test` is scored once at the end, on all its images. Results agree for all
/// rank counts.
#[test]
fn test_is_scored_only_at_the_end_if_there_is_validation() {
    let setting = setting();
    let both = setting.described("both", |manifest| {
        let train = manifest.splits["train"].clone();
        manifest.splits.insert("validation".into(), train);
    });
    let keys = sets(&["stop.patience=2", "stop.min_delta=1", "epochs=50", "eval.limit=10", "ema.decay=0.9"]);
    let mut found = Vec::new();
    for ranks in [0, 2] {
        let name = format!("both-{ranks}");
        let out = setting.trained(&name, ranks, &[&["--data", &both], &keys[..]].concat());
        let all = events(&out, "eval");
        // returns the split, the image count, and whether the run ends here and scores the averages
        let of = |line: &Value| {
            let (split, count) = (line["split"].as_str().unwrap().to_string(), line["count"].as_u64().unwrap());
            (split, count, line["at_end"] == true, line["ema"] == true)
        };
        let validation = [false, true].map(|averages| ("validation".to_string(), 10_u64, false, averages));
        let test = [false, true].map(|averages| ("test".to_string(), 40_u64, true, averages));
        let expected: Vec<_> = validation.into_iter().cycle().take(6).chain(test).collect();
        assert_eq!(all.iter().map(of).collect::<Vec<_>>(), expected);
        assert!(all.iter().all(|line| line["split"] == "validation" || line["best"].is_null()));
        let (scored, _) = eval(&out, &["--split", "test"]);
        assert_eq!(all[6]["loss"], scored["loss"], "the score must be that of the last step");
        let scores = model(&out).scores;
        assert_eq!(scores.get("test/loss").copied(), scored["loss"].as_f64());
        assert_eq!(scores.get("validation/loss").copied(), all[4]["loss"].as_f64());
        found.push(all.iter().map(|line| line["loss"].to_string()).collect::<Vec<_>>());
    }
    assert_eq!(found[0], found[1]);
    // a recipe that names `test` uses it to select the best model
    let keys = sets(&["eval_split=test", "epochs=1"]);
    let out = setting.trained("named", 0, &[&["--data", &both], &keys[..]].concat());
    let all = events(&out, "eval");
    assert_eq!((all.len(), &all[0]["split"], &all[0]["best"]), (1, &"test".into(), &"top1".into()));
}

/// Other programs may write an empty split `validation`. Then `test` is scored after each epoch, also in a staged copy, and
/// `eval` skips empty splits, too.
#[test]
fn empty_splits_are_not_scored() {
    let setting = setting();
    let empty = setting.described("empty", |manifest| {
        manifest.splits.insert("validation".into(), SplitManifest::default());
    });
    let keys = [&["--data", &empty][..], &sets(&["epochs=2"])].concat();
    let stage = setting.out("stage");
    for (name, more) in [("direct", &[][..]), ("staged", &["--stage", &stage])] {
        let ended = setting.train(name, 2, &[&keys[..], more].concat()).succeeded();
        assert!(!ended.stderr.contains("nothing is evaluated"), "{}", ended.stderr);
        let all = events(&setting.out(name), "eval");
        let splits: Vec<&Value> = all.iter().map(|line| &line["split"]).collect();
        assert_eq!(splits, ["test", "test"]);
        assert!(all.iter().all(|line| line["count"] == 40 && line["at_end"] != true), "{all:?}");
    }
    let swapped = setting.described("swapped", |manifest| {
        let test = std::mem::take(manifest.splits.get_mut("test").unwrap());
        manifest.splits.insert("validation".into(), test);
    });
    let (scored, _) = eval(&setting.out("direct"), &["--data", &swapped]);
    assert_eq!((&scored["split"], &scored["count"]), (&"validation".into(), &40.into()));
}

/// If `--max-steps` ends a run within an epoch, the run has a best checkpoint and its output shows the epoch's progress.
/// A checkpoint that was due at this step contains the score, too.
#[test]
fn the_end_within_an_epoch_may_be_the_best() {
    let setting = setting();
    let first = sets(&["checkpoint.best_by=loss", "checkpoint.every=1 steps"]);
    let ended = setting.train("part", 0, &[&first[..], &["--max-steps", "3"]].concat());
    let ended = ended.succeeded();
    ended.says(&["epoch 1 ends", "3 of 6 steps"]);
    ended.says(&["(step 3)", "the last step", "the best"]);
    let out = setting.out("part");
    assert_eq!(events(&out, "eval")[0]["best"], "loss");
    assert_eq!(eval(&out, &["--best"]).0["step"], 3);
    // if a later step is better, it becomes the best
    setting.resumed("part", 0, &["--set", "checkpoint.best_by=loss", "--max-steps", "9"]);
    let steps: Vec<Value> = events(&out, "eval").into_iter().map(|line| line["step"].clone()).collect();
    assert_eq!(steps, [6, 9]);
}

/// The log of the continued run does not have the line of the best score, but a list of runs has the step that `--best` selects.
#[test]
fn the_best_within_an_epoch_stays_the_best_in_the_list_of_runs() {
    let setting = setting();
    // the rate is too small to change a weight after step 3, so no later score is better
    let keys = sets(&["schedule.kind=step", "schedule.milestones=[0.5]", "schedule.gamma=1e-30", "epochs=2"]);
    let out = setting.trained("out", 0, &[&keys[..], &["--max-steps", "3"]].concat());
    let first = events(&out, "eval").remove(0);
    for last in ["9", "12"] {
        setting.resumed("out", 0, &[&keys[..], &["--max-steps", last]].concat());
        assert!(events(&out, "eval").iter().all(|line| line["step"] != 3 && line["best"].is_null()));
        assert_eq!(eval(&out, &["--best"]).0["step"], 3);
        let best = run(0, &["runs", &out, "--json"]).succeeded().json()["best"].take();
        for key in ["step", "split", "top1", "top5", "loss"] {
            assert_eq!(best[key], first[key], "{key} up to step {last}");
        }
    }
}

#[test]
fn rules_need_scores() {
    let without = Setting::new(RECIPE, DIGITS, [48, 0]);
    without.train("out", 0, &sets(&["stop.patience=1"])).failed(1, &["test or validation", "stop.score"]);
    let named = sets(&["stop.patience=1", "eval_split=test"]);
    without.train("named", 0, &named).failed(1, &["no images in the split test;", "stop.score"]);
    let setting = setting();
    setting
        .train("out", 0, &sets(&["stop.patience=1", "stop.score=ema.loss"]))
        .failed(2, &["stop.score", "needs averages"]);
}
