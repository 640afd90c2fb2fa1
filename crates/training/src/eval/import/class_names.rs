//! A file with the names of classes.

use std::path::Path;

use crate::error::Error;

/// The names of the classes, one a line, in order of their labels.
pub fn read(path: &Path) -> Result<Vec<String>, Error> {
    let refuse = |source| Error::File { action: "read", path: path.to_path_buf(), source };
    let text = String::from_utf8(loaders::regular::read(path).map_err(refuse)?);
    let text = text.map_err(|_| Error::Failed(format!("{}: expected names in UTF-8, one a line", path.display())))?;
    // a byte order mark is no part of the first name
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let classes: Vec<String> = text.lines().map(|line| line.trim().to_string()).collect();
    match classes.iter().position(String::is_empty) {
        Some(line) => Err(Error::Failed(format!("{}: line {} is empty, expected a name", path.display(), line + 1))),
        None if classes.is_empty() => Err(Error::Failed(format!("{}: no names of classes in it", path.display()))),
        None => Ok(classes),
    }
}
