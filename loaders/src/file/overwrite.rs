//! Checks the paths of output files before any work starts, so that a mistake does not destroy a file. For example,
//! with `--sheet photos/*.png` the shell passes the first photo as the path of the sheet.

use std::fs::{self, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use base::text::with_advice;

use crate::error::{folder_of, why};

use super::regular;
use super::safe_create::NewFile;

/// Number of bytes that are read from the start of an existing file to identify its type.
const HEAD: u64 = 256;

/// The type of content that a file should have.
#[derive(Debug)]
pub struct Content {
    /// The type's name in messages, with an article, for example `a NumPy array (.npy)`.
    pub name: &'static str,
    /// Returns true if a file that starts with these bytes has this type.
    pub begins: fn(&[u8]) -> bool,
}

/// Checks that a command which reads `inputs` may write `content` to `path`. The directory must allow new files. An
/// existing file must be empty or have the same type, and must not be one of the inputs.
///
/// # Errors
///
/// Returns a message that says what to do.
pub fn check(path: &Path, content: &Content, inputs: &[&Path]) -> Result<(), String> {
    if let Ok(there) = fs::metadata(path) {
        check_existing(path, &there, content, inputs)?;
    }
    NewFile::beside(path).map(drop).map_err(|error| {
        let cure = match error.kind() {
            ErrorKind::NotFound => format!("make it with `mkdir -p {}`", folder_of(path).display()),
            _ => "choose another name".into(),
        };
        format!("cannot write {}: {}", path.display(), with_advice(&why(path, &error), &cure))
    })
}

/// Makes the checks of [`check`] that apply if `path` already exists.
fn check_existing(path: &Path, there: &Metadata, content: &Content, inputs: &[&Path]) -> Result<(), String> {
    let refuse = |why: &str| Err(format!("{} {why}; choose another name", path.display()));
    let id = |file: &Metadata| (file.dev(), file.ino());
    if inputs.iter().any(|input| fs::metadata(input).is_ok_and(|input| id(&input) == id(there))) {
        return refuse("is one of the input files, so it is not overwritten");
    }
    if there.is_dir() {
        return Err(format!("{} is a folder; choose the name of a file", path.display()));
    }
    let mut head = Vec::new();
    let read = regular::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    match read {
        Err(error) => refuse(&format!("exists but cannot be read, so it is not overwritten: {error}")),
        // An empty file contains nothing that could be lost.
        Ok(0) => Ok(()),
        Ok(_) if (content.begins)(&head) => Ok(()),
        Ok(_) => refuse(&format!("exists and is not {}, so it is not overwritten", content.name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mentions::assert_mentions;

    const TABLE: Content = Content { name: "a table", begins: |head| head.starts_with(b"image,") };

    #[test]
    fn only_a_file_of_the_same_kind_is_overwritten() {
        let folder = std::env::temp_dir().join(format!("loaders-overwrite-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in [("old.csv", "image,label\n"), ("model.h5", "\u{89}HDF"), ("empty", "")] {
            fs::write(folder.join(name), text).unwrap();
        }
        let checked = |name: &str, inputs: &[&Path]| check(&folder.join(name), &TABLE, inputs);
        let refused = |name: &str| checked(name, &[]).unwrap_err();
        for name in ["new.csv", "old.csv", "empty"] {
            assert_eq!(checked(name, &[&folder.join("model.h5"), &folder]), Ok(()), "{name}");
        }
        let path = |name: &str| folder.join(name).display().to_string();
        assert_mentions(&refused("model.h5"), &[&path("model.h5"), "not a table"]);
        let own = checked("old.csv", &[&folder.join("./old.csv")]).unwrap_err();
        assert_mentions(&own, &[&path("old.csv"), "input files"]);
        assert_mentions(&refused(""), &[&path(""), "is a folder"]);
        assert_mentions(&refused("no/new.csv"), &[&path("no/new.csv"), &format!("mkdir -p {}", path("no"))]);
        assert_mentions(&refused("old.csv/new.csv"), &[&path("old.csv/new.csv"), "a file", "not a folder"]);
        let mut left: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["empty", "model.h5", "old.csv"]);
        fs::remove_dir_all(folder).unwrap();
    }
}
