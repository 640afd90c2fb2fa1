//! Recipes of large networks run for twenty steps on generated images. The loss stays finite, and the model is written
//! and can be evaluated.

use loaders::ImageSpec;
use support::images::Images;
use support::in_repository;
use support::program::{Folder, PATIENCE, numbers, run, start, trireme};

/// Recipe, side of the images in pixels, batch size.
const RECIPES: &[(&str, u32, &str)] = &[
    ("cifar10-wrn28-10", 32, "4"),
    ("cifar10-vit-tiny", 32, "8"),
    ("imagenet-vit-s16", 256, "8"),
    ("imagenet-mobilenet-v2", 256, "8"),
    ("imagenet-googlenet", 256, "8"),
    ("imagenet-inception-v3", 342, "4"),
    ("imagenet-vgg16", 256, "4"),
];

fn check(recipe: &str, side: u32, batch: &str) {
    let folder = Folder::new();
    let images = Images::new(&folder.path().join("data"), ImageSpec::new(side, side, 3), 96, 8);
    let (data, out) = (images.arg(), folder.at("out"));
    let file = in_repository(&format!("recipes/{recipe}.toml")).display().to_string();
    let set = format!("batch={batch}");
    let args =
        ["train", &file, "--data", &data, "--out", &out, "--set", &set, "--set", "workers=1", "--max-steps", "20"];
    start(trireme(0, &args)).wait(5 * PATIENCE).succeeded();
    let losses = numbers(&out, "step", "loss");
    println!("{recipe}: {losses:.3?}");
    assert!(losses.len() == 20 && losses.iter().all(|loss| loss.is_finite()), "{recipe}: {losses:?}");
    let scored = run(0, &["eval", &format!("{out}/model.h5"), "--data", &data]).succeeded();
    assert!(scored.stdout.contains(", 8 images"), "{recipe}: {}", scored.stdout);
}

/// Tests all these recipes, or those in the environment variable RECIPES=name,name.
#[test]
#[ignore = "minutes: make test-networks"]
fn large_networks_train_by_their_recipes() {
    let wanted = std::env::var("RECIPES").unwrap_or_default();
    for (recipe, side, batch) in
        RECIPES.iter().filter(|each| wanted.is_empty() || wanted.split(',').any(|name| name == each.0))
    {
        check(recipe, *side, batch);
    }
}
