//! Compares a data set's classes with a model's classes, and matches them by name on request.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::text::printable;
use loaders::{LabelKind, Split};

use crate::error::Error;
use crate::train::evaluate::Selection;
use crate::train::plan::split_labels::LABEL_THREADS;
use crate::train::save::output::ClassSources;

#[derive(Debug)]
pub struct ClassMatch {
    /// The images to score, and their labels in the model.
    pub selection: Selection,
    /// Text for the user: the numbers of classes and images.
    pub note: String,
}

/// Matches the classes by name if they differ and `by_name` is set, which is possible only for images with one label.
/// Returns `None` if the classes are equal. Returns an error if they differ and `by_name` is not set, if no class has a
/// match, or if a common name occurs more than once. Reads the labels of the split if a class of the data set has no match.
pub fn match_classes(
    sides: &ClassSources<'_>,
    split: &Split,
    labels: LabelKind,
    by_name: bool,
) -> Result<Option<ClassMatch>, Error> {
    let Some(difference) = sides.difference(split.class_names()) else { return Ok(None) };
    if !by_name {
        let (what, or_match) = match labels {
            LabelKind::OneClass => {
                ("classes", " or, if equal names mean the same class, match them by name with --map-classes")
            }
            LabelKind::Classes => ("classes", ""),
            LabelKind::Numbers => ("names of the targets", ""),
        };
        return Err(Error::Failed(format!(
            "the {what} differ: {difference}. Use the data set that the model was trained on (--data){or_match}"
        )));
    }
    let labels = labels_by_name(sides, split.class_names())?;
    let found = labels.iter().flatten().count();
    if found == 0 {
        return Err(Error::Failed(format!(
            "--map-classes: the data set and the model have no class name in common, so nothing can be scored: {difference}"
        )));
    }
    let images = if found < labels.len() { Some(images(split, &labels)?) } else { None };
    let scored = images.as_ref().map_or(split.len(), |images| images.len() as u64);
    let note = format!(
        "--map-classes: matched {found} of the data set's {} classes by name to {found} of the model's {} classes; scoring {scored} of \
         {} images, with all classes of the model as possible answers",
        labels.len(),
        sides.model.len(),
        split.len()
    );
    Ok(Some(ClassMatch { selection: Selection { labels, images }, note }))
}

/// Returns, for each class in the data set, the label of the model's class with the same name, or `None` if there is no
/// such class. Returns an error if a name is in both lists and more than one class of a list has it.
fn labels_by_name(sides: &ClassSources<'_>, data: &[String]) -> Result<Vec<Option<u32>>, Error> {
    let model = index(sides.model);
    for (name, labels) in index(data) {
        let pairs = model.get(name).map_or(0, Vec::len);
        let (whose, cure) = match pairs > 0 && pairs.max(labels.len()) > 1 {
            false => continue,
            true if labels.len() > 1 => {
                let file = sides.data.join("dataset.json");
                ("the data set", format!("give each class its own name in {}", file.display()))
            }
            true => (
                "the model",
                "train it on a data set in which each class has its own name, or leave --map-classes out".into(),
            ),
        };
        let name = printable(name);
        return Err(Error::Failed(format!(
            "--map-classes: several classes of {whose} have the name \"{name}\", so they cannot be told apart; {cure}"
        )));
    }
    let label = |name: &String| model.get(name.as_str()).and_then(|labels| labels.first().copied());
    Ok(data.iter().map(label).collect())
}

/// Maps each name to its labels.
fn index(names: &[String]) -> BTreeMap<&str, Vec<u32>> {
    let mut index: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    (0..).zip(names).for_each(|(label, name)| index.entry(name).or_default().push(label));
    index
}

/// Returns the ids of the images with a matched class.
fn images(split: &Split, labels: &[Option<u32>]) -> Result<Arc<[u64]>, Error> {
    let has_match = |label: Option<u32>| labels.get(label? as usize).copied().flatten();
    let all = split.labels(false, LABEL_THREADS)?;
    Ok((0..).zip(all).filter_map(|(id, label)| has_match(label).map(|_| id)).collect())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use support::mentions;

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn mapped(model: &[&str], data: &[&str]) -> Result<Vec<Option<u32>>, String> {
        let model = names(model);
        let sides = ClassSources { model: &model, file: Path::new("model.h5"), data: Path::new("data") };
        labels_by_name(&sides, &names(data)).map_err(|e| e.to_string())
    }

    #[test]
    fn classes_are_matched_by_name() {
        let model = ["cat", "dog", "horse", "ship"];
        assert_eq!(mapped(&model, &["ship", "cat"]), Ok(vec![Some(3), Some(0)]));
        assert_eq!(mapped(&model, &["truck", "dog", "Cat"]), Ok(vec![None, Some(1), None]));
    }

    #[test]
    fn ambiguous_class_names_are_refused_if_both_sides_have_them() {
        let model = ["crane", "crane", "dog"];
        mentions(mapped(&model, &["dog", "crane"]).unwrap_err(), &["of the model", "\"crane\""]);
        let why = mapped(&["dog"], &["dog", "dog"]).unwrap_err();
        mentions(why, &["the data set", "\"dog\"", "data/dataset.json"]);
        assert_eq!(mapped(&model, &["dog", "x", "x"]), Ok(vec![Some(2), None, None]));
    }
}
