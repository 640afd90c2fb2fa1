//! What is said of a model beside its weights, as names and texts: the same in every format.

use std::collections::BTreeMap;

use serde_json::json;

use super::trained::Trained;

/// By name, such as `trireme.classes`; lists are JSON.
pub(super) fn about(trained: &Trained) -> BTreeMap<String, String> {
    let model = &trained.model;
    let fields = [
        ("network", model.network.clone()),
        ("input", json!(model.input).to_string()),
        ("classes", json!(model.classes).to_string()),
        ("preprocess", json!(model.preprocess).to_string()),
        ("mean", json!(model.mean).to_string()),
        ("std", json!(model.std).to_string()),
        ("scores", json!(model.scores).to_string()),
        ("epoch", model.epoch.to_string()),
        ("step", model.step.to_string()),
        ("recipe", model.recipe.clone()),
    ];
    let several = model.multi_label.then(|| ("multi_label", "true".to_string()));
    fields.into_iter().chain(several).map(|(name, text)| (format!("trireme.{name}"), text)).collect()
}
