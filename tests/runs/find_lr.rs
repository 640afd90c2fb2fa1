//! `trireme train --find-lr` tries the same learning rates and gets the same losses on any number of ranks. It does not
//! touch the run's folder.

use std::fs;
use std::path::Path;

use support::images::DIGITS;
use support::setting::Setting;
use support::small_run::RECIPE;

/// `normalize` makes the images so large that the gradients of the second step are not finite. The search must end on
/// every rank, and no rank may wait for another.
#[test]
fn a_search_that_diverges_at_once_ends_on_all_ranks() {
    let setting = Setting::new(&format!("{RECIPE}\n[reduce]\ncodec = \"exact\"\n"), DIGITS, [48, 10]);
    let bright = [
        "--find-lr=20",
        "--set",
        "augment.train=[\"normalize(0, 1e-18)\"]",
        "--set",
        "augment.eval=[\"normalize(0, 1e-18)\"]",
    ];
    for ranks in [0, 2] {
        setting.train("out", ranks, &bright).failed(1, &["--find-lr", "did not fall"]);
    }
}

#[test]
fn the_same_rate_is_found_on_any_number_of_ranks() {
    let setting = Setting::new(&format!("{RECIPE}\n[reduce]\ncodec = \"exact\"\n"), DIGITS, [48, 10]);
    let find = |out: &str, ranks: usize, more: &[&str]| {
        let ended = setting.train(out, ranks, &[&["--find-lr=90"], more].concat()).succeeded();
        let picture = fs::read_to_string(setting.out(&format!("{out}.find-lr.svg"))).unwrap();
        assert!(!Path::new(&setting.out(out)).exists(), "the run's folder was touched");
        (ended.stdout.lines().last().unwrap().to_string(), picture)
    };
    let (rate, picture) = find("alone", 0, &[]);
    let found: f64 = rate.strip_prefix("schedule.base_lr = ").unwrap().parse().unwrap();
    assert!((1e-5..1.0).contains(&found), "{rate}");
    assert!(picture.contains("<polyline") && picture.contains("stroke-dasharray"));
    assert_eq!(find("two", 2, &[]), (rate.clone(), picture));
    // with `schedule.reference_batch`, the printed rate is the rate for a batch of that size
    let (scaled, _) = find("scaled", 0, &["--set", "schedule.reference_batch=2"]);
    let scaled: f64 = scaled.strip_prefix("schedule.base_lr = ").unwrap().parse().unwrap();
    assert!((scaled - found / 4.0).abs() < 0.06 * found, "{scaled} and {found}");
    setting.train("out", 0, &["--find-lr", "--resume", "auto"]).failed(2, &["--find-lr", "--resume"]);
    // the search has not created the output folder, so that training can use it
    setting.trained("alone", 0, &["--set", &rate, "--max-steps", "1"]);
}
