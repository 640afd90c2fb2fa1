//! Fuzzes recipes with arbitrary text as a TOML file. If a valid recipe is written to a file, reading this file must
//! give the same recipe.
#![no_main]

use libfuzzer_sys::fuzz_target;
use recipe::{Changes, Recipe};

fuzz_target!(|text: &str| trireme_fuzz::read(text.len(), 16 << 20, || recipe(text)));

fn recipe(text: &str) {
    drop(Recipe::parse(text, "recipe.toml", &Changes::default()));
    let changes = |sets, unsets| Changes { sets, unsets };
    drop(Recipe::parse("", "recipe.toml", &changes(vec![text.to_owned()], vec![])));
    drop(Recipe::parse("", "recipe.toml", &changes(vec![], vec![text.to_owned()])));
    if let Ok(recipe) = Recipe::from_toml(text) {
        let Ok(written) = recipe.to_toml() else { return };
        let again = Recipe::from_toml(&written).and_then(|again| again.to_toml());
        assert_eq!(again.ok(), Some(written));
    }
}
