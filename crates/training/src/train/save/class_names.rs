//! Whether a data set has the classes that a model was trained on: the same names in the same order, since a label is only a place in
//! that list.

use std::path::Path;

use loaders::printable;

/// The classes of a model, and where model and data set are, for messages.
pub struct Sides<'a> {
    /// The model's class names, in order of labels.
    pub model: &'a [String],
    /// The model's file.
    pub file: &'a Path,
    /// The data set's folder.
    pub data: &'a Path,
}

impl Sides<'_> {
    /// The first class that differs from the data set's, in words; none if all are the same.
    pub fn difference(&self, data: &[String]) -> Option<String> {
        let (file, folder) = (self.file.display(), self.data.display());
        let count = self.model.len().max(data.len());
        let index = (0..count).find(|&i| self.model.get(i) != data.get(i))?;
        let name = |names: &[String]| names.get(index).map_or("none".into(), |name| format!("\"{}\"", printable(name)));
        Some(format!(
            "class {index} is {} in {file} ({} classes) and {} in {folder} ({} classes)",
            name(self.model),
            self.model.len(),
            name(data),
            data.len()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let model = names(&["cat", "dog", "\u{1b}c"]);
        let sides = Sides { model: &model, file: Path::new("model.h5"), data: Path::new("data/pets") };
        let difference = |data: &[&str]| sides.difference(&names(data));
        assert_eq!(difference(&["cat", "dog", "\u{1b}c"]), None);
        let swapped = difference(&["dog", "cat", "\u{1b}c"]).unwrap();
        assert_eq!(swapped, "class 0 is \"cat\" in model.h5 (3 classes) and \"dog\" in data/pets (3 classes)");
        assert!(
            difference(&["cat", "dog"])
                .unwrap()
                .starts_with("class 2 is \"\\u001bc\" in model.h5 (3 classes) and none in")
        );
        assert!(difference(&["cat", "dog", "\u{1b}c", "x"]).unwrap().starts_with("class 3 is none in model.h5"));
    }
}
