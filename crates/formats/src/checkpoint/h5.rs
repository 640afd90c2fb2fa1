//! Writes groups, attributes and arrays of HDF5 files. In the module `checkpoint`, only this file and `foreign` use
//! libhdf5, and nothing here reads a file with it. `model_file` and `state_file` define which groups a file has.
//! `reader` reads the files.
//!
//! Files contain no times and no uninitialised bytes, so that equal content gives equal files.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use half::f16;
use hdf5::H5Type;
use hdf5::file::LibraryVersion;
use hdf5::types::VarLenUnicode;
use hdf5_metno as hdf5;
use loaders::safe_create::NewFile;

use super::error::Error;

/// Returns the version of libhdf5.
pub fn library() -> String {
    let (major, minor, patch) = hdf5::library_version();
    format!("HDF5 {major}.{minor}.{patch}")
}

pub(super) struct H5File {
    file: hdf5::File,
    path: Arc<PathBuf>,
}

pub(super) struct Group {
    group: hdf5::Group,
    path: Arc<PathBuf>,
}

impl H5File {
    /// Creates a file. An existing file is overwritten.
    pub(super) fn create(path: &Path) -> Result<Self, Error> {
        // Request exactly the format of HDF5 1.8, because `reader` supports only this format and later libraries may
        // write others by default. The format before 1.8 limits attributes to 64 KB.
        let file = hdf5::File::with_options()
            .with_fapl(|access| access.libver_bounds(LibraryVersion::V18, LibraryVersion::V18))
            .with_fcpl(|create| create.obj_track_times(false))
            .create(path);
        let path = Arc::new(path.to_path_buf());
        match file {
            Ok(file) => Ok(Self { file, path }),
            Err(error) => Err(refusal(&path, "create a file".into(), &error)),
        }
    }

    pub(super) fn root(&self) -> Result<Group, Error> {
        let group = self.file.as_group().map_err(|e| refusal(&self.path, "open the root group".into(), &e))?;
        Ok(Group { group, path: Arc::clone(&self.path) })
    }

    /// Writes the buffers of HDF5 to the operating system.
    fn flush(&self) -> Result<(), Error> {
        self.file.flush().map_err(|e| refusal(&self.path, "write".into(), &e))
    }

    /// Closes the file after flushing it. All groups must have been dropped.
    pub(super) fn close(self) -> Result<(), Error> {
        // Flush separately, because an error is reported here. If writing fails in `close`, the file stays open inside
        // HDF5.
        self.flush()?;
        self.file.close().map_err(|e| refusal(&self.path, "close".into(), &e))
    }
}

/// Writes an HDF5 file into `new`. `fill` gets the root group.
pub(super) fn write(new: &mut NewFile, fill: impl FnOnce(&Group) -> Result<(), Error>) -> Result<(), Error> {
    let file = H5File::create(&new.name())?;
    let written = file.root().and_then(|root| fill(&root)).and_then(|()| file.flush());
    if written.is_err() {
        // If closing cannot write the buffered data, HDF5 keeps the file and its memory forever. The file is discarded
        // anyway, and truncating it makes room for that data.
        let _ = new.file().and_then(|file| file.set_len(0));
    }
    written.and(file.close())
}

impl Group {
    pub(super) fn create(&self, name: &str) -> Result<Self, Error> {
        let group = self.group.create_group_builder().obj_track_times(false).create(name);
        let group = group.map_err(|error| self.refusal("create the group", name, &error))?;
        Ok(Self { group, path: Arc::clone(&self.path) })
    }

    /// Writes an array as f16, rounded to the nearest value.
    pub(super) fn put_half_array(&self, name: &str, shape: &[usize], values: &[f32]) -> Result<(), Error> {
        let halves: Vec<f16> = values.iter().map(|value| f16::from_f32(*value)).collect();
        self.put_array(name, shape, &halves)
    }

    pub(super) fn put_array<T: H5Type>(&self, name: &str, shape: &[usize], values: &[T]) -> Result<(), Error> {
        let write = || {
            let array = self
                .group
                .new_dataset::<T>()
                .obj_track_times(false)
                .create_intermediate_group(false)
                .shape(shape)
                .create(name)?;
            array.write_raw(values)
        };
        write().map_err(|error| self.refusal("write the array", name, &error))
    }

    pub(super) fn put_text(&self, name: &str, text: &str) -> Result<(), Error> {
        let write = |text| self.group.new_attr::<VarLenUnicode>().create(name)?.write_scalar(&text);
        self.check_attribute(name, variable(text).and_then(write))
    }

    pub(super) fn put_texts(&self, name: &str, texts: &[String]) -> Result<(), Error> {
        let texts = texts.iter().map(|text| variable(text)).collect::<hdf5::Result<Vec<_>>>();
        self.check_attribute(name, texts.and_then(|texts| self.put_list(name, &texts)))
    }

    pub(super) fn put_number<T: H5Type>(&self, name: &str, number: T) -> Result<(), Error> {
        let attribute = self.group.new_attr::<T>().create(name);
        self.check_attribute(name, attribute.and_then(|attribute| attribute.write_scalar(&number)))
    }

    pub(super) fn put_numbers<T: H5Type>(&self, name: &str, numbers: &[T]) -> Result<(), Error> {
        self.check_attribute(name, self.put_list(name, numbers))
    }

    fn check_attribute(&self, name: &str, written: hdf5::Result<()>) -> Result<(), Error> {
        written.map_err(|error| self.refusal("write the attribute", name, &error))
    }

    fn put_list<T: H5Type>(&self, name: &str, list: &[T]) -> hdf5::Result<()> {
        self.group.new_attr::<T>().shape(list.len()).create(name)?.write_raw(list)
    }

    fn refusal(&self, action: &str, name: &str, error: &hdf5::Error) -> Error {
        let group = self.group.name();
        let slash = if group.ends_with('/') { "" } else { "/" };
        refusal(&self.path, format!("{action} {group}{slash}{name}"), error)
    }
}

fn refusal(path: &Arc<PathBuf>, action: String, error: &hdf5::Error) -> Error {
    // The description has the outermost and the innermost frame: what was attempted, and the cause.
    let text = match error.stack() {
        Some(stack) => stack.description().to_string(),
        None => error.to_string(),
    };
    Error::Hdf5 { action, path: path.to_path_buf(), text }
}

/// Converts a string for HDF5. Returns an error if it contains a NUL.
fn variable(text: &str) -> hdf5::Result<VarLenUnicode> {
    VarLenUnicode::from_str(text).map_err(|error| format!("text {text:?}: {error}").into())
}
