//! `torch.save` since PyTorch 1.6: a zip without compression, with `data.pkl`, a file for each storage under `data/`, and perhaps
//! `byteorder`, all in one folder.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use loaders::{printable, regular};
use zip::{CompressionMethod, ZipArchive};

use super::state_dict::Found;
use super::values::Storage;
use super::{pickle, state_dict, tensor};
use crate::interop::error::{Fault, damaged};

/// Reads all tensors of a file, or with `key` only the tensors of that dictionary.
pub fn read(path: &Path, key: Option<&str>) -> Result<Found, Fault> {
    let file = regular::open(path).map_err(Fault::Io)?;
    let length = file.metadata().map_err(Fault::Io)?.len();
    let mut zip = ZipArchive::new(file).map_err(|e| Fault::Damaged(format!("no whole zip archive: {e}")))?;
    let folder = folder(&zip)?;
    if let Some(order) = entry(&mut zip, &format!("{folder}byteorder"), 16)?
        && order != b"little"
    {
        return Err(Fault::Unsupported("its values are big-endian: save it on another machine".into()));
    }
    let Some(program) = entry(&mut zip, &format!("{folder}data.pkl"), pickle::LONGEST as u64)? else {
        return damaged("its data.pkl cannot be found");
    };
    let loaded = pickle::load(&program)?;
    if loaded.len != program.len() {
        return damaged(format!("its pickle ends at byte {} of {}", loaded.len, program.len()));
    }
    let (named, others) = state_dict::find(&loaded, key)?;
    let tensors =
        tensor::all(&loaded.values, &named, length, |storage| values(&mut zip, &folder, storage).map(Cow::Owned))?;
    Ok((tensors, others))
}

/// The folder that holds `data.pkl`, with its slash.
fn folder(zip: &ZipArchive<File>) -> Result<String, Fault> {
    let names = zip.file_names().filter_map(Result::ok);
    let mut found = names.filter_map(|name| name.strip_suffix("data.pkl").map(str::to_string));
    match (found.next(), found.next()) {
        (Some(folder), None) => Ok(folder),
        (None, _) => Err(Fault::Unsupported(
            "a zip archive without data.pkl, so none of torch.save (Keras's .keras files are not read)".into(),
        )),
        _ => damaged("a zip archive with several data.pkl"),
    }
}

/// The bytes of an entry of at most so many, or none if there is no such entry.
fn entry(zip: &mut ZipArchive<File>, name: &str, most: u64) -> Result<Option<Vec<u8>>, Fault> {
    let Some(index) = zip.index_for_name(name) else { return Ok(None) };
    let shown = printable(name);
    let refuse = |e: zip::result::ZipError| Fault::Damaged(format!("{shown} cannot be opened: {e}"));
    // torch.save never compresses, and what is stored cannot grow
    let raw = zip.by_index_raw(index).map_err(refuse)?;
    let (plain, size, packed) =
        (raw.compression() == CompressionMethod::Stored && !raw.encrypted(), raw.size(), raw.compressed_size());
    drop(raw);
    if !plain {
        return Err(Fault::Unsupported(format!("{shown} is compressed or encrypted, which torch.save never does")));
    }
    if size > most || size != packed {
        return damaged(format!("{shown} has {size} bytes, {packed} of them in the file, expected at most {most}"));
    }
    let mut bytes = Vec::new();
    let file = zip.by_index(index).map_err(refuse)?;
    file.take(size).read_to_end(&mut bytes).map_err(|e| Fault::Damaged(format!("{shown} cannot be read: {e}")))?;
    Ok(Some(bytes))
}

/// The bytes of a storage.
fn values(zip: &mut ZipArchive<File>, folder: &str, storage: &Storage) -> Result<Vec<u8>, Fault> {
    let Storage { number, key, len } = storage;
    let name = format!("{folder}data/{key}");
    let Some(expected) = len.checked_mul(number.bytes() as u64) else {
        return damaged(format!("a storage of {len} values"));
    };
    match entry(zip, &name, expected)? {
        Some(bytes) if bytes.len() as u64 == expected => Ok(bytes),
        Some(bytes) => {
            damaged(format!("{} has {} bytes, its {len} values take {expected}", printable(&name), bytes.len()))
        }
        None => damaged(format!("{} cannot be found", printable(&name))),
    }
}
