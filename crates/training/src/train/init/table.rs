//! Tables that show which tensors of a weight file match the network. Also checks whether a run may start from the
//! file, and whether the file's classes and normalization differ from the run's.

use std::collections::BTreeSet;
use std::path::Path;

use base::text::{plural, printable};
use formats::checkpoint::ModelFile;
use formats::interop::Weights;
use loaders::{Bands, LabelKind};
use recipe::Recipe;

use super::matching::{MatchResult, TensorMatch, TensorMatches};
use crate::error::Error;
use crate::train::plan::source::{Agreement, PixelValues, Source};
use crate::train::save::output::ClassSources;

/// The word for each result, in the order in which the table shows them.
const WORDS: [(MatchResult, &str); 6] = [
    (MatchResult::Taken, "taken"),
    (MatchResult::Excluded, "excluded"),
    (MatchResult::Replaced, "replaced"),
    (MatchResult::Shape, "wrong shape"),
    (MatchResult::Missing, "missing"),
    (MatchResult::Left, "left"),
];

/// Maximum number of names per row in the short table.
const MOST: usize = 8;

/// Formats a line per kind of result, with the number of tensors and their names.
pub fn short(fit: &TensorMatches, weights: &Weights) -> Vec<String> {
    let head = format!("init       {} ({})", weights.path.display(), weights.format);
    std::iter::once(head).chain(rows(fit, weights).map(|row| format!("           {row}"))).collect()
}

/// Returns the lines of [`short`] without the line about the file.
pub fn rows(fit: &TensorMatches, weights: &Weights) -> impl Iterator<Item = String> {
    WORDS.iter().filter_map(|(result, word)| {
        let rows: Vec<&TensorMatch> = fit.with(*result).collect();
        let names = if *result == MatchResult::Taken { String::new() } else { format!(": {}", listed(&rows, weights)) };
        (!rows.is_empty()).then(|| format!("{word}: {}{names}", plural(rows.len(), "tensor")))
    })
}

fn listed(rows: &[&TensorMatch], weights: &Weights) -> String {
    let one = |row: &&TensorMatch| format!("{}{}", printable(&row.name), shapes(row, weights));
    let more = if rows.len() > MOST { format!(" and {} more", rows.len() - MOST) } else { String::new() };
    format!("{}{more}", rows.iter().take(MOST).map(one).collect::<Vec<_>>().join(", "))
}

/// Formats the shapes in network and file if the tensor has the wrong shape or belongs to a replaced classifier.
/// Otherwise returns an empty text.
fn shapes(row: &TensorMatch, weights: &Weights) -> String {
    let found = row.found.map(|index| &weights.tensors[index].1);
    match (row.result, &row.shape, found) {
        (MatchResult::Shape | MatchResult::Replaced, Some(own), Some(found)) => {
            format!(" ({own:?} in the network, {found:?} in the file)")
        }
        _ => String::new(),
    }
}

/// Returns the table with a line per tensor for `--dry-run`.
pub fn whole(fit: &TensorMatches, weights: &Weights) -> String {
    let mut text =
        format!("{:<44} {:<12} {:<20} in {} ({})\n", "tensor", "init", "shape", weights.path.display(), weights.format);
    for row in &fit.rows {
        let word = WORDS.iter().find(|(result, _)| *result == row.result).map_or("", |(_, word)| word);
        let shape = row.shape.as_ref().map_or("-".into(), |shape| format!("{shape:?}"));
        let file = row.found.map_or("-".into(), |index| {
            let (name, shape, _) = &weights.tensors[index];
            format!("{} {shape:?}", printable(name))
        });
        text += &format!("{:<44} {word:<12} {shape:<20} {file}\n", printable(&row.name).to_string());
    }
    text
}

/// Advice for training runs if the weights do not fit.
pub const TRAINING_CURE: &str = "Exclude tensors with init.exclude (they start with random weights), map names with init.match, or accept \
                                 all differences with init.strict = false";
/// Advice for `trireme import` if the weights do not fit.
pub const IMPORT_CURE: &str =
    "Ignore tensors of the file with --exclude, map names with --match, or choose another network with --model";

/// Returns an error if `strict` is set and a tensor does not fit. `cure` says what the user can do.
pub fn check(fit: &TensorMatches, weights: &Weights, strict: bool, cure: &str) -> Result<(), Error> {
    let odd = [MatchResult::Shape, MatchResult::Missing, MatchResult::Left]
        .into_iter()
        .any(|result| fit.with(result).next().is_some());
    if !strict || !odd {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "the weights of {} do not fit the network: {}. {cure}",
        weights.path.display(),
        rows(fit, weights).collect::<Vec<_>>().join("; ")
    )))
}

/// Checks that the weights have the same meaning in this run as in the run that trained them. Returns notes for the
/// user. Returns an error if classifiers are used with other classes. Also returns an error if weights from another
/// program are used with the mean and standard deviation of this data set.
pub fn check_origin(
    source: &Source,
    fit: &TensorMatches,
    weights: &Weights,
    stem_was_adapted: bool,
) -> Result<Vec<String>, Error> {
    match &weights.model {
        None => {
            // other programs' mean and std are for 8-bit RGB, so images of other types or channel counts need other
            // numbers
            if !source.manifest.bands.need_version() && !stem_was_adapted {
                states_mean_and_std(&source.recipe, weights)?;
            }
            let taken = taken_classifiers(fit);
            let labels = weights.exported.as_ref().map(|exported| exported.labels);
            if labels == Some(LabelKind::Numbers) && !taken.is_empty() {
                return Err(Error::Usage(format!(
                    "init.from: the last layer of {} computes numbers in the units of the targets, because the file is an export, but \
                     training needs standardised numbers. Use the model.h5 of the run, or set init.exclude = [{}] to start this layer with \
                     random weights",
                    weights.path.display(),
                    taken.join(", ")
                )));
            }
            let own = replaced(fit, None);
            Ok(own.into_iter().chain(not_normalised(&source.augment.ops(), &source.manifest.bands, weights)).collect())
        }
        Some(model) => {
            let sides =
                ClassSources { model: &model.classes, file: &weights.path, data: Path::new(&source.recipe.data) };
            let difference = sides.difference(source.train.class_names());
            let taken = taken_classifiers(fit);
            if let Some(difference) = difference.as_ref().filter(|_| !taken.is_empty()) {
                return Err(Error::Usage(format!(
                    "init.from: the classes differ: {difference}. To start the layers that compute scores with random weights, set \
                     init.exclude = [{}]. Otherwise use the data set that the model was trained on",
                    taken.join(", ")
                )));
            }
            let mut notes = replaced(fit, difference);
            notes.extend(other_values(source, model, weights));
            Ok(notes)
        }
    }
}

/// Returns a pattern for each layer that computes scores and gets its weights from the file.
fn taken_classifiers(fit: &TensorMatches) -> Vec<String> {
    let taken = |layer: &&String| fit.with(MatchResult::Taken).any(|row| row.name == format!("{layer}.weight"));
    fit.classifiers.iter().filter(taken).map(|layer| format!("\"{layer}.*\"")).collect()
}

/// Returns a note about layers that compute scores and start at random.
fn replaced(fit: &TensorMatches, difference: Option<String>) -> Vec<String> {
    let why = difference.map_or_else(
        || "the number of classes differs".into(),
        |difference| format!("the classes differ: {difference}"),
    );
    let layers: BTreeSet<&str> =
        fit.with(MatchResult::Replaced).filter_map(|row| row.name.rsplit_once('.').map(|(layer, _)| layer)).collect();
    let layers: Vec<&str> = fit.classifiers.iter().map(String::as_str).filter(|layer| layers.contains(layer)).collect();
    match &layers[..] {
        [] => Vec::new(),
        [one] => vec![format!("note: the last layer, {one}, starts with random weights, because {why}")],
        all => {
            vec![format!(
                "note: the layers that compute scores, {}, start with random weights, because {why}",
                all.join(", ")
            )]
        }
    }
}

/// The normalization of images for torchvision's weights.
pub const TORCHVISION: &str = "normalize(0.485, 0.456, 0.406, 0.229, 0.224, 0.225)";

/// The transform `normalize` without arguments, which uses the data set's mean and standard deviation.
const BARE: &str = "normalize";

/// Returns an error if the recipe normalizes with the data set's mean and standard deviation. Weights from other
/// programs need those of the data that they were trained on.
fn states_mean_and_std(recipe: &Recipe, weights: &Weights) -> Result<(), Error> {
    match bare_normalize(recipe) {
        Some(key) => Err(Error::Usage(format!(
            "{key}: \"normalize\" uses the mean and standard deviation of this data set, but the weights of {} were trained with those of \
             another data set. Give these numbers, for example \"{TORCHVISION}\" for torchvision's weights",
            weights.path.display()
        ))),
        None => Ok(()),
    }
}

/// Returns the key of a list of transforms that normalizes with the data set's mean and standard deviation.
pub fn bare_normalize(recipe: &Recipe) -> Option<&'static str> {
    let lists = [("augment.train", &recipe.augment.train), ("augment.eval", &recipe.augment.eval)];
    lists.into_iter().find(|(_, list)| takes_the_data_sets(list)).map(|(key, _)| key)
}

/// Returns true if a list of transforms normalizes with the data set's mean and standard deviation.
pub fn takes_the_data_sets(list: &[String]) -> bool {
    list.iter().any(|op| op.trim().trim_end_matches("()").trim() == BARE)
}

/// Returns a warning if this run normalizes images differently from the run that trained the model.
fn other_values(source: &Source, model: &ModelFile, weights: &Weights) -> Option<String> {
    let bands = &source.manifest.bands;
    if bands.need_version() || model.bands.need_version() {
        // no common range of values is known for other types
        return None;
    }
    let [there, here] = [&model.preprocess, &source.augment.ops()].map(|ops| PixelValues::from_transforms(ops, bands));
    let far = match there.agreement(&here) {
        Agreement::Same => return None,
        Agreement::OtherNumbers => "",
        Agreement::FarApart => ", so its weights are useless for this run",
    };
    let list: Vec<&str> = model.preprocess.iter().map(String::as_str).filter(|op| op.contains(BARE)).collect();
    let cure = match list[..] {
        [] => "leave normalize out of augment.train and augment.eval, as that model does".to_string(),
        _ => format!("give \"{}\" in augment.train and augment.eval", list.join("\", \"")),
    };
    let file = weights.path.display();
    Some(format!("warning: {file} was trained on images with {there}, but this run makes {here}{far}: {cure}"))
}

/// Returns a warning if the transforms do not normalize 8-bit images. Meant for weights from another program.
pub fn not_normalised(ops: &[String], bands: &Bands, weights: &Weights) -> Option<String> {
    let values = PixelValues::from_transforms(ops, bands);
    values.are_bytes().then(|| {
        format!(
            "warning: the transforms make {values}, but nearly all networks were trained on normalised images. If this is true for the \
             weights of {}, end the transforms with their normalisation, such as \"{TORCHVISION}\" for torchvision's weights",
            weights.path.display()
        )
    })
}
