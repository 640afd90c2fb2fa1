//! Multi-label runs on a GPU give the same results on any number of ranks, and agree with the CPU.

use loaders::ImageSpec;
use support::gpu;
use support::images::Images;
use support::program::events;
use support::setting::Setting;

/// A recipe with a seed for which no input of a ReLU is so near 0 that rounding decides its sign. With other seeds the
/// gradients of GPU and CPU may differ by some thousandths.
const RECIPE: &str = r#"
model = "resnet20"
data = "given with --data"
epochs = 2
seed = 2
batch = 12
workers = 2
label_smoothing = 0.1

[optimizer]
kind = "sgd"
momentum = 0.9

[schedule]
kind = "constant"
base_lr = 0.05

[augment]
train = ["pad_crop(1)", "flip", "normalize"]
eval = ["normalize"]

[mix]
mixup = 0.4
prob = 0.5

[loss]
kind = "bce"
"#;

/// Returns the hits of each step.
fn hits(out: &str) -> Vec<f64> {
    events(out, "step").iter().map(|line| line["top1"].as_f64().unwrap()).collect()
}

#[test]
fn several_labels_are_learnt_on_a_gpu_as_on_the_processor() {
    let setting = Setting::with(RECIPE, |dir| Images::several(dir, ImageSpec::new(8, 8, 3), 43, 16));
    let train = |out: &str, ranks: usize, more: &[&str]| {
        gpu::train(&setting, out, ranks, &[&["--share-gpu"], more].concat(), &[]).succeeded();
        let out_path = setting.out(out);
        let eval = events(&out_path, "eval").pop().expect("a score");
        (setting.losses(out), hits(&out_path), eval["map"].as_f64().unwrap())
    };
    let exact = ["--set", "reduce.codec=exact"];
    let one = train("1", 1, &exact);
    assert_eq!(train("2", 2, &exact), one, "2 ranks");
    // the labels must also belong to the right pictures if the pictures stay on the device
    assert_eq!(train("kept", 1, &[&exact[..], &["--set", "loader.cache=device"]].concat()), one);
    assert!(one.1.iter().any(|hits| *hits > 0.0) && one.2 > 0.0, "{one:?}");
    let host = setting.trained("host", 1, &["--device", "cpu"]);
    for (a, b) in one.0.iter().zip(setting.losses("host")) {
        assert!((a - b).abs() < 2e-3 * b, "loss {a} on the GPU, {b} on the CPU");
    }
    let differ = one.1.iter().zip(hits(&host)).filter(|(a, b)| (*a - b).abs() > 1e-9).count();
    assert!(differ <= 1, "hits on the GPU {:?}, on the CPU {:?}", one.1, hits(&host));
}
