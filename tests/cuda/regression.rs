//! Regression runs (numbers as labels) on a GPU give the same results on any number of ranks and agree with the CPU.

use loaders::ImageSpec;
use support::program::events;
use support::setting::Setting;
use support::{blobs, gpu};

const RECIPE: &str = r#"
model = "resnet20"
data = "given with --data"
epochs = 2
seed = 2
batch = 12
workers = 2

[optimizer]
kind = "sgd"
momentum = 0.9

[schedule]
kind = "constant"
base_lr = 0.01

[augment]
train = ["pad_crop(1)", "normalize"]
eval = ["normalize"]

[mix]
mixup = 0.4
prob = 0.5

[loss]
kind = "huber"
delta = 0.8
"#;

#[test]
fn numbers_are_learnt_on_a_gpu_as_on_the_processor() {
    let setting = Setting::with(RECIPE, |dir| blobs::images(dir, ImageSpec::new(8, 8, 1), [43, 16]));
    let train = |out: &str, ranks: usize, more: &[&str]| {
        gpu::train(&setting, out, ranks, &[&["--share-gpu"], more].concat(), &[]).succeeded();
        let eval = events(&setting.out(out), "eval").pop().expect("a score");
        (setting.losses(out), eval["rmse"].as_f64().unwrap(), eval["targets"].clone())
    };
    let exact = ["--set", "reduce.codec=exact"];
    let one = train("1", 1, &exact);
    assert_eq!(train("2", 2, &exact), one, "2 ranks");
    // the numbers must also belong to the right pictures if the pictures stay on the device
    assert_eq!(train("kept", 1, &[&exact[..], &["--set", "loader.cache=device"]].concat()), one);
    setting.trained("host", 1, &["--device", "cpu"]);
    for (a, b) in one.0.iter().zip(setting.losses("host")) {
        assert!((a - b).abs() < 2e-3 * b, "loss {a} on the GPU, {b} on the CPU");
    }
}
