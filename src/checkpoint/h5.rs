//! Groups, attributes and arrays of HDF5: the only file that names the library.
//!
//! Files hold no times and no uninitialised bytes, so that equal content makes equal files. Not here: what the groups
//! mean.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use hdf5_metno as hdf5;

use hdf5::H5Type;
use hdf5::types::VarLenUnicode;

use super::error::Error;

/// An open HDF5 file.
pub(super) struct H5File {
    file: hdf5::File,
    path: Arc<PathBuf>,
}

/// A group of an open file.
pub(super) struct Group {
    group: hdf5::Group,
    path: Arc<PathBuf>,
}

impl H5File {
    /// Creates a file, or empties it.
    pub(super) fn create(path: &Path) -> Result<Self, Error> {
        // From HDF5 1.8 on; the earliest format has attributes up to 64 KB only, and no checksums on its own structures.
        let file = hdf5::File::with_options()
            .with_fapl(|access| access.libver_v18())
            .with_fcpl(|create| create.obj_track_times(false))
            .create(path);
        Self::new(path, file, "create a file")
    }

    /// Opens a file for reading.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        Self::new(path, hdf5::File::open(path), "open HDF5")
    }

    fn new(path: &Path, file: hdf5::Result<hdf5::File>, action: &str) -> Result<Self, Error> {
        let path = Arc::new(path.to_path_buf());
        match file {
            Ok(file) => Ok(Self { file, path }),
            Err(error) => Err(refusal(&path, action.to_string(), &error)),
        }
    }

    /// The outermost group.
    pub(super) fn root(&self) -> Result<Group, Error> {
        let group = self.file.as_group().map_err(|e| refusal(&self.path, "open the root group".into(), &e))?;
        Ok(Group { group, path: Arc::clone(&self.path) })
    }

    /// Closes the file, which flushes it to the system. All groups must be dropped.
    pub(super) fn close(self) -> Result<(), Error> {
        // Flushed by itself: a failure to write is an error here, in a close it leaves the file open inside HDF5.
        self.file.flush().map_err(|e| refusal(&self.path, "write".into(), &e))?;
        self.file.close().map_err(|e| refusal(&self.path, "close".into(), &e))
    }
}

impl Group {
    /// Creates a group inside.
    pub(super) fn create(&self, name: &str) -> Result<Self, Error> {
        let group = self.group.create_group_builder().obj_track_times(false).create(name);
        self.below(group, "create the group", name)
    }

    /// Opens a group inside.
    pub(super) fn open(&self, name: &str) -> Result<Self, Error> {
        self.below(self.group.group(name), "open the group", name)
    }

    /// Whether something of that name is inside.
    pub(super) fn has(&self, name: &str) -> bool {
        self.group.link_exists(name)
    }

    fn below(&self, group: hdf5::Result<hdf5::Group>, action: &str, name: &str) -> Result<Self, Error> {
        let group = group.map_err(|error| self.refusal(action, name, &error))?;
        Ok(Self { group, path: Arc::clone(&self.path) })
    }

    /// Writes an array; `name` may be a path, whose groups are created.
    pub(super) fn put_array(&self, name: &str, shape: &[usize], values: &[f32]) -> Result<(), Error> {
        let write = || {
            let array = self
                .group
                .new_dataset::<f32>()
                .obj_track_times(false)
                .create_intermediate_group(false)
                .shape(shape)
                .create(name)?;
            array.write_raw(values)
        };
        write().map_err(|error| self.refusal("write the array", name, &error))
    }

    /// Reads an array: shape and values.
    pub(super) fn array(&self, name: &str) -> Result<(Vec<usize>, Vec<f32>), Error> {
        let read = || {
            let array = self.group.dataset(name)?;
            Ok((array.get_shape()?, array.read_raw::<f32>()?))
        };
        read().map_err(|error| self.refusal("read the array", name, &error))
    }

    /// Writes a text as an attribute.
    pub(super) fn put_text(&self, name: &str, text: &str) -> Result<(), Error> {
        let write = || {
            let text = variable(text)?;
            self.group.new_attr::<VarLenUnicode>().create(name)?.write_scalar(&text)
        };
        write().map_err(|error| self.refusal("write the attribute", name, &error))
    }

    /// Reads a text attribute.
    pub(super) fn text(&self, name: &str) -> Result<String, Error> {
        let read = || utf8(&self.group.attr(name)?.read_scalar::<VarLenUnicode>()?);
        read().map_err(|error| self.refusal("read the attribute", name, &error))
    }

    /// Writes a list of texts as an attribute.
    pub(super) fn put_texts(&self, name: &str, texts: &[String]) -> Result<(), Error> {
        let write = || {
            let texts = texts.iter().map(|text| variable(text)).collect::<hdf5::Result<Vec<_>>>()?;
            self.put_list(name, &texts)
        };
        write().map_err(|error| self.refusal("write the attribute", name, &error))
    }

    /// Reads a list of texts.
    pub(super) fn texts(&self, name: &str) -> Result<Vec<String>, Error> {
        let read = || self.list::<VarLenUnicode>(name)?.iter().map(utf8).collect::<hdf5::Result<Vec<_>>>();
        read().map_err(|error| self.refusal("read the attribute", name, &error))
    }

    /// Writes a number as an attribute.
    pub(super) fn put_number<T: H5Type>(&self, name: &str, number: T) -> Result<(), Error> {
        let write = || self.group.new_attr::<T>().create(name)?.write_scalar(&number);
        write().map_err(|error| self.refusal("write the attribute", name, &error))
    }

    /// Reads a number.
    pub(super) fn number<T: H5Type>(&self, name: &str) -> Result<T, Error> {
        let read = || self.group.attr(name)?.read_scalar::<T>();
        read().map_err(|error| self.refusal("read the attribute", name, &error))
    }

    /// Writes a list of numbers as an attribute.
    pub(super) fn put_numbers<T: H5Type>(&self, name: &str, numbers: &[T]) -> Result<(), Error> {
        self.put_list(name, numbers).map_err(|error| self.refusal("write the attribute", name, &error))
    }

    /// Reads a list of numbers.
    pub(super) fn numbers<T: H5Type>(&self, name: &str) -> Result<Vec<T>, Error> {
        self.list(name).map_err(|error| self.refusal("read the attribute", name, &error))
    }

    /// Names of all attributes.
    pub(super) fn attribute_names(&self) -> Result<Vec<String>, Error> {
        self.group.attr_names().map_err(|error| self.refusal("list the attributes", "", &error))
    }

    fn put_list<T: H5Type>(&self, name: &str, list: &[T]) -> hdf5::Result<()> {
        self.group.new_attr::<T>().shape(list.len()).create(name)?.write_raw(list)
    }

    fn list<T: H5Type>(&self, name: &str) -> hdf5::Result<Vec<T>> {
        self.group.attr(name)?.read_raw()
    }

    fn refusal(&self, action: &str, name: &str, error: &hdf5::Error) -> Error {
        let group = self.group.name();
        let slash = if group.ends_with('/') { "" } else { "/" };
        refusal(&self.path, format!("{action} {group}{slash}{name}"), error)
    }
}

fn refusal(path: &Arc<PathBuf>, action: String, error: &hdf5::Error) -> Error {
    // The outermost and the innermost frame: what was tried, and the cause.
    let text = match error.stack() {
        Some(stack) => stack.description().to_string(),
        None => error.to_string(),
    };
    Error::Hdf5 { action, path: path.to_path_buf(), text }
}

/// A text as HDF5 stores it; one with a NUL in it is refused.
fn variable(text: &str) -> hdf5::Result<VarLenUnicode> {
    VarLenUnicode::from_str(text).map_err(|error| format!("text {text:?}: {error}").into())
}

/// A text out of a file, which may hold any bytes.
fn utf8(text: &VarLenUnicode) -> hdf5::Result<String> {
    let text = std::str::from_utf8(text.as_bytes()).map_err(|error| format!("no UTF-8: {error}"))?;
    Ok(text.to_string())
}
