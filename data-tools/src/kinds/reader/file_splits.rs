//! Finds a source's files, in one folder or in folders named after splits, and assigns a split to each file.

use super::folders::{Entry, entries};
use crate::dir;
use crate::error::Error;
use crate::options::ConvertOptions;
use crate::splits::{self, Assign, Names, Unknown};
use std::path::{Path, PathBuf};

/// A search for a source's files.
pub(crate) struct FileSplits<'a> {
    pub src: &'a Path,
    /// The file extension with its dot.
    pub ending: &'a str,
    /// Subfolders that are searched as if their files were in SRC.
    pub plain_folders: &'a [&'a str],
    pub options: &'a ConvertOptions,
}

impl FileSplits<'_> {
    /// Returns the files and their splits, sorted by split and path. `hint` tells the user what SRC should be.
    ///
    /// # Errors
    /// Returns an error if a folder cannot be read, or if only some files have a known split.
    pub(crate) fn find(&self, hint: &str) -> Result<Vec<(String, PathBuf)>, Error> {
        let mut files = Vec::new();
        if self.src.is_file() {
            let stem = self.src.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            files.push((splits::series(&stem).to_string(), self.src.to_path_buf()));
        } else {
            dir::check(self.src, hint)?;
            self.add(self.src, None, &mut files)?;
            let mut folders = Vec::new();
            for Entry { name, .. } in entries(self.src)?.into_iter().filter(|entry| entry.is_dir) {
                match self.plain_folders.contains(&name.as_str()) {
                    true => self.add(&self.src.join(&name), None, &mut files)?,
                    false => folders.push(name),
                }
            }
            // other folders are searched only if some folder or file name is a split
            let is_mapped = |name: &str| self.options.split_map.iter().any(|(from, _)| from.eq_ignore_ascii_case(name));
            let has_splits = folders.iter().map(String::as_str).chain(files.iter().map(|(name, _)| name.as_str()));
            if has_splits.into_iter().any(|name| splits::mentions_split(name) || is_mapped(name)) {
                for name in &folders {
                    self.add(&self.src.join(name), Some(name), &mut files)?;
                }
            }
        }
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        let map = &self.options.split_map;
        let assign = Assign { src: self.src, map, names: Names::Loose, unknown: Unknown::Train };
        let assigned = if files.is_empty() { Vec::new() } else { assign.splits(&names)? };
        let found = assigned.into_iter().zip(files).filter_map(|(split, (_, path))| Some((split?, path)));
        let mut found: Vec<(String, PathBuf)> = found.collect();
        found.sort_by(|a, b| (splits::rank(&a.0), &a.0, &a.1).cmp(&(splits::rank(&b.0), &b.0, &b.1)));
        Ok(found)
    }

    /// Adds the files in a folder. Each entry keeps the name that determines the split: the folder's name if set, otherwise the file's.
    fn add(&self, dir: &Path, folder: Option<&str>, files: &mut Vec<(String, PathBuf)>) -> Result<(), Error> {
        for Entry { name, is_dir } in entries(dir)? {
            if let Some(stem) = name.strip_suffix(self.ending).filter(|_| !is_dir) {
                files.push((folder.unwrap_or_else(|| splits::series(stem)).to_string(), dir.join(&name)));
            }
        }
        Ok(())
    }
}
