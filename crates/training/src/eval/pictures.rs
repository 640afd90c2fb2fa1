//! Expands command line arguments to picture files: names of files and directories, patterns, and `-` for standard input.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base::screen;
use base::text::printable;
use data_tools::raw;
use loaders::Limits;

use crate::error::Error;

/// An image to predict: a file, or a page of a TIFF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    pub path: PathBuf,
    /// The page to read, from 1. `None` if the file is one image.
    pub page: Option<u32>,
}

impl Picture {
    /// Returns the name for tables and messages: the path, followed by `#` and the page.
    pub fn name(&self) -> String {
        let path = self.path.to_string_lossy();
        self.page.map_or_else(|| path.to_string(), |page| format!("{path}#{page}"))
    }
}

/// Extensions of picture files, in lower case.
const ENDINGS: &[&str] = &["jpg", "jpeg", "png"];
/// Extensions for other image formats, which some models read.
const RAW_ENDINGS: &[&str] = &["tif", "tiff", "npy", "h5", "hdf5", "hdf", "nc", "nc4"];

/// Maximum length of a line in bytes. Linux allows paths up to 4,096 bytes.
const MAX_LINE: u64 = 1 << 16;

/// Expands each argument in `given` to picture files and keeps their order. A file stands for itself. A directory means
/// all pictures at any depth, sorted by name, with `raw` also TIFF, `.npy` and HDF5 files. A pattern such as
/// `photos/*.jpg` means all matching files. `-` means the names in `list`, which has a name per line. Returns an error
/// if a directory has no pictures, a pattern matches no file, the list is empty, or something cannot be read.
pub fn pictures(given: &[PathBuf], raw: bool, list: &mut dyn BufRead) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    for name in given {
        match name.to_str() {
            Some("-") => found.extend(read_names(list)?),
            _ if name.is_dir() => found.extend(in_folder(name, raw)?),
            Some(pattern) if !name.exists() && pattern.contains(['*', '?', '[']) => {
                found.extend(matching_files(pattern)?)
            }
            _ => found.push(name.clone()),
        }
    }
    Ok(found)
}

/// Returns an image for each file or, if `by_page` is true, for each page of a TIFF, without smaller copies and masks. If the pages of a
/// TIFF cannot be listed, it stays one image, so that reading it reports the problem.
pub fn images(files: Vec<PathBuf>, by_page: bool, limits: &Limits) -> Vec<Picture> {
    let whole = |path| Picture { path, page: None };
    if !by_page {
        return files.into_iter().map(whole).collect();
    }
    let mut found = Vec::new();
    for path in files {
        let pages = raw::load(&path).and_then(|file| raw::pages(&path, &file, limits));
        match pages {
            Ok(Some(pages)) if !pages.is_empty() => {
                found.extend(pages.into_iter().map(|page| Picture { path: path.clone(), page: Some(page) }));
            }
            _ => found.push(whole(path)),
        }
    }
    found
}

/// Reads names from standard input, one per line.
fn read_names(mut list: &mut dyn BufRead) -> Result<Vec<PathBuf>, Error> {
    let refuse = Error::file("read", Path::new("standard input"));
    let mut names = Vec::new();
    for number in 1.. {
        let mut line = Vec::new();
        let read = (&mut list).take(MAX_LINE).read_until(b'\n', &mut line).map_err(refuse)?;
        if read == 0 {
            break;
        }
        if read as u64 == MAX_LINE {
            return Err(Error::Usage(format!(
                "-: line {number} of standard input has {MAX_LINE} bytes or more; expected the name of one picture per line"
            )));
        }
        let end = line.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
        line.truncate(end);
        if !line.is_empty() {
            names.push(PathBuf::from(OsString::from_vec(line)));
        }
    }
    match names.is_empty() {
        true => Err(Error::Usage(
            "-: no name of a picture on standard input; give one name per line, for example from `find photos -name '*.jpg'`".into(),
        )),
        false => Ok(names),
    }
}

fn in_folder(folder: &Path, raw: bool) -> Result<Vec<PathBuf>, Error> {
    let endings = [ENDINGS, if raw { RAW_ENDINGS } else { &[] }].concat();
    let mut found = walk(folder, |path| has_ending(path, &endings))?;
    // sorted by name, so that the result does not depend on the order in which folders were read
    found.sort();
    match found.is_empty() {
        true => Err(Error::Usage(format!(
            "{}: no picture in this folder: no file ends in .{}",
            folder.display(),
            endings.join(", .")
        ))),
        false => Ok(found),
    }
}

/// Returns the wanted files below a folder, in any order, without hidden files and folders. Links may form a cycle, so each folder is read
/// only once, identified by its real path.
fn walk(folder: &Path, is_wanted: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>, Error> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    let (mut folders, mut links) = (vec![folder.to_path_buf()], VecDeque::new());
    while let Some(folder) = folders.pop().or_else(|| links.pop_front()) {
        let refuse = Error::file("read the folder", &folder);
        let meta = fs::metadata(&folder).map_err(refuse)?;
        if !seen.insert((meta.dev(), meta.ino())) {
            let name = folder.to_string_lossy();
            screen::say(&format!(
                "note: {} leads to a folder that was already read, so it is skipped",
                printable(&name)
            ));
            continue;
        }
        for entry in fs::read_dir(&folder).map_err(refuse)? {
            let path = entry.map_err(refuse)?.path();
            let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
            match () {
                () if hidden => {}
                () if path.is_dir() && path.is_symlink() => links.push_back(path),
                () if path.is_dir() => folders.push(path),
                () if is_wanted(&path) => found.push(path),
                () => {}
            }
        }
    }
    Ok(found)
}

fn has_ending(path: &Path, endings: &[&str]) -> bool {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    ending.is_some_and(|ending| endings.contains(&ending.as_str()))
}

/// Options for matching as in a shell: `*` does not match a leading dot or `/`.
fn as_a_shell() -> glob::MatchOptions {
    glob::MatchOptions {
        require_literal_leading_dot: true,
        require_literal_separator: true,
        ..glob::MatchOptions::new()
    }
}

fn matching_files(pattern: &str) -> Result<Vec<PathBuf>, Error> {
    let wrong = |error| Error::Usage(format!("{pattern}: not a pattern: {error}"));
    let compiled = glob::Pattern::new(pattern).map_err(wrong)?;
    let mut found = Vec::new();
    if pattern.contains("**") {
        // `**` in the `glob` crate follows links, so two links that form cycles would keep it busy forever
        let fixed = |part: &std::path::Component<'_>| !part.as_os_str().to_string_lossy().contains(['*', '?', '[']);
        let base: PathBuf = Path::new(pattern).components().take_while(fixed).collect();
        let here = base.as_os_str().is_empty();
        for path in walk(if here { Path::new(".") } else { &base }, |_| true)? {
            let path = if here { path.strip_prefix(".").map_or(path.clone(), Path::to_path_buf) } else { path };
            found.extend(compiled.matches_path_with(&path, as_a_shell()).then_some(path));
        }
        found.sort();
    } else {
        for path in glob::glob_with(pattern, as_a_shell()).map_err(wrong)? {
            let path =
                path.map_err(|error| Error::File { action: "read", path: error.path().into(), source: error.into() })?;
            found.extend(path.is_file().then_some(path));
        }
    }
    match found.is_empty() {
        true => Err(Error::Usage(format!("{pattern}: no file matches this pattern"))),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use support::mentions;

    fn found(given: &[&str], list: &str) -> Result<Vec<String>, String> {
        let given: Vec<PathBuf> = given.iter().map(PathBuf::from).collect();
        let found = pictures(&given, false, &mut list.as_bytes()).map_err(|error| error.to_string())?;
        Ok(found.iter().map(|path| path.display().to_string()).collect())
    }

    #[test]
    fn files_folders_patterns_and_lists() {
        let folder = std::env::temp_dir().join(format!("trireme-pictures-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("b/.hidden")).unwrap();
        fs::create_dir_all(folder.join("empty")).unwrap();
        for name in ["c.PNG", "a.jpg", "b/d.jpeg", "b/.hidden/e.jpg", ".f.jpg", "notes.txt", "g[1].png"] {
            fs::write(folder.join(name), "").unwrap();
        }
        let at = |name: &str| folder.join(name).display().to_string();
        let all = ["a.jpg", "b/d.jpeg", "c.PNG", "g[1].png"].map(at).to_vec();
        assert_eq!(found(&[&at("")], ""), Ok(all));
        assert_eq!(found(&[&at("*.jpg"), &at("b/?.jpeg")], ""), Ok(vec![at("a.jpg"), at("b/d.jpeg")]));
        // a name of an existing file is never a pattern, and a missing file is reported later
        assert_eq!(found(&[&at("g[1].png"), "absent.png"], ""), Ok(vec![at("g[1].png"), "absent.png".into()]));
        assert_eq!(
            found(&["-", "z.png"], "x y.jpg\r\n\nw.png"),
            Ok(["x y.jpg", "w.png", "z.png"].map(String::from).to_vec())
        );
        mentions(found(&[&at("empty")], "").unwrap_err(), &[&at("empty"), ".jpg, .jpeg, .png"]);
        mentions(found(&[&at("*.gif")], "").unwrap_err(), &[&at("*.gif"), "no file matches"]);
        mentions(found(&[&at("[.gif")], "").unwrap_err(), &[&at("[.gif"), "not a pattern"]);
        let endless = "x".repeat(MAX_LINE as usize + 1);
        let error = found(&["-"], &format!("a.png\n\n{endless}")).unwrap_err();
        mentions(error, &["line 3", "standard input", "65536 bytes"]);
        mentions(found(&["-"], "\n").unwrap_err(), &["-: no name", "standard input"]);
        std::os::unix::fs::symlink(&folder, folder.join("b/circle")).unwrap();
        let once = ["a.jpg", "b/d.jpeg", "c.PNG", "g[1].png"].map(at).to_vec();
        assert_eq!(found(&[&at("")], ""), Ok(once.clone()));
        // this link is sorted before the folder that it points to
        std::os::unix::fs::symlink("b", folder.join("aa")).unwrap();
        assert_eq!(found(&[&at("")], ""), Ok(once));
        assert_eq!(found(&[&at("**/*.jpeg")], "").unwrap().len(), 1);
        fs::remove_dir_all(folder).unwrap();
    }
}
