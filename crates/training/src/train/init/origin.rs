//! What a file of weights was trained on, as far as it matters: the classes behind its last layer, and how images were normalised.

use std::collections::BTreeSet;
use std::path::Path;

use formats::interop::{Model, Weights};
use recipe::Recipe;

use super::fit::{Fate, Fit};
use crate::error::Error;
use crate::train::plan::pixel_values::{Agreement, PixelValues};
use crate::train::plan::source::Source;
use crate::train::save::class_names::Sides;

/// Refuses weights that mean something else here than where they are from; gives what is to be said of them.
pub fn check(source: &Source, fit: &Fit, weights: &Weights) -> Result<Vec<String>, Error> {
    match &weights.model {
        None => {
            states_mean_and_std(&source.recipe, weights)?;
            let own = replaced(fit, None);
            Ok(own.into_iter().chain(not_normalised(&source.augment.ops(), weights)).collect())
        }
        Some(model) => {
            let sides = Sides { model: &model.classes, file: &weights.path, data: Path::new(&source.recipe.data) };
            let difference = sides.difference(source.train.class_names());
            let taken = |layer: &&String| fit.of(Fate::Taken).any(|row| row.name == format!("{layer}.weight"));
            let taken: Vec<String> =
                fit.classifiers.iter().filter(taken).map(|layer| format!("\"{layer}.*\"")).collect();
            if let Some(difference) = difference.as_ref().filter(|_| !taken.is_empty()) {
                return Err(Error::Usage(format!(
                    "init.from: the classes differ: {difference}; let the layers that make scores start at random by init.exclude = [{}], \
                     or name the data set that the model was trained on",
                    taken.join(", ")
                )));
            }
            let mut notes = replaced(fit, difference);
            notes.extend(other_values(source, model, weights));
            Ok(notes)
        }
    }
}

/// That layers which make scores start at random.
fn replaced(fit: &Fit, difference: Option<String>) -> Vec<String> {
    let why = difference.map_or_else(
        || "the number of classes differs".into(),
        |difference| format!("the classes differ: {difference}"),
    );
    let layers: BTreeSet<&str> =
        fit.of(Fate::Replaced).filter_map(|row| row.name.rsplit_once('.').map(|(layer, _)| layer)).collect();
    let layers: Vec<&str> = fit.classifiers.iter().map(String::as_str).filter(|layer| layers.contains(layer)).collect();
    match &layers[..] {
        [] => Vec::new(),
        [one] => vec![format!("note: the last layer, {one}, starts at random, for {why}")],
        all => vec![format!("note: the layers that make scores, {}, start at random, for {why}", all.join(", "))],
    }
}

/// How images were normalised for torchvision's weights.
pub const TORCHVISION: &str = "normalize(0.485, 0.456, 0.406, 0.229, 0.224, 0.225)";

/// The transform without arguments.
const BARE: &str = "normalize";

/// Weights of other programs come with images that were normalised by numbers of their own.
fn states_mean_and_std(recipe: &Recipe, weights: &Weights) -> Result<(), Error> {
    let lists = [("augment.train", &recipe.augment.train), ("augment.eval", &recipe.augment.eval)];
    match lists.into_iter().find(|(_, list)| takes_the_data_sets(list)) {
        Some((key, _)) => Err(Error::Usage(format!(
            "{key}: \"normalize\" takes mean and standard deviation of this data set, and the weights of {} were trained with those of \
             their own: state them, as \"{TORCHVISION}\" for torchvision's",
            weights.path.display()
        ))),
        None => Ok(()),
    }
}

/// Whether a list of transforms takes mean and standard deviation from a data set.
pub fn takes_the_data_sets(list: &[String]) -> bool {
    list.iter().any(|op| op.trim().trim_end_matches("()").trim() == BARE)
}

/// Returns a warning if this run normalizes images differently from the run that trained the model.
fn other_values(source: &Source, model: &Model, weights: &Weights) -> Option<String> {
    let (there, here) = (PixelValues::of(&model.preprocess), PixelValues::of(&source.augment.ops()));
    let far = match there.agreement(&here) {
        Agreement::Same => return None,
        Agreement::OtherNumbers => "",
        Agreement::FarApart => ", so its weights are of no use here",
    };
    let list: Vec<&str> = model.preprocess.iter().map(String::as_str).filter(|op| op.contains(BARE)).collect();
    let cure = match list[..] {
        [] => "leave normalize out of augment.train and augment.eval, as that model does".to_string(),
        _ => format!("give \"{}\" in augment.train and augment.eval", list.join("\", \"")),
    };
    let file = weights.path.display();
    Some(format!("warning: {file} was trained on images with {there}, and this run makes {here}{far}: {cure}"))
}

/// Returns a warning if the weights are from another program and the transforms do not normalize.
pub fn not_normalised(ops: &[String], weights: &Weights) -> Option<String> {
    let values = PixelValues::of(ops);
    values.are_bytes().then(|| {
        format!(
            "warning: the transforms make {values}, and nearly all networks were trained on normalised images; if that of {} was, add its \
             numbers at the end of the list, as \"{TORCHVISION}\" for torchvision's",
            weights.path.display()
        )
    })
}
