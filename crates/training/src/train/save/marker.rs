//! OUT/.trireme-run: the file by which a folder proves that it is the output of a run, with the run's id. Without it, or a checkpoint,
//! nothing in a folder that is not empty is touched.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use formats::checkpoint;
use loaders::safe_create;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// What the file holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// 128 random bits in hexadecimal, drawn when the run first took OUT.
    pub run: String,
}

/// Longer than any marker.
const MOST: u64 = 4096;

fn path(out: &Path) -> PathBuf {
    out.join(".trireme-run")
}

/// Whether a folder seems to be the output of a run; [`read`] proves it.
pub fn is_marked(out: &Path) -> bool {
    path(out).is_file()
}

/// The marker of the run whose output `out` is; none if there is none.
///
/// # Errors
/// For a file of that name that is something else.
pub fn read(out: &Path) -> Result<Option<Marker>, Error> {
    let path = path(out);
    let refuse = |source| Error::File { action: "read", path: path.clone(), source };
    // a folder that is not there yet has none
    if fs::symlink_metadata(&path).is_err() {
        return Ok(None);
    }
    let Some(file) = safe_create::open_own(&path).map_err(refuse)? else { return Ok(None) };
    let mut text = String::new();
    file.take(MOST).read_to_string(&mut text).map_err(refuse)?;
    let odd =
        |error: serde_json::Error| refuse(io::Error::other(format!("it is no marker of a run ({error}); remove it")));
    serde_json::from_str(&text).map(Some).map_err(odd)
}

/// Marks `out` as the output of a run, unless it is already.
pub fn set(out: &Path) -> Result<Marker, Error> {
    if let Some(marker) = read(out)? {
        return Ok(marker);
    }
    let marker = Marker { run: [safe_create::random_digits(), safe_create::random_digits()].concat() };
    let text = serde_json::to_string(&marker).map_err(|e| Error::Failed(format!("the marker of a run: {e}")))?;
    checkpoint::write_text(&path(out), &format!("{text}\n"))?;
    Ok(marker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_marked_once() {
        let out = std::env::temp_dir().join(format!("trireme-marker-{}", std::process::id()));
        assert_eq!(read(&out).unwrap(), None);
        fs::create_dir_all(&out).unwrap();
        assert_eq!(read(&out).unwrap(), None);
        let marker = set(&out).unwrap();
        assert_eq!(marker.run.len(), 32);
        assert_eq!((set(&out).unwrap(), read(&out).unwrap()), (marker.clone(), Some(marker)));
        fs::write(path(&out), "mine").unwrap();
        assert!(read(&out).unwrap_err().to_string().contains("no marker of a run"));
        fs::remove_file(path(&out)).unwrap();
        std::os::unix::fs::symlink("/proc/version", path(&out)).unwrap();
        assert!(read(&out).unwrap_err().to_string().contains("symbolic link"));
        fs::remove_dir_all(out).unwrap();
    }
}
