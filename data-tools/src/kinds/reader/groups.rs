//! Images that lie together: one folder, or one tar archive; and all groups in a folder of folders or of archives, or in an
//! archive of archives.

use super::folders::{Entry, Images, entries};
use super::listing::{Listing, Place};
use super::tar_index::{self, Member};
use crate::error::Error;
use crate::pool;
use loaders::regular;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Images that lie together.
pub(crate) struct Group {
    /// Name of the folder, or of the archive without its ending.
    pub name: String,
    pub members: Vec<Member>,
    place: Place,
}

/// The groups in the folder or archive at `path`, in order of their names, read on `jobs` threads.
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
        let members = if name.ends_with(".tar") { list(&open(&path)?, &path)? } else { Vec::new() };
        // There may be more archives than a process can hold open.
        Ok(Group { name: stem(name), members, place: Place::Archive { path, file: None } })
    })
}

/// The inner archives of an archive.
fn read_archive(path: &Path, jobs: usize) -> Result<Vec<Group>, Error> {
    let file = Arc::new(open(path)?);
    let outer = list(&file, path)?;
    let mut inner: Vec<&Member> = outer.iter().filter(|m| m.name.ends_with(".tar")).collect();
    inner.sort_by(|a, b| a.name.cmp(&b.name));
    pool::run(inner.len(), jobs, |i| {
        let path = path.join(&inner[i].name);
        let members = tar_index::list(&file, &path, inner[i].range.clone())?;
        Ok(Group { name: stem(&inner[i].name), members, place: Place::Archive { path, file: Some(file.clone()) } })
    })
}

fn open(path: &Path) -> Result<File, Error> {
    regular::open(path).map_err(|e| Error::io("open", path, e))
}

/// The files of a whole archive.
fn list(file: &File, path: &Path) -> Result<Vec<Member>, Error> {
    let length = file.metadata().map_err(|e| Error::io("read", path, e))?.len();
    tar_index::list(file, path, 0..length)
}

fn stem(name: &str) -> String {
    name.trim_end_matches(".tar").to_string()
}

impl Group {
    /// The images in the folder or archive at `path`.
    pub fn read(path: &Path, name: String) -> Result<Self, Error> {
        if path.is_dir() { Self::folder(path, name) } else { Self::archive(path, name) }
    }

    fn folder(path: &Path, name: String) -> Result<Self, Error> {
        let files = Images::below(path, Path::new(""))?.files;
        let members = files.into_iter().map(|name| Member { name, range: 0..0 }).collect();
        Ok(Group { name, members, place: Place::Folder(path.to_path_buf()) })
    }

    fn archive(path: &Path, name: String) -> Result<Self, Error> {
        let file = open(path)?;
        let members = list(&file, path)?;
        Ok(Group { name, members, place: Place::Archive { path: path.to_path_buf(), file: Some(Arc::new(file)) } })
    }

    /// Adds the members that have a label, by name: so archives and folders give the same data set.
    pub fn add_to(self, listing: &mut Listing, label: impl Fn(&str) -> Option<u32>) {
        listing.place(self.place);
        let mut members = self.members;
        members.sort_by(|a, b| a.name.cmp(&b.name));
        for Member { name, range } in &members {
            if let Some(label) = label(name) {
                listing.push(name, label, (range.start, range.end - range.start));
            }
        }
    }
}
