//! What a recipe must say, and what it cannot have, where images may have several labels.

use engine::optim::score::Measure;
use loaders::{Manifest, Split};
use recipe::{LossKind, Recipe};

use crate::error::Error;
use crate::train::evaluate::ranks_fit;

/// Refuses a recipe that takes images for images of one class, where they may have several.
///
/// # Errors
/// The key, why, and what to write.
pub fn check(recipe: &Recipe, manifest: &Manifest) -> Result<(), Error> {
    if !manifest.multi_label {
        return Ok(());
    }
    let images = format!("images of {} may have several labels", recipe.data);
    let kind = recipe.loss.kind();
    if !matches!(kind, LossKind::Bce | LossKind::SigmoidFocal) {
        return Err(Error::Usage(format!(
            "loss.kind: {images}, and \"{kind}\" is for images of one; write kind = \"bce\" under [loss] in the recipe, or give --set \
             loss.kind=bce (\"sigmoid_focal\" does it, too)"
        )));
    }
    let refused = [
        ("loss.class_weights", recipe.loss.class_weights.is_some(), "weights images by their one class"),
        ("balanced", recipe.balanced(), "draws images by their one class"),
        ("distill.teacher", recipe.distill.teacher.is_some(), "compares probabilities that add up to 1"),
    ];
    match refused.into_iter().find(|(_, given, _)| *given) {
        None => Ok(()),
        Some((key, _, what)) => Err(Error::Usage(format!("{key}: {what}, and {images}; leave it out"))),
    }
}

/// Refuses to go by the mean average precision where it cannot be computed.
///
/// # Errors
/// The key.
pub fn check_scores(recipe: &Recipe, eval: Option<&Split>) -> Result<(), Error> {
    let key = recipe.scores_used().into_iter().find(|(_, name)| name.measure == Measure::Map).map(|(key, _)| key);
    let (Some(key), Some(eval)) = (key, eval) else { return Ok(()) };
    let (images, classes) = (recipe.eval.limit.map_or(eval.len(), |most| most.min(eval.len())), eval.classes());
    if ranks_fit(classes, images) {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{key}: average precisions of {images} images and {classes} classes take too much memory; score fewer images with eval.limit, or \
         use \"macro_f1\""
    )))
}
