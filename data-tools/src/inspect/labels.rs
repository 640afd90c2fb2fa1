//! From stored labels to their classes.

use loaders::{Example, Manifest};

/// The classes of a record, ascending and without doubles: one, unless images may have several. The error names the labels that are
/// expected.
pub(super) fn classes(example: &Example<'_>, manifest: &Manifest) -> Result<Vec<usize>, String> {
    if !example.labels.is_list() {
        return Ok(vec![class(example.label, manifest)?]);
    }
    if !manifest.multi_label {
        let count = example.labels.iter().count();
        return Err(format!(
            "{count} labels; expected one, since dataset.json does not say that images may have several (`multi_label`)"
        ));
    }
    let classes: Result<Vec<usize>, String> = example.labels.iter().map(|label| class(label, manifest)).collect();
    let mut classes = classes?;
    classes.sort_unstable();
    classes.dedup();
    Ok(classes)
}

/// The class of a stored label.
fn class(label: i64, manifest: &Manifest) -> Result<usize, String> {
    let first = i128::from(manifest.label_offset);
    let end = first + manifest.classes.len() as i128;
    let stored = i128::from(label);
    if (first..end).contains(&stored) {
        return Ok((stored - first) as usize);
    }
    Err(format!(
        "label {label} is out of range; expected {first} to {}: check `classes` and `label_offset` in dataset.json",
        end - 1
    ))
}
