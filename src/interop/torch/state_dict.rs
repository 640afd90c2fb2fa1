//! The tensors of a state_dict by name.

use std::collections::BTreeSet;

use super::pickle::Loaded;
use super::values::{Value, Values};
use crate::interop::error::{Fault, damaged};
use loaders::printable;

/// A name, and the number of its view.
#[derive(Debug, PartialEq)]
pub struct Named {
    pub name: String,
    pub view: usize,
}

/// Where training scripts keep the state_dict in what they save, in this order.
const PLACES: [&str; 5] = ["state_dict", "model_state_dict", "model", "net", "network"];

/// The tensors of the root, or of the dictionary in it that is a state_dict: of the one that has most of them, since scripts keep other
/// tensors beside it, such as the best score. Values that are no tensors are left out.
pub fn find(loaded: &Loaded) -> Result<Vec<Named>, Fault> {
    let (values, root) = (&loaded.values, loaded.root);
    let Value::Dictionary(root) = root else {
        return Err(Fault::Unsupported(format!(
            "its pickle holds {}, expected a state_dict: save model.state_dict()",
            root.words()
        )));
    };
    let entries = &values.dictionaries[root];
    let inner = PLACES.iter().filter_map(|place| inner(values, entries, place));
    let candidates: Vec<_> = inner.chain([entries.as_slice()]).collect();
    let tensors = |entries: &&&[(Value, Value)]| entries.iter().filter(|(_, value)| is_tensor(*value)).count();
    // of several with as many the last is taken: from behind it is the first
    if let Some(most) = candidates.iter().rev().max_by_key(tensors).filter(|most| tensors(most) > 0) {
        return named(values, most);
    }
    let keys = entries.iter().filter_map(|(key, _)| values.text(*key).ok()).map(printable);
    let keys = keys.take(10).collect::<Vec<_>>().join(", ");
    Err(Fault::Unsupported(format!(
        "its pickle holds no tensors by name, nor under {}; it has the keys {keys}: save model.state_dict() alone",
        PLACES.join(", ")
    )))
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
        let named = find(&Loaded { root, values, len: 0 })?;
        Ok(named.into_iter().map(|named| named.name).collect())
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
}
