//! Files that a command writes where its user says. A slip, such as `--sheet photos/*.png`, whose first photo becomes the sheet, must not
//! cost a file, so the name is looked at before any work.

use std::fs::{self, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::{folder_of, why};

use super::regular;
use super::safe_create::NewFile;

/// Bytes from its beginning by which a file is known.
const HEAD: u64 = 256;

/// What a file is to hold.
#[derive(Debug)]
pub struct Content {
    /// In words, as `a table of NumPy`.
    pub name: &'static str,
    /// Whether a file that begins so holds it.
    pub begins: fn(&[u8]) -> bool,
}

/// Whether a command that reads `inputs` may write `content` to `path`: its folder takes new files, and what may be there already is
/// of the same kind, and none of the inputs.
///
/// # Errors
/// If not, with the cure.
pub fn check(path: &Path, content: &Content, inputs: &[&Path]) -> Result<(), String> {
    if let Ok(there) = fs::metadata(path) {
        replaces(path, &there, content, inputs)?;
    }
    NewFile::beside(path).map(drop).map_err(|error| {
        let cure = match error.kind() {
            ErrorKind::NotFound => format!("; make it with `mkdir -p {}`", folder_of(path).display()),
            _ => "; name another file".into(),
        };
        format!("cannot write {}: {}{cure}", path.display(), why(path, &error))
    })
}

/// The same for a file that is there.
fn replaces(path: &Path, there: &Metadata, content: &Content, inputs: &[&Path]) -> Result<(), String> {
    let refuse = |why: &str| Err(format!("{} {why}; name another file", path.display()));
    let id = |file: &Metadata| (file.dev(), file.ino());
    if inputs.iter().any(|input| fs::metadata(input).is_ok_and(|input| id(&input) == id(there))) {
        return refuse("is one of the files that are read, and is not written over");
    }
    let mut head = Vec::new();
    let read = regular::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    match read {
        Err(error) => refuse(&format!("is there and cannot be looked at, so it is not written over: {error}")),
        // nothing is lost
        Ok(0) => Ok(()),
        Ok(_) if (content.begins)(&head) => Ok(()),
        Ok(_) => refuse(&format!("is there and is not {}, so it is not written over", content.name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: Content = Content { name: "a table", begins: |head| head.starts_with(b"image,") };

    #[test]
    fn only_a_file_of_the_same_kind_is_written_over() {
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
        assert!(
            refused("model.h5")
                .ends_with("model.h5 is there and is not a table, so it is not written over; name another file")
        );
        let own = checked("old.csv", &[&folder.join("./old.csv")]).unwrap_err();
        assert!(own.contains("old.csv is one of the files that are read"), "{own}");
        assert!(refused("").contains("it is a folder, no regular file"));
        let (cure, why) = (folder.join("no").display().to_string(), refused("no/new.csv"));
        assert!(
            why.contains("there is no folder") && why.ends_with(&format!("make it with `mkdir -p {cure}`")),
            "{why}"
        );
        assert!(refused("old.csv/new.csv").contains("is a file, no folder; name another file"));
        let mut left: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["empty", "model.h5", "old.csv"]);
        fs::remove_dir_all(folder).unwrap();
    }
}
