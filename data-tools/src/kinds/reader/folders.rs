//! Lists image folders and archives of images. Ignores names that begin with a dot and the `__MACOSX` folder, which macOS adds to ZIP
//! archives.

use std::path::Path;
use std::sync::Arc;

use super::archive::{self, TarMember};
use super::files::{Listing, Place};
use super::input::open_sized;
use crate::dir::{Entry, PICTURES, entries, has_ending};
use crate::error::Error;
use crate::pool;
use crate::raw::is_hdf5;

/// The extensions of images, for messages.
pub(crate) const ENDING_NAMES: &str =
    ".jpg, .jpeg, .png, .webp, .bmp, .gif, .tif, .tiff, .npy, .h5, .hdf5, .hdf, .nc or .nc4";
/// The limit for nested folders, because links can form a cycle.
const DEPTH: usize = 32;

/// Returns true if the file name has an image extension, for a picture or an array.
pub(crate) fn is_image(name: &str) -> bool {
    is_picture(name) || has_ending(Path::new(name), &["npy"]) || is_hdf5(Path::new(name))
}

/// Returns true if the file name has a picture extension.
pub(crate) fn is_picture(name: &str) -> bool {
    has_ending(Path::new(name), &PICTURES)
}

/// The image files in a folder and its subfolders.
#[derive(Debug, Default)]
pub(crate) struct Images {
    /// Paths relative to the root, sorted by name.
    pub files: Vec<String>,
    /// Number of files that are not images.
    pub other: u64,
}

impl Images {
    /// Lists all image files below the folder `relative` of `root`.
    pub fn below(root: &Path, relative: &Path) -> Result<Self, Error> {
        let mut images = Images::default();
        images.add(root, relative, 0)?;
        Ok(images)
    }

    fn add(&mut self, root: &Path, relative: &Path, depth: usize) -> Result<(), Error> {
        let dir = root.join(relative);
        if depth > DEPTH {
            return Err(Error::input(
                &dir,
                format!("folders are nested more than {DEPTH} levels deep; do links form a cycle?"),
            ));
        }
        for Entry { name, is_dir } in entries(&dir)? {
            let path = relative.join(&name);
            if is_dir {
                self.add(root, &path, depth + 1)?;
            } else if is_image(&name) {
                self.files.push(path.to_string_lossy().into_owned());
            } else {
                self.other += 1;
            }
        }
        Ok(())
    }
}

// Groups of images. Each folder or tar archive is a group. Groups are found in a folder of folders or archives, or in
// an archive of archives.

/// The images of one folder or archive.
pub(crate) struct Group {
    /// Name of the folder, or of the archive without its extension.
    pub name: String,
    pub members: Vec<TarMember>,
    place: Place,
}

/// Lists the groups in the folder or archive at `path`, sorted by name, using `jobs` threads.
pub(crate) fn read(path: &Path, jobs: usize) -> Result<Vec<Group>, Error> {
    if path.is_file() {
        return read_archive(path, jobs);
    }
    let entries = entries(path)?;
    pool::run(entries.len(), jobs, |i| {
        let Entry { name, is_dir } = &entries[i];
        let path = path.join(name);
        if *is_dir {
            return Group::folder(&path, name.clone());
        }
        let members = if name.ends_with(".tar") { Group::archive(&path, String::new())?.members } else { Vec::new() };
        // Do not keep archives open. There may be more than a process can open.
        Ok(Group { name: stem(name), members, place: Place::Archive { path, file: None } })
    })
}

/// Lists the inner archives of an archive.
fn read_archive(path: &Path, jobs: usize) -> Result<Vec<Group>, Error> {
    let (file, length) = open_sized(path)?;
    let file = Arc::new(file);
    let outer = archive::list(&file, path, 0..length)?;
    let mut inner: Vec<&TarMember> = outer.iter().filter(|m| m.name.ends_with(".tar")).collect();
    inner.sort_by(|a, b| a.name.cmp(&b.name));
    pool::run(inner.len(), jobs, |i| {
        let path = path.join(&inner[i].name);
        let members = archive::list(&file, &path, inner[i].range.clone())?;
        Ok(Group { name: stem(&inner[i].name), members, place: Place::Archive { path, file: Some(file.clone()) } })
    })
}

fn stem(name: &str) -> String {
    name.trim_end_matches(".tar").to_string()
}

impl Group {
    /// Lists the images in the folder or archive at `path`.
    pub fn read(path: &Path, name: String) -> Result<Self, Error> {
        if path.is_dir() { Self::folder(path, name) } else { Self::archive(path, name) }
    }

    fn folder(path: &Path, name: String) -> Result<Self, Error> {
        let files = Images::below(path, Path::new(""))?.files;
        let members = files.into_iter().map(|name| TarMember { name, range: 0..0 }).collect();
        Ok(Group { name, members, place: Place::Folder(path.to_path_buf()) })
    }

    fn archive(path: &Path, name: String) -> Result<Self, Error> {
        let (file, length) = open_sized(path)?;
        let members = archive::list(&file, path, 0..length)?;
        Ok(Group { name, members, place: Place::Archive { path: path.to_path_buf(), file: Some(Arc::new(file)) } })
    }

    /// Adds the members for which `label` returns a class to `listing`, sorted by name, so that archives and folders give
    /// the same data set.
    pub fn add_to(self, listing: &mut Listing, label: impl Fn(&str) -> Option<u32>) {
        listing.place(self.place);
        let mut members = self.members;
        members.sort_by(|a, b| a.name.cmp(&b.name));
        for TarMember { name, range } in &members {
            if let Some(label) = label(name) {
                listing.push(name, label, (range.start, range.end - range.start));
            }
        }
    }
}
