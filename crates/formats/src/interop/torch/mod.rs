//! Reads PyTorch's `.pth`, `.pt` and `.bin` files, which `torch.save` writes for a state_dict or a dictionary that
//! contains one.
//!
//! Such a file is a pickle: a program for Python's unpickler, which may call any function. This module runs it in its
//! own interpreter. The interpreter only knows the operations that build dictionaries, lists, numbers and strings, and
//! the few classes that describe PyTorch's tensors. Any other class or operation is an error that names it. No function
//! is ever called.
//!
//! - `pickle`: the interpreter and the classes that it knows. `values`: the data that it builds.
//! - `state_dict`: finds the tensors by name and reads their values.

mod pickle;
mod state_dict;
mod values;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use base::text::printable;
use loaders::regular;
use pickle::Loaded;
use state_dict::Found;
use values::Storage;
use zip::{CompressionMethod, ZipArchive};

use super::weights::{Error, Fault, Format, Weights, damaged};

pub(super) const FORMAT: Format = Format {
    name: "torch",
    about: "PyTorch's .pth",
    recognises: |head| head.starts_with(b"PK\x03\x04"),
    read: |path, key| finish(path, read_zip(path, key)),
    has_keys: true,
};

pub(super) const OLD: Format = Format {
    name: "torch before 1.6",
    about: "PyTorch's .pth before version 1.6",
    recognises: |head| head.starts_with(MAGIC),
    read: |path, key| finish(path, read_old(path, key)),
    has_keys: true,
};

fn finish(path: &Path, found: Result<Found, Fault>) -> Result<Weights, Error> {
    let (tensors, others) = found.map_err(|fault| fault.of(path))?;
    let warning = others.map(|others| format!("note: {}: {others}", path.display()));
    Ok(Weights { warning, ..Weights::new(path, FORMAT.name, tensors) })
}

// Since PyTorch 1.6, `torch.save` writes an uncompressed zip archive. A folder in it has `data.pkl`, one file per
// storage under `data/`, and sometimes `byteorder`.

/// Reads the model's tensors in a file. With a `key`, reads the tensors of the dictionary with that key. See
/// [`state_dict::find`].
fn read_zip(path: &Path, key: Option<&str>) -> Result<Found, Fault> {
    let file = regular::open(path).map_err(Fault::Io)?;
    let length = file.metadata().map_err(Fault::Io)?.len();
    let mut zip = ZipArchive::new(file).map_err(|e| Fault::Damaged(format!("not a complete zip archive: {e}")))?;
    let folder = folder(&zip)?;
    if let Some(order) = entry(&mut zip, &format!("{folder}byteorder"), 16)?
        && order != b"little"
    {
        return Err(Fault::Unsupported(
            "its values are big-endian, which is not supported. Save it on a little-endian machine".into(),
        ));
    }
    let Some(program) = entry(&mut zip, &format!("{folder}data.pkl"), pickle::LONGEST as u64)? else {
        return damaged("its data.pkl is missing");
    };
    let loaded = pickle::load(&program)?;
    if loaded.len != program.len() {
        return damaged(format!("its pickle ends at byte {} of {}", loaded.len, program.len()));
    }
    let (named, others) = state_dict::find(&loaded, key)?;
    let tensors = state_dict::all(&loaded.values, &named, length, |storage| {
        entry_bytes(&mut zip, &folder, storage).map(Cow::Owned)
    })?;
    Ok((tensors, others))
}

/// Returns the path of the folder that contains `data.pkl`, with a slash at its end.
fn folder(zip: &ZipArchive<File>) -> Result<String, Fault> {
    let names = zip.file_names().filter_map(Result::ok);
    let mut found = names.filter_map(|name| name.strip_suffix("data.pkl").map(str::to_string));
    match (found.next(), found.next()) {
        (Some(folder), None) => Ok(folder),
        (None, _) => Err(Fault::Unsupported(
            "this zip archive has no data.pkl, so torch.save did not write it (Keras's .keras files are not supported)"
                .into(),
        )),
        _ => damaged("this zip archive has more than one data.pkl"),
    }
}

/// Returns the bytes of an entry, or `None` if there is no such entry. Fails if it has more than `most` bytes.
fn entry(zip: &mut ZipArchive<File>, name: &str, most: u64) -> Result<Option<Vec<u8>>, Fault> {
    let Some(index) = zip.index_for_name(name) else { return Ok(None) };
    let shown = printable(name);
    let refuse = |e: zip::result::ZipError| Fault::Damaged(format!("{shown} cannot be opened: {e}"));
    // torch.save never compresses, and a stored entry cannot become larger when it is read
    let raw = zip.by_index_raw(index).map_err(refuse)?;
    let (plain, size, packed) =
        (raw.compression() == CompressionMethod::Stored && !raw.encrypted(), raw.size(), raw.compressed_size());
    drop(raw);
    if !plain {
        return Err(Fault::Unsupported(format!("{shown} is compressed or encrypted, which torch.save never does")));
    }
    if size != packed {
        return damaged(format!("{shown} has {size} bytes, but the archive contains {packed}"));
    }
    if size > most {
        return damaged(format!("{shown} has {size} bytes, expected at most {most}"));
    }
    let mut bytes = Vec::new();
    let file = zip.by_index(index).map_err(refuse)?;
    file.take(size).read_to_end(&mut bytes).map_err(|e| Fault::Damaged(format!("{shown} cannot be read: {e}")))?;
    Ok(Some(bytes))
}

/// Returns the bytes of a storage.
fn entry_bytes(zip: &mut ZipArchive<File>, folder: &str, storage: &Storage) -> Result<Vec<u8>, Fault> {
    let Storage { number, key, len } = storage;
    let name = format!("{folder}data/{key}");
    let Some(expected) = len.checked_mul(number.bytes() as u64) else {
        return damaged(format!("storage {} has {len} values, more than any file can contain", printable(key)));
    };
    match entry(zip, &name, expected)? {
        Some(bytes) if bytes.len() as u64 == expected => Ok(bytes),
        Some(bytes) => damaged(format!(
            "{} has {} bytes, expected {expected} bytes for {len} values",
            printable(&name),
            bytes.len()
        )),
        None => damaged(format!("{} is missing", printable(&name))),
    }
}

// Before PyTorch 1.6, `torch.save` wrote five pickles one after another: a magic number, a version, information about
// the machine, the state_dict, and the keys of the storages. After them, each storage follows as its number of values
// and the values. Many published weights still have this format.

/// The pickled magic number, and the pickled version 1001.
const MAGIC: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.";

/// Reads the model's tensors in a file. With a `key`, reads the tensors of the dictionary with that key. See
/// [`state_dict::find`].
fn read_old(path: &Path, key: Option<&str>) -> Result<Found, Fault> {
    let bytes = regular::read(path).map_err(Fault::Io)?;
    let (mut rest, mut longest) = (&bytes[MAGIC.len().min(bytes.len())..], pickle::LONGEST);
    let mut next = || {
        let loaded = pickle::load_within(rest, longest)?;
        rest = &rest[loaded.len..];
        longest -= loaded.len;
        Ok::<_, Fault>(loaded)
    };
    // skip the information about the machine
    drop(next()?);
    let (loaded, keys) = (next()?, next()?);
    let places = places(&loaded, &keys, rest)?;
    let (named, others) = state_dict::find(&loaded, key)?;
    let tensors = state_dict::all(&loaded.values, &named, bytes.len() as u64, |storage| {
        match places.get(storage.key.as_str()) {
            Some(found) => Ok(Cow::Borrowed(*found)),
            None => damaged(format!("the values of storage {} are missing", printable(&storage.key))),
        }
    })?;
    Ok((tensors, others))
}

/// Returns the bytes of each storage by its key.
fn places<'a>(loaded: &'a Loaded, keys: &'a Loaded, mut rest: &'a [u8]) -> Result<BTreeMap<&'a str, &'a [u8]>, Fault> {
    let storages: BTreeMap<&str, &Storage> =
        loaded.values.storages.iter().map(|storage| (storage.key.as_str(), storage)).collect();
    let mut places = BTreeMap::new();
    for key in keys.values.list(keys.root)? {
        let key = keys.values.text(*key)?;
        let Some(Storage { number, len, .. }) = storages.get(key) else {
            return damaged(format!("it has values of the storage {}, which no tensor uses", printable(key)));
        };
        let count = rest.first_chunk().map(|count| u64::from_le_bytes(*count));
        let bytes = len.checked_mul(number.bytes() as u64).and_then(|bytes| usize::try_from(bytes).ok());
        let values = bytes.and_then(|bytes| rest.get(8..)?.split_at_checked(bytes));
        let (Some((values, left)), true) = (values, count == Some(*len)) else {
            let found = match count {
                None => "the file ends before them".to_string(),
                Some(count) if count == *len => "the file ends within them".to_string(),
                Some(count) => format!("the file says {count}"),
            };
            return damaged(format!("storage {} should have {len} values, but {found}", printable(key)));
        };
        places.insert(key, values);
        rest = left;
    }
    Ok(places)
}
