//! A file that the recipe names and that is not there: the recipe is wrong, not the machine.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use loaders::why;

use crate::error::Error;

/// Refuses a path that leads to nothing; what else may be wrong with it is told by whoever reads it. `cannot`: what cannot be done, with
/// the key of the recipe; `cure`: what to name instead.
///
/// # Errors
/// With the nearest name beside it.
pub fn is_there(cannot: &str, path: &Path, cure: &str) -> Result<(), Error> {
    match fs::metadata(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Err(Error::Usage(format!("{cannot} {}: {}; {cure}", path.display(), why(path, &error))))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_to_nothing_is_a_fault_of_the_recipe() {
        let error = is_there("init.from: cannot read", Path::new("/nowhere.pth"), "name a file").unwrap_err();
        let text = "init.from: cannot read /nowhere.pth: No such file or directory (os error 2); name a file";
        assert_eq!((error.code(), error.to_string().as_str()), (2, text));
        assert!(is_there("cannot read", Path::new("/"), "").is_ok());
    }
}
