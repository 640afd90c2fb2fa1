//! Finds the tensors of a state_dict by name and reads their values.

use std::borrow::Cow;
use std::collections::BTreeSet;

use base::text::printable;

use super::pickle::Loaded;
use super::values::{Storage, Value, Values, View};
use crate::checkpoint::Tensor;
use crate::interop::number::Number;
use crate::interop::weights::{Fault, damaged};

/// The tensors of a file, and a sentence that names averaged weights if the file has any.
pub type Found = (Vec<Tensor>, Option<String>);

/// A tensor's name and the index of its view.
#[derive(Debug, PartialEq)]
pub struct Named {
    pub name: String,
    pub view: usize,
}

/// Keys under which training scripts save the state_dict, in order of preference.
const PLACES: [&str; 5] = ["state_dict", "model_state_dict", "model", "net", "network"];

/// Keys under which timm and torchvision store averaged weights.
const AVERAGES: [&str; 4] = ["state_dict_ema", "model_ema", "ema_state_dict", "ema"];

/// Finds the model's tensors in the root or in one of its dictionaries. With a `key`, uses the dictionary with that key. Otherwise compares
/// the root and the dictionaries under [`PLACES`], and uses the one with the most tensors, because scripts also store other tensors, such
/// as the best score. Skips values that are not tensors.
///
/// The second value is a sentence that names averaged weights, if the file has any.
pub fn find(loaded: &Loaded, key: Option<&str>) -> Result<(Vec<Named>, Option<String>), Fault> {
    let (values, root) = (&loaded.values, loaded.root);
    let Value::Dictionary(root) = root else {
        return Err(Fault::Unsupported(format!(
            "its pickle contains {}, expected a state_dict. Save model.state_dict()",
            root.words()
        )));
    };
    let entries = &values.dictionaries[root];
    let tensors = |entries: &&&[(Value, Value)]| entries.iter().filter(|(_, value)| is_tensor(*value)).count();
    if let Some(key) = key {
        return match inner(values, entries, key).filter(|found| tensors(&found) > 0) {
            Some(found) => Ok((named(values, found)?, None)),
            None => Err(Fault::Unsupported(format!(
                "it has no tensors under the key \"{}\" (init.key); it has {}",
                printable(key),
                keys(values, entries)
            ))),
        };
    }
    let candidates: Vec<_> =
        PLACES.iter().filter_map(|place| inner(values, entries, place)).chain([entries.as_slice()]).collect();
    // if two have the same number of tensors, the earlier place wins: `max_by_key` returns the last maximum
    if let Some(most) = candidates.iter().rev().max_by_key(tensors).filter(|most| tensors(most) > 0) {
        let there = |place: &&&str| inner(values, entries, place).is_some_and(|found| tensors(&&found) > 0);
        let averages = AVERAGES.iter().find(there).map(|key| {
            format!("the file also has averaged weights. Use them with init.key = \"{key}\" (import: --key {key})")
        });
        return Ok((named(values, most)?, averages));
    }
    let keys = keys(values, entries);
    Err(Fault::Unsupported(format!(
        "its pickle has no named tensors at the top level or under {}; it has {keys}. Save only model.state_dict()",
        PLACES.join(", ")
    )))
}

/// Number of keys that a message lists.
const MOST_KEYS: usize = 10;

/// Lists the first keys of a dictionary, for messages.
fn keys(values: &Values, entries: &[(Value, Value)]) -> String {
    let keys: Vec<_> = entries.iter().filter_map(|(key, _)| values.text(*key).ok()).map(printable).collect();
    match keys.len() {
        0 => "no keys".into(),
        n if n > MOST_KEYS => format!("the keys {} and {} more", keys[..MOST_KEYS].join(", "), n - MOST_KEYS),
        _ => format!("the keys {}", keys.join(", ")),
    }
}

/// Returns the dictionary under a key.
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

/// Returns the tensors in a dictionary. Fails if a name occurs twice.
fn named(values: &Values, entries: &[(Value, Value)]) -> Result<Vec<Named>, Fault> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (key, value) in entries {
        if let Value::Tensor(view) = value {
            let name = values.text(*key)?.to_string();
            if !seen.insert(name.clone()) {
                return damaged(format!("its pickle has two tensors with the name {}", printable(&name)));
            }
            found.push(Named { name, view: *view });
        }
    }
    Ok(found)
}

/// Largest number of dimensions of a tensor.
const MOST_DIMENSIONS: usize = 16;

/// Returns the tensors in `named`, in this order. `read` returns the bytes of a storage.
///
/// # Errors
/// Fails if the tensors have more than `most` values together: with strides of 0, a small storage can produce large tensors. Also fails if
/// a tensor reaches past the end of its storage. Fails if the pickle gives one storage two types or lengths, because it would be read once
/// for each.
pub fn all<'a>(
    values: &Values,
    named: &[Named],
    most: u64,
    mut read: impl FnMut(&Storage) -> Result<Cow<'a, [u8]>, Fault>,
) -> Result<Vec<Tensor>, Fault> {
    let mut total = 0u64;
    for one in named {
        let view = &values.views[one.view];
        let count = check(view, &values.storages[view.storage]);
        total = total.saturating_add(count.map_err(|text| Fault::Damaged(format!("{} {text}", printable(&one.name))))?);
    }
    if total > most {
        return damaged(format!("its tensors have {total} values together, but the file has only {most} bytes"));
    }
    // read each storage once, and keep only one storage in memory at a time
    let storage_of = |i: usize| &values.storages[values.views[named[i].view].storage];
    let mut order: Vec<usize> = (0..named.len()).collect();
    order.sort_by_key(|&i| &storage_of(i).key);
    let mut tensors: Vec<Tensor> = named.iter().map(|one| (one.name.clone(), Vec::new(), Vec::new())).collect();
    for same in order.chunk_by(|&i, &j| storage_of(i).key == storage_of(j).key) {
        let storage = storage_of(same[0]);
        if let Some(other) = same.iter().map(|&i| storage_of(i)).find(|other| *other != storage) {
            return damaged(format!(
                "its pickle describes storage {} as {} values of type {} and as {} values of type {}, which torch.save never does",
                printable(&storage.key),
                storage.len,
                storage.number,
                other.len,
                other.number
            ));
        }
        let bytes = read(storage)?;
        for &i in same {
            let view = &values.views[named[i].view];
            tensors[i].1 = view.size.iter().map(|n| *n as usize).collect();
            tensors[i].2 = gather(view, storage.number, &bytes);
        }
    }
    Ok(tensors)
}

/// Counts the values in a view. Fails if it reaches past the end of its storage.
fn check(view: &View, storage: &Storage) -> Result<u64, String> {
    let View { offset, size, stride, .. } = view;
    let odd = || {
        format!(
            "with sizes {size:?}, strides {stride:?} and offset {offset} reaches past the end of its storage, which has {} values",
            storage.len
        )
    };
    if size.len() != stride.len() || size.len() > MOST_DIMENSIONS {
        return Err(format!(
            "has {} sizes and {} strides; expected one of each for at most {MOST_DIMENSIONS} dimensions",
            size.len(),
            stride.len()
        ));
    }
    let count = size.iter().try_fold(1u64, |count, n| count.checked_mul(*n)).ok_or_else(odd)?;
    if count == 0 {
        return Ok(0);
    }
    let far = |last: u64, (n, stride): (&u64, &u64)| last.checked_add((n - 1).checked_mul(*stride)?);
    let last = size.iter().zip(stride).try_fold(*offset, far).ok_or_else(odd)?;
    if last < storage.len { Ok(count) } else { Err(odd()) }
}

/// Returns the values of a view in C order. [`check`] must have accepted the view.
fn gather(view: &View, number: Number, storage: &[u8]) -> Vec<f32> {
    let View { offset, size, stride, .. } = view;
    let count: u64 = size.iter().product();
    let width = number.bytes();
    let part = |from: u64, values: u64| &storage[from as usize * width..][..values as usize * width];
    let dense =
        size.iter().zip(stride).rev().try_fold(1, |next, (n, stride)| (*stride == next || *n == 1).then_some(next * n));
    if count == 0 || dense.is_some() {
        return if count == 0 { Vec::new() } else { number.values(part(*offset, count)) };
    }
    let (mut values, mut index) = (Vec::with_capacity(count as usize), vec![0u64; size.len()]);
    for _ in 0..count {
        let at = index.iter().zip(stride).fold(*offset, |at, (i, stride)| at + i * stride);
        values.push(number.value(part(at, 1)));
        for (i, n) in index.iter_mut().zip(size).rev() {
            *i += 1;
            if *i < *n {
                break;
            }
            *i = 0;
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs [`find`] on a root dictionary and returns the names of the tensors that it finds. Each key of the root has
    /// a dictionary with this number of tensors, or a tensor if the number is `None`.
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
        // the best score is a tensor, as in PyTorch's ImageNet example
        let example = [("epoch", Some(0)), ("state_dict", Some(3)), ("best_acc1", None), ("optimizer", Some(9))];
        assert_eq!(found(&example).unwrap(), ["state_dict0", "state_dict1", "state_dict2"]);
        assert_eq!(found(&[("a", None), ("b", None), ("model", Some(1))]).unwrap(), ["a", "b"]);
        assert_eq!(found(&[("a", None), ("net", Some(1)), ("model", Some(1))]).unwrap(), ["model0"]);
        assert!(found(&[("epoch", Some(2)), ("model", Some(0))]).is_err());
    }

    #[test]
    fn ema_weights_are_suggested_and_chosen_by_key() {
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

    fn view(offset: u64, size: &[u64], stride: &[u64]) -> Result<Vec<f32>, String> {
        let storage = Storage { number: Number::F32, key: "0".into(), len: 6 };
        let view = View { storage: 0, offset, size: size.to_vec(), stride: stride.to_vec() };
        check(&view, &storage)?;
        let bytes: Vec<u8> = (0..6).flat_map(|i| (i as f32).to_le_bytes()).collect();
        Ok(gather(&view, Number::F32, &bytes))
    }

    #[test]
    fn strided_views_are_read_within_their_storage() {
        assert_eq!(view(0, &[2, 3], &[3, 1]).unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(view(0, &[3, 2], &[1, 3]).unwrap(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        assert_eq!(view(1, &[2, 2], &[3, 1]).unwrap(), [1.0, 2.0, 4.0, 5.0]);
        assert_eq!(view(5, &[], &[]).unwrap(), [5.0]);
        assert_eq!(view(9, &[0, 3], &[3, 1]).unwrap(), [0f32; 0]);
        // a view that `expand` makes
        assert_eq!(view(2, &[4, 2], &[0, 1]).unwrap(), [2.0, 3.0].repeat(4));
        let max = u64::MAX;
        for (offset, size, stride) in [
            (1, &[2, 3][..], &[3, 1][..]),
            (0, &[7], &[1]),
            (6, &[], &[]),
            (0, &[max, max], &[1, 1]),
            (max, &[2], &[max]),
            (0, &[2], &[]),
            (0, &[1; 17], &[1; 17]),
        ] {
            assert!(view(offset, size, stride).is_err(), "{offset} {size:?} {stride:?}");
        }
    }

    /// Many views of the same storage could turn a small file into many gigabytes.
    #[test]
    fn total_tensor_size_is_limited_by_the_file_size() {
        let storages = vec![Storage { number: Number::F32, key: "0".into(), len: 1000 }];
        let view = View { storage: 0, offset: 0, size: vec![1000], stride: vec![1] };
        let wide = View { storage: 0, offset: 0, size: vec![u64::MAX, 1], stride: vec![0, 0] };
        let views = [vec![view; 5], vec![wide]].concat();
        let values = Values { storages, views, ..Values::default() };
        let named: Vec<Named> = (0..5).map(|view| Named { name: format!("t{view}"), view }).collect();
        let read = |most| all(&values, &named, most, |_| Ok(vec![0; 4000].into()));
        assert_eq!(read(5000).unwrap().len(), 5);
        assert!(
            matches!(read(4999), Err(Fault::Damaged(text)) if text.contains("5000 values") && text.contains("4999 bytes"))
        );
        // one value, repeated u64::MAX times
        let named = [Named { name: "wide".into(), view: 5 }];
        let read = all(&values, &named, 5000, |_| Ok(vec![0; 4000].into()));
        assert!(matches!(read, Err(Fault::Damaged(text)) if text.contains(&u64::MAX.to_string())));
    }

    /// A storage with several types would be read once for each type.
    #[test]
    fn a_storage_with_two_types_or_lengths_is_refused() {
        let storage = |number, len| Storage { number, key: "0".into(), len };
        let view = |storage| View { storage, offset: 0, size: vec![0], stride: vec![1] };
        let named: Vec<Named> = (0..2).map(|view| Named { name: format!("t{view}"), view }).collect();
        for (other, allowed) in
            [(storage(Number::F32, 10), true), (storage(Number::I32, 10), false), (storage(Number::F32, 9), false)]
        {
            let storages = vec![storage(Number::F32, 10), other];
            let values = Values { storages, views: vec![view(0), view(1)], ..Values::default() };
            let mut reads = 0;
            let read = all(&values, &named, 100, |_| {
                reads += 1;
                Ok(vec![0; 40].into())
            });
            match allowed {
                true => assert!(read.is_ok() && reads == 1),
                false => {
                    let Err(Fault::Damaged(text)) = read else { panic!("{read:?}") };
                    assert!(["storage 0", "10 values", "float32"].iter().all(|part| text.contains(part)), "{text}");
                }
            }
        }
    }
}
