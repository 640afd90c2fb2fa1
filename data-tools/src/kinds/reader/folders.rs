//! Lists the entries in image folders, and the images at any depth. Ignores names that begin with a dot and the `__MACOSX` folder, which
//! macOS adds to ZIP archives.

use crate::error::Error;
use loaders::stall::during;
use std::fs;
use std::path::Path;

/// Endings of image files, in lower case.
const ENDINGS: [&str; 8] = ["jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff"];
/// The endings, for messages.
pub(crate) const ENDING_NAMES: &str = ".jpg, .jpeg, .png, .webp, .bmp, .gif, .tif or .tiff";
/// The deepest nesting of folders: links can make a circle.
const DEPTH: usize = 32;

/// An entry of a folder.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub name: String,
    /// True for a folder, and for a link to one.
    pub is_dir: bool,
}

/// A folder's entries, sorted by name.
pub(crate) fn entries(dir: &Path) -> Result<Vec<Entry>, Error> {
    during("listing", dir, || listed(dir))
}

fn listed(dir: &Path) -> Result<Vec<Entry>, Error> {
    let failed = |e| Error::io("read", dir, e);
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().into_string() else {
            return Err(Error::input(&entry.path(), "its name is not UTF-8; rename it"));
        };
        // the folder that macOS adds to ZIP archives holds no images
        if name.starts_with('.') || name == "__MACOSX" {
            continue;
        }
        let kind = entry.file_type().map_err(failed)?;
        // A link counts as its target; a dangling one counts as a file, and reading it will report the error.
        let is_dir = if kind.is_symlink() { entry.path().is_dir() } else { kind.is_dir() };
        found.push(Entry { name, is_dir });
    }
    found.sort();
    Ok(found)
}

/// Names of the folders in `dir`, sorted.
pub(crate) fn folders(dir: &Path) -> Result<Vec<String>, Error> {
    Ok(entries(dir)?.into_iter().filter(|entry| entry.is_dir).map(|entry| entry.name).collect())
}

/// Whether a file is an image by the ending of its name.
pub(crate) fn is_image(name: &str) -> bool {
    let ending = Path::new(name).extension().and_then(|e| e.to_str()).map(str::to_lowercase);
    ending.is_some_and(|e| ENDINGS.contains(&e.as_str()))
}

/// The image files below a folder.
#[derive(Debug, Default)]
pub(crate) struct Images {
    /// Their paths from the root on, in order of their names.
    pub files: Vec<String>,
    /// Number of other files.
    pub other: u64,
}

impl Images {
    /// All image files below the folder `relative` of `root`.
    pub fn below(root: &Path, relative: &Path) -> Result<Self, Error> {
        let mut images = Images::default();
        images.add(root, relative, 0)?;
        Ok(images)
    }

    fn add(&mut self, root: &Path, relative: &Path, depth: usize) -> Result<(), Error> {
        let dir = root.join(relative);
        if depth > DEPTH {
            return Err(Error::input(&dir, format!("more than {DEPTH} folders deep; does a link lead back?")));
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
