//! From stored labels to their classes.

use loaders::{Example, Manifest, printable};

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

/// Rejects a record that carries the name for a class other than its label's class. Unknown names are accepted because classes may have
/// been renamed.
pub(super) fn check_name(example: &Example<'_>, classes: &[usize], manifest: &Manifest) -> Result<(), String> {
    let [class] = classes else { return Ok(()) };
    let named = |class: &String| class == example.text || without_synset(class) == example.text;
    if example.text.is_empty() || named(&manifest.classes[*class]) {
        return Ok(());
    }
    match manifest.classes.iter().position(named) {
        None => Ok(()),
        Some(other) => Err(format!(
            "its label {} is the class `{}` in dataset.json, but its image/class/text is `{}`, which is class {other} there",
            example.label,
            printable(&manifest.classes[*class]),
            printable(example.text)
        )),
    }
}

/// Removes the WordNet id from a class name such as `n02012849 crane`.
fn without_synset(class: &str) -> &str {
    let is_id = |id: &str| id.len() == 9 && id.starts_with('n') && id[1..].bytes().all(|b| b.is_ascii_digit());
    class.split_once(' ').filter(|(id, _)| is_id(id)).map_or(class, |(_, name)| name)
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
