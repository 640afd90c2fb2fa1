//! Runs with several labels per image, and runs with numbers as labels. On a GPU they give the same results on any number
//! of ranks, and they agree with the CPU.

use loaders::ImageSpec;
use support::images::Images;
use support::program::events;
use support::setting::Setting;
use support::{blobs, gpu};

/// Returns a recipe with a seed for which no input of a ReLU is so near 0 that rounding decides its sign. With other
/// seeds the gradients of GPU and CPU may differ by some thousandths.
fn recipe(more_keys: &str, base_lr: f64, train: &str, loss: &str) -> String {
    let keys = r#"
model = "resnet20"
epochs = 2
seed = 2
batch = 12
workers = 2
"#;
    let sections = format!("[mix]\nmixup = 0.4\nprob = 0.5\n\n[loss]\n{loss}\n");
    crate::recipe(&format!("{keys}{more_keys}"), base_lr, train, &sections)
}

/// Trains on one rank, on two ranks, and with pictures that stay on the GPU, and checks that losses and results are equal.
/// Then trains on the CPU and checks that the losses are nearly equal. `result` reads the results of a run from its
/// output folder. Returns the results on the GPU, and the output folder of the run on the CPU.
fn assert_alike<R: PartialEq + std::fmt::Debug>(setting: &Setting, result: impl Fn(&str) -> R) -> (R, String) {
    let train = |out: &str, ranks: usize, more: &[&str]| {
        let more = [&["--share-gpu", "--set", "reduce.codec=exact"], more].concat();
        gpu::train(setting, out, ranks, &more, &[]).succeeded();
        (setting.losses(out), result(&setting.out(out)))
    };
    let one = train("1", 1, &[]);
    assert_eq!(train("2", 2, &[]), one, "2 ranks");
    // the labels must also belong to the right pictures if the pictures stay on the device
    assert_eq!(train("kept", 1, &["--set", "loader.cache=device"]), one);
    let host = setting.trained("host", 1, &["--device", "cpu"]);
    for (a, b) in one.0.iter().zip(setting.losses("host")) {
        assert!((a - b).abs() < 2e-3 * b, "loss {a} on the GPU, {b} on the CPU");
    }
    (one.1, host)
}

fn hits(out: &str) -> Vec<f64> {
    events(out, "step").iter().map(|line| line["top1"].as_f64().unwrap()).collect()
}

#[test]
fn several_labels_are_learnt_on_a_gpu_as_on_the_processor() {
    let recipe = recipe("label_smoothing = 0.1", 0.05, r#""pad_crop(1)", "flip", "normalize""#, "kind = \"bce\"");
    let setting = Setting::with(&recipe, |dir| Images::several(dir, ImageSpec::new(8, 8, 3), 43, 16));
    let ((own, map), host) = assert_alike(&setting, |out| {
        let eval = events(out, "eval").pop().expect("a score");
        (hits(out), eval["map"].as_f64().unwrap())
    });
    assert!(own.iter().any(|hits| *hits > 0.0) && map > 0.0, "{own:?}, {map}");
    let differ = own.iter().zip(hits(&host)).filter(|(a, b)| (*a - b).abs() > 1e-9).count();
    assert!(differ <= 1, "hits on the GPU {own:?}, on the CPU {:?}", hits(&host));
}

#[test]
fn numbers_are_learnt_on_a_gpu_as_on_the_processor() {
    let recipe = recipe("", 0.01, r#""pad_crop(1)", "normalize""#, "kind = \"huber\"\ndelta = 0.8");
    let setting = Setting::with(&recipe, |dir| blobs::images(dir, ImageSpec::new(8, 8, 1), [43, 16]));
    assert_alike(&setting, |out| {
        let eval = events(out, "eval").pop().expect("a score");
        (eval["rmse"].as_f64().unwrap(), eval["targets"].clone())
    });
}
