//! The source files of one package, read.

use std::fs;
use std::path::Path;

use crate::names::Names;
use crate::syntax::{File, Mention, Module, parse};

/// Each package's folder of sources, and its name in paths.
const FOLDERS: &[(&str, &str)] = &[("src/", "trireme"), ("loaders/src/", "loaders"), ("data-tools/src/", "data_tools")];

/// See the module.
pub struct Package {
    /// As a path names it.
    pub name: String,
    /// Sorted by path.
    pub files: Vec<File>,
    names: Names,
}

impl Package {
    /// Of files as (path from the root of the repository, text).
    pub fn new(name: &str, mut sources: Vec<(String, String)>) -> Self {
        sources.sort();
        let mut files: Vec<File> = sources.iter().map(|(path, text)| parse(path, text)).collect();
        let tests: Vec<Module> = files.iter().flat_map(|file| file.test_modules.clone()).collect();
        for file in files.iter_mut().filter(|file| tests.iter().any(|test| file.module.starts_with(test))) {
            file.mentions.iter_mut().for_each(|mention| mention.test = true);
        }
        Self { name: name.into(), names: Names::new(name, &files), files }
    }

    /// All packages of this repository.
    pub fn all() -> Vec<Self> {
        FOLDERS.iter().map(|(folder, name)| Self::new(name, read(folder))).collect()
    }

    /// The files that define what a mention names.
    pub fn definers(&self, mention: &Mention) -> impl Iterator<Item = &File> {
        self.names.files(mention).into_iter().map(|number| &self.files[number])
    }
}

fn read(folder: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Vec::new();
    let mut open = vec![root.join(folder)];
    while let Some(folder) = open.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                sources.push((path.strip_prefix(root).unwrap().display().to_string(), text));
            }
        }
    }
    assert!(sources.len() > 20, "only {} files in {folder}", sources.len());
    sources
}
