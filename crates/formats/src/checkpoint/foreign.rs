//! A model file that another program made anew, read by libhdf5 and written again as `reader` knows it.
//!
//! libhdf5 crashes on files that were made to harm, so that this is for a process of its own, which `trireme rewrite-model` is. Links of
//! any but the plain kind, values in other files and types that trireme does not know are left out; what is then missing is named by
//! whoever reads the result.

use std::path::Path;

use hdf5::plist::dataset_create::Layout;
use hdf5::types::{FloatSize, IntSize, TypeDescriptor, VarLenAscii, VarLenUnicode};
use hdf5::{Attribute, Container, Dataset, Group, LinkType};
use hdf5_metno as hdf5;

use super::child;
use super::error::Error;
use super::h5::{Group as NewGroup, H5File};

/// The groups of a model file.
const GROUPS: [&str; 2] = ["model_weights", "trireme"];

/// Groups in groups at most: `trireme/ema/L/L`.
const DEEPEST: usize = 5;

/// Copies the model in the file `from` to the file `to`, which is there already and is emptied.
///
/// # Errors
/// What HDF5 refuses of either file.
pub fn rewrite(from: &Path, to: &Path) -> Result<(), Error> {
    let refuse = |action: &str, error: hdf5::Error| Error::Hdf5 {
        action: action.into(),
        path: from.to_path_buf(),
        text: error.to_string(),
    };
    let source = hdf5::File::open(from).map_err(|error| refuse("open the file", error))?;
    let file = H5File::create(to)?;
    child::drop_name(to);
    let root = file.root()?;
    let mut room = Room::for_file(from);
    for name in GROUPS {
        let kept = links(&source).map_err(|error| refuse("list the groups", error))?;
        if kept.iter().any(|link| link == name) {
            let group = source.group(name).map_err(|error| refuse("open the group", error))?;
            copy(&group, &root.create(name)?, 0, &mut room, &refuse)?;
        }
    }
    drop(root);
    file.close()
}

/// Names of what a group itself holds, without links to other places and files.
pub(super) fn links(group: &Group) -> hdf5::Result<Vec<String>> {
    let mut names = Vec::new();
    group.iter_visit_default(|name, info| {
        if info.link_type == LinkType::Hard {
            names.push(name.to_string());
        }
        Ok(())
    })?;
    names.sort();
    Ok(names)
}

type Refuse<'a> = dyn Fn(&str, hdf5::Error) -> Error + 'a;

fn copy(from: &Group, to: &NewGroup, depth: usize, room: &mut Room, refuse: &Refuse<'_>) -> Result<(), Error> {
    for name in from.attr_names().map_err(|error| refuse("list the attributes", error))? {
        let attribute = from.attr(&name).map_err(|error| refuse("open an attribute", error))?;
        copy_attribute(&attribute, &name, to, refuse)?;
    }
    for name in links(from).map_err(|error| refuse("list the members of a group", error))? {
        if let Ok(array) = from.dataset(&name) {
            copy_array(&array, &name, to, room, refuse)?;
        } else if depth < DEEPEST {
            let group = from.group(&name).map_err(|error| refuse("open a group", error))?;
            copy(&group, &to.create(&name)?, depth + 1, room, refuse)?;
        }
    }
    Ok(())
}

/// Copies values of floats that lie in the file itself.
fn copy_array(array: &Dataset, name: &str, to: &NewGroup, room: &mut Room, refuse: &Refuse<'_>) -> Result<(), Error> {
    match floats(array, room).map_err(|error| refuse("read an array", error))? {
        Some(values) => to.put_array(name, &array.shape(), &values),
        None => Ok(()),
    }
}

/// Limit for the number of values in all arrays of a file. A small file can describe a huge compressed or unwritten array.
pub(super) struct Room {
    /// Number of values that may still be read.
    left: u64,
    /// Number of values that the file may have in total.
    whole: u64,
}

/// The limit is `ROOM` bytes plus `ROOM_EACH` bytes for each byte of the file.
const ROOM: u64 = 256 << 20;
const ROOM_EACH: u64 = 4;

impl Room {
    /// Computes the limit from the size of the file.
    pub fn for_file(path: &Path) -> Self {
        let bytes = std::fs::metadata(path).map_or(0, |file| file.len());
        let whole = (bytes.saturating_mul(ROOM_EACH).saturating_add(ROOM)) / size_of::<f32>() as u64;
        Self { left: whole, whole }
    }

    /// Subtracts the array's values from the limit.
    fn take(&mut self, array: &Dataset) -> hdf5::Result<()> {
        let values = array.shape().iter().try_fold(1u64, |product, n| product.checked_mul(*n as u64));
        match values.and_then(|values| self.left.checked_sub(values)) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(format!(
                "{} has the shape {:?}; with it the arrays have more than {} values, the limit for a file of this size",
                array.name(),
                array.shape(),
                self.whole
            )
            .into()),
        }
    }
}

/// Reads an array of floats. Returns `None` for other types and for arrays stored in another file.
pub(super) fn floats(array: &Dataset, room: &mut Room) -> hdf5::Result<Option<Vec<f32>>> {
    let plist = array.dcpl()?;
    let here = matches!(plist.layout(), Layout::Compact | Layout::Contiguous | Layout::Chunked);
    let outside = plist.get_external().map_or(true, |files| !files.is_empty());
    if !here || outside || !matches!(descriptor(array), Some(TypeDescriptor::Float(_))) {
        return Ok(None);
    }
    room.take(array)?;
    array.read_raw().map(Some)
}

pub(super) fn descriptor(container: &Container) -> Option<TypeDescriptor> {
    container.dtype().and_then(|kind| kind.to_descriptor()).ok()
}

fn copy_attribute(attribute: &Attribute, name: &str, to: &NewGroup, refuse: &Refuse<'_>) -> Result<(), Error> {
    let refuse = |error| refuse("read an attribute", error);
    let one = attribute.is_scalar();
    match descriptor(attribute) {
        Some(TypeDescriptor::VarLenUnicode) => {
            let texts: Vec<VarLenUnicode> = attribute.read_raw().map_err(refuse)?;
            put_texts(to, name, one, texts.iter().map(|text| text.to_string()).collect())
        }
        Some(TypeDescriptor::VarLenAscii) => {
            let texts: Vec<VarLenAscii> = attribute.read_raw().map_err(refuse)?;
            put_texts(to, name, one, texts.iter().map(|text| text.to_string()).collect())
        }
        Some(TypeDescriptor::Unsigned(IntSize::U8)) => {
            put_numbers::<u64>(to, name, one, attribute.read_raw().map_err(refuse)?)
        }
        Some(TypeDescriptor::Unsigned(IntSize::U4)) => {
            put_numbers::<u32>(to, name, one, attribute.read_raw().map_err(refuse)?)
        }
        Some(TypeDescriptor::Float(FloatSize::U8)) => {
            put_numbers::<f64>(to, name, one, attribute.read_raw().map_err(refuse)?)
        }
        Some(TypeDescriptor::Float(FloatSize::U4)) => {
            put_numbers::<f32>(to, name, one, attribute.read_raw().map_err(refuse)?)
        }
        _ => Ok(()),
    }
}

fn put_texts(to: &NewGroup, name: &str, one: bool, texts: Vec<String>) -> Result<(), Error> {
    match &texts[..] {
        [text] if one => to.put_text(name, text),
        _ => to.put_texts(name, &texts),
    }
}

fn put_numbers<T: hdf5::H5Type + Copy>(to: &NewGroup, name: &str, one: bool, numbers: Vec<T>) -> Result<(), Error> {
    match numbers[..] {
        [number] if one => to.put_number(name, number),
        _ => to.put_numbers(name, &numbers),
    }
}
