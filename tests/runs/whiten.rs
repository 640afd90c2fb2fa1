//! Runs whose first convolution is initialised to whiten patches of the images.

use support::images::THINGS;
use support::setting::Setting;
use support::weights::tensors;

const RECIPE: &str = r#"
model = "airbench94"
epochs = 2
batch = 12
workers = 3
init.whiten = "whiten"
freeze.patterns = ["whiten.weight"]
optimizer.momentum = 0.85
schedule.base_lr = 0.01
augment.train = ["flip", "normalize(0.5, 0.25)"]
augment.eval = ["normalize(0.5, 0.25)"]
reduce.codec = "exact"
"#;

#[test]
fn whitening_filters_are_equal_on_any_number_of_ranks() {
    let setting = Setting::new(RECIPE, THINGS, [30, 10]);
    let begun = tensors(&setting.trained("begun", 0, &["--max-steps", "0", "--set", "ema.decay=0.9"]));
    let filters = &begun["whiten.weight"].1;
    let (half, negative) = filters.split_at(filters.len() / 2);
    assert!(half.iter().zip(negative).all(|(a, b)| *a == -b), "each filter must have its negative");
    let norms: Vec<f32> = half.chunks(12).map(|filter| filter.iter().map(|x| x * x).sum::<f32>().sqrt()).collect();
    assert!(norms.is_sorted() && norms[0] > 0.0, "filters with smaller eigenvalues must be larger: {norms:?}");

    let trained = tensors(&setting.assert_ranks_change_nothing(&[2, 3], &[]));
    assert_eq!(&trained["whiten.weight"].1, filters, "a frozen weight must not change");
    assert_ne!(trained["whiten.bias"].1, begun["whiten.bias"].1, "the bias must be trained");
    setting.assert_stops_change_nothing("1", &[(2, "3")], 3, &[]);
}

#[test]
fn layers_unfit_for_whitening_are_refused() {
    let setting = Setting::new(RECIPE, THINGS, [30, 10]);
    let refused = |layer: &str, model: &str, words: &[&str]| {
        let (layer, model) = (format!("init.whiten={layer}"), format!("model={model}"));
        let sets = ["--set", &layer, "--set", &model, "--unset", "freeze.patterns", "--dry-run"];
        setting.train("refused", 1, &sets).failed(2, words);
    };
    refused("witen", "airbench94", &["init.whiten = \"witen\"", "no such layer", "\"whiten\""]);
    // all ranks find the same problem, and only rank 0 reports it
    let twice = ["--set", "init.whiten=witen", "--unset", "freeze.patterns", "--dry-run"];
    let ended = setting.train("refused", 2, &twice).failed(2, &["init.whiten = \"witen\"", "no such layer"]);
    assert!(
        !ended.stderr.lines().any(|line| line.contains("init.whiten") && line.contains("rank ")),
        "{}",
        ended.stderr
    );
    refused("group1.conv1", "airbench94", &["init.whiten = \"group1.conv1\"", "the images"]);
    refused("pool", "airbench94", &["init.whiten = \"pool\"", "not a convolution"]);
    refused("conv1", "resnet18", &["init.whiten = \"conv1\"", "147 values", "at most 64"]);
    refused("features.0", "vgg11", &["at most 54 ", "got 64"]);
}
