//! Helpers for the tests of multi-label images and of regression.

use std::fs;

use serde_json::Value;

use support::program::{events_without_times, numbers, run, sets};
use support::setting::Setting;
use support::weights::{model, model_at};

/// Returns the evaluations of a run.
pub fn scores(out: &str) -> Vec<Value> {
    events_without_times(out, "eval")
}

/// Checks that the run has the same bits and scores on 1 to 4 ranks and after a stop. Returns its scores.
#[track_caller]
pub fn assert_equal_bits(setting: &Setting) -> Vec<Value> {
    let one = scores(&setting.assert_ranks_change_nothing(&[2, 3, 4], &[]));
    for ranks in ["2", "3", "4"] {
        assert_eq!(scores(&setting.out(ranks)), one, "{ranks} ranks");
    }
    setting.assert_stops_change_nothing("1", &[(3, "13")], 2, &[]);
    one
}

/// Checks for each list of keys that 18 steps on one rank and on three ranks have the same bits and scores.
#[track_caller]
pub fn assert_keys_combine(setting: &Setting, lists: &[&[&str]]) {
    for (number, keys) in lists.iter().enumerate() {
        let args = [&sets(keys)[..], &["--max-steps", "18"]].concat();
        let [one, three] = [1, 3].map(|ranks| {
            let name = format!("{number}-{ranks}");
            let out = setting.trained(&name, ranks, &args);
            (setting.digest(&name), setting.losses(&name), scores(&out))
        });
        assert_eq!(one, three, "{keys:?}");
    }
}

/// Extracts the images of the test split to `photos` and returns the lines of `trireme predict` for them.
pub fn predictions(setting: &Setting, out: &str, more: &[&str]) -> Vec<Value> {
    let photos = setting.folder.path().join("photos");
    fs::create_dir_all(&photos).unwrap();
    for id in 0..setting.images.manifest.splits["test"].count {
        data_tools::extract(&setting.images.dir, "test", id, &photos.join(format!("{id:02}.png"))).unwrap();
    }
    let photos = photos.display().to_string();
    run(0, &[&["predict", out, &photos, "--json"], more].concat()).succeeded().json_lines()
}

/// Checks that `found`, from `eval --best`, is the evaluation with the best score, and that this is not the last one.
#[track_caller]
pub fn assert_best(found: &Value, out: &str, by: &str, falls: bool) {
    let all = numbers(out, "eval", by);
    let better = |a: f64, b: f64| if falls { a < b } else { a > b };
    let best = (0..all.len()).reduce(|best, next| if better(all[next], all[best]) { next } else { best }).unwrap();
    assert!(best + 1 < all.len(), "the last epoch is the best by {by}, so nothing is tested: {all:?}");
    assert_eq!((found[by].as_f64(), found["epoch"].as_u64()), (Some(all[best]), Some(best as u64 + 1)), "{all:?}");
}

/// Checks that a copy of the model from `trireme import` has the same labels, bands and predictions. `images` is a file or
/// a folder.
#[track_caller]
pub fn assert_import_keeps_predictions(setting: &Setting, out: &str, images: &str, more: &[&str]) {
    let copy = setting.folder.at("imported.h5");
    run(0, &["import", &format!("{out}/model.h5"), "-o", &copy]).succeeded();
    let (own, made) = (model(out), model_at(&copy));
    assert_eq!((made.label_kind(), &made.targets, &made.bands), (own.label_kind(), &own.targets, &own.bands));
    assert_eq!((made.image, &made.mean, &made.std), (own.image, &own.mean, &own.std));
    let predicted = |model: &str| run(0, &[&["predict", model, images, "--json"], more].concat()).succeeded().stdout;
    assert_eq!(predicted(&copy), predicted(out));
}

/// Checks that exports of this model can be imported without options, and that the imported models have the same labels,
/// transforms and statistics.
#[track_caller]
pub fn assert_exports_are_imported(setting: &Setting, out: &str) {
    let own = model(out);
    for (to, name) in [("safetensors", "labels.safetensors"), ("keras", "labels.h5"), ("onnx", "labels.onnx")] {
        let (file, copy) = (setting.folder.at(name), setting.folder.at("copy.h5"));
        run(0, &["export", out, "--to", to, "-o", &file]).succeeded();
        run(0, &["import", &file, "-o", &copy, "--force"]).succeeded();
        let made = model_at(&copy);
        assert_eq!((made.label_kind(), &made.classes, &made.targets), (own.label_kind(), &own.classes, &own.targets));
        assert_eq!((made.image, &made.preprocess, &made.bands), (own.image, &own.preprocess, &own.bands), "{name}");
        assert_eq!((&made.mean, &made.std), (&own.mean, &own.std), "{name}");
    }
}

/// Checks that model.h5 and an export to Keras end with this activation and not with a softmax.
#[track_caller]
pub fn assert_activation(setting: &Setting, out: &str, activation: &str) {
    let exported = setting.folder.at("net.h5");
    run(0, &["export", out, "--to", "keras", "-o", &exported]).succeeded();
    for file in [&exported, &format!("{out}/model.h5")] {
        let bytes = fs::read(file).unwrap();
        let has = |word: &str| bytes.windows(word.len()).any(|part| part == word.as_bytes());
        assert!(has(&format!("\"activation\":\"{activation}\"")) && !has("softmax"), "{file}");
    }
}
