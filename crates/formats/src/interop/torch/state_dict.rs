//! The tensors of a state_dict by name.

use std::collections::BTreeSet;

use loaders::printable;

use super::pickle::Loaded;
use super::values::{Value, Values};
use crate::checkpoint::Tensor;
use crate::interop::error::{Fault, damaged};

/// The tensors of a file, and a sentence that names averaged weights if the file has any.
pub type Found = (Vec<Tensor>, Option<String>);

/// A name, and the number of its view.
#[derive(Debug, PartialEq)]
pub struct Named {
    pub name: String,
    pub view: usize,
}

/// Where training scripts keep the state_dict in what they save, in this order.
const PLACES: [&str; 5] = ["state_dict", "model_state_dict", "model", "net", "network"];

/// Keys under which timm and torchvision store averaged weights.
const AVERAGES: [&str; 4] = ["state_dict_ema", "model_ema", "ema_state_dict", "ema"];

/// Finds the model's tensors in the root or in one of its dictionaries. With a `key`, uses the dictionary with that key. Otherwise uses the
/// dictionary with the most tensors, because scripts also store other tensors, such as the best score. Skips values that are not tensors.
///
/// The second value is a sentence that names averaged weights, if the file has any.
pub fn find(loaded: &Loaded, key: Option<&str>) -> Result<(Vec<Named>, Option<String>), Fault> {
    let (values, root) = (&loaded.values, loaded.root);
    let Value::Dictionary(root) = root else {
        return Err(Fault::Unsupported(format!(
            "its pickle holds {}, expected a state_dict: save model.state_dict()",
            root.words()
        )));
    };
    let entries = &values.dictionaries[root];
    let tensors = |entries: &&&[(Value, Value)]| entries.iter().filter(|(_, value)| is_tensor(*value)).count();
    if let Some(key) = key {
        return match inner(values, entries, key).filter(|found| tensors(&found) > 0) {
            Some(found) => Ok((named(values, found)?, None)),
            None => Err(Fault::Unsupported(format!(
                "it has no tensors under the key \"{}\" (init.key); it has the keys {}",
                printable(key),
                keys(values, entries)
            ))),
        };
    }
    let candidates: Vec<_> =
        PLACES.iter().filter_map(|place| inner(values, entries, place)).chain([entries.as_slice()]).collect();
    // of several with as many the last is taken: from behind it is the first
    if let Some(most) = candidates.iter().rev().max_by_key(tensors).filter(|most| tensors(most) > 0) {
        let there = |place: &&&str| inner(values, entries, place).is_some_and(|found| tensors(&&found) > 0);
        let averages = AVERAGES.iter().find(there).map(|key| {
            format!("the file also has averaged weights; use them with init.key = \"{key}\" (import: --key {key})")
        });
        return Ok((named(values, most)?, averages));
    }
    let keys = keys(values, entries);
    Err(Fault::Unsupported(format!(
        "its pickle holds no tensors by name, nor under {}; it has the keys {keys}: save model.state_dict() alone",
        PLACES.join(", ")
    )))
}

/// Lists the first keys of a dictionary, for messages.
fn keys(values: &Values, entries: &[(Value, Value)]) -> String {
    let keys = entries.iter().filter_map(|(key, _)| values.text(*key).ok()).map(printable);
    keys.take(10).collect::<Vec<_>>().join(", ")
}

/// The dictionary of this key.
fn inner<'a>(values: &'a Values, entries: &[(Value, Value)], key: &str) -> Option<&'a [(Value, Value)]> {
    let found = entries.iter().find(|entry| values.text(entry.0).is_ok_and(|text| text == key));
    match found?.1 {
        Value::Dictionary(at) => Some(&values.dictionaries[at]),
        _ => None,
    }
}

fn is_tensor(value: Value) -> bool {
    matches!(value, Value::Tensor(_))
}

/// The tensors of a dictionary.
fn named(values: &Values, entries: &[(Value, Value)]) -> Result<Vec<Named>, Fault> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (key, value) in entries {
        if let Value::Tensor(view) = value {
            let name = values.text(*key)?.to_string();
            if !seen.insert(name.clone()) {
                return damaged(format!("its pickle names {} twice", printable(&name)));
            }
            found.push(Named { name, view: *view });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found in a root with these keys: numbers of tensors, each in a dictionary of its own; none: a tensor.
    fn found(keys: &[(&str, Option<usize>)]) -> Result<Vec<String>, Fault> {
        found_by(keys, None).map(|found| found.0)
    }

    fn found_by(keys: &[(&str, Option<usize>)], key: Option<&str>) -> Result<(Vec<String>, Option<String>), Fault> {
        let mut values = Values::default();
        let mut root = Vec::new();
        for (key, tensors) in keys {
            let value = match tensors {
                None => Value::Tensor(0),
                Some(tensors) => {
                    let entries = (0..*tensors).map(|i| {
                        values.texts.push(format!("{key}{i}"));
                        (Value::Text(values.texts.len() - 1), Value::Tensor(0))
                    });
                    let entries: Vec<_> = entries.collect();
                    values.dictionaries.push(entries);
                    Value::Dictionary(values.dictionaries.len() - 1)
                }
            };
            values.texts.push(key.to_string());
            root.push((Value::Text(values.texts.len() - 1), value));
        }
        values.dictionaries.push(root);
        let root = Value::Dictionary(values.dictionaries.len() - 1);
        let (named, others) = find(&Loaded { root, values, len: 0 }, key)?;
        Ok((named.into_iter().map(|named| named.name).collect(), others))
    }

    #[test]
    fn the_dictionary_with_the_most_tensors_is_taken() {
        // the best score as a tensor, as in PyTorch's example for ImageNet
        let example = [("epoch", Some(0)), ("state_dict", Some(3)), ("best_acc1", None), ("optimizer", Some(9))];
        assert_eq!(found(&example).unwrap(), ["state_dict0", "state_dict1", "state_dict2"]);
        assert_eq!(found(&[("a", None), ("b", None), ("model", Some(1))]).unwrap(), ["a", "b"]);
        assert_eq!(found(&[("a", None), ("net", Some(1)), ("model", Some(1))]).unwrap(), ["model0"]);
        assert!(found(&[("epoch", Some(2)), ("model", Some(0))]).is_err());
    }

    #[test]
    fn averages_are_offered_and_taken_by_their_key() {
        let timm = [("epoch", Some(0)), ("state_dict", Some(2)), ("state_dict_ema", Some(2)), ("optimizer", Some(1))];
        let (names, others) = found_by(&timm, None).unwrap();
        assert_eq!(names, ["state_dict0", "state_dict1"]);
        assert!(others.unwrap().contains("init.key = \"state_dict_ema\""));
        let (names, others) = found_by(&timm, Some("state_dict_ema")).unwrap();
        assert_eq!((names, others), (vec!["state_dict_ema0".into(), "state_dict_ema1".into()], None));
        for key in ["model_ema", "epoch"] {
            let refused = found_by(&timm, Some(key));
            assert!(
                matches!(refused, Err(Fault::Unsupported(text)) if text.contains(key) && text.contains("optimizer"))
            );
        }
        assert_eq!(found_by(&[("model", Some(1)), ("model_ema", Some(0))], None).unwrap().1, None);
    }
}
