//! Checks the numbers in the documents, such as the number of networks.

use std::fs;

use loaders::transform::HEAD_WORDS;
use net::models;
use serde_json::Value;
use support::in_repository;

fn text(path: &str) -> String {
    fs::read_to_string(in_repository(path)).unwrap()
}

/// Returns the length of a list in a JSON file.
fn recorded(path: &str, list: &str) -> usize {
    let file: Value = serde_json::from_str(&text(path)).unwrap();
    file[list].as_array().unwrap().len()
}

#[test]
fn numbers_in_the_documents_are_right() {
    let names = loaders::transform::names();
    let transforms = names.iter().filter(|name| !HEAD_WORDS.contains(name)).count();
    let cases = recorded("tests/golden/ops.json", "cases");
    let runs = recorded("tests/golden/optim.json", "runs");
    let folder = fs::read_dir(in_repository("recipes")).unwrap();
    let recipes =
        folder.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|e| e == "toml")).count();
    for (path, said) in [
        ("README.md", format!("| networks | [{}](docs/models.md)", models::names().len())),
        ("README.md", format!("| transforms | {transforms}, ")),
        ("README.md", format!("`recipes/` has {recipes} recipes.")),
        ("docs/testing.md", format!("`tests/numerics/ops.rs`: {cases} recorded cases")),
        ("docs/testing.md", format!("ten steps of {runs} settings")),
    ] {
        assert!(text(path).contains(&said), "{path} should say \"{said}\"");
    }
}
