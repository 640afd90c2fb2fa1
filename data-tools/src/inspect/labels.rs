//! From a stored label to its class.

use loaders::Manifest;

/// The class of a stored label; the error names the labels that are expected.
pub(super) fn class(label: i64, manifest: &Manifest) -> Result<usize, String> {
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
