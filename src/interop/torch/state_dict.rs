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

/// The tensors of the root, or of the dictionary in it that is a state_dict. Values that are no tensors are left out.
pub fn find(loaded: &Loaded) -> Result<Vec<Named>, Fault> {
    let (values, root) = (&loaded.values, loaded.root);
    let Value::Dictionary(root) = root else {
        return Err(Fault::Unsupported(format!(
            "its pickle holds {root:?}, expected a state_dict: save model.state_dict()"
        )));
    };
    let entries = &values.dictionaries[root];
    let inner = PLACES.iter().filter_map(|place| inner(values, entries, place));
    for entries in std::iter::once(entries.as_slice()).chain(inner) {
        let tensors = named(values, entries)?;
        if !tensors.is_empty() {
            return Ok(tensors);
        }
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
