//! `torch.save` before PyTorch 1.6, as many published weights still are: five pickles one behind the other (a magic number, a version,
//! facts on the machine, the state_dict, the keys of the storages), then each storage as its number of values and these.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use loaders::{printable, regular};

use super::pickle::{self, Loaded};
use super::state_dict::Found;
use super::values::Storage;
use super::{state_dict, tensor};
use crate::interop::error::{Fault, damaged};

/// The pickles of the magic number and of version 1001.
pub const MAGIC: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.";

/// Reads all tensors of a file, or with `key` only the tensors of that dictionary.
pub fn read(path: &Path, key: Option<&str>) -> Result<Found, Fault> {
    let bytes = regular::read(path).map_err(Fault::Io)?;
    parse(&bytes, key)
}

fn parse(bytes: &[u8], key: Option<&str>) -> Result<Found, Fault> {
    let (mut rest, mut longest) = (&bytes[MAGIC.len().min(bytes.len())..], pickle::LONGEST);
    let mut next = || {
        let loaded = pickle::load_within(rest, longest)?;
        rest = &rest[loaded.len..];
        longest -= loaded.len;
        Ok::<_, Fault>(loaded)
    };
    // information about the machine that wrote the file
    drop(next()?);
    let (loaded, keys) = (next()?, next()?);
    let places = places(&loaded, &keys, rest)?;
    let (named, others) = state_dict::find(&loaded, key)?;
    let tensors =
        tensor::all(&loaded.values, &named, bytes.len() as u64, |storage| match places.get(storage.key.as_str()) {
            Some(found) => Ok(Cow::Borrowed(*found)),
            None => damaged(format!("the values of storage {} cannot be found", printable(&storage.key))),
        })?;
    Ok((tensors, others))
}

/// The bytes of each storage by its key.
fn places<'a>(loaded: &'a Loaded, keys: &'a Loaded, mut rest: &'a [u8]) -> Result<BTreeMap<&'a str, &'a [u8]>, Fault> {
    let storages: BTreeMap<&str, &Storage> =
        loaded.values.storages.iter().map(|storage| (storage.key.as_str(), storage)).collect();
    let mut places = BTreeMap::new();
    for key in keys.values.list(keys.root)? {
        let key = keys.values.text(*key)?;
        let Some(Storage { number, len, .. }) = storages.get(key) else {
            return damaged(format!("it has values of the storage {}, which no tensor names", printable(key)));
        };
        let count = rest.first_chunk().map(|count| u64::from_le_bytes(*count));
        let bytes = len.checked_mul(number.bytes() as u64).and_then(|bytes| usize::try_from(bytes).ok());
        let values = bytes.and_then(|bytes| rest.get(8..)?.split_at_checked(bytes));
        let (Some((values, left)), true) = (values, count == Some(*len)) else {
            return damaged(format!(
                "storage {} should have {len} values, and has {count:?} in the file",
                printable(key)
            ));
        };
        places.insert(key, values);
        rest = left;
    }
    Ok(places)
}
