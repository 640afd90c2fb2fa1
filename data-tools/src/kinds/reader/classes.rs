//! Class names of a source of folders: read from a list, and checked for names that differ in case only.

use crate::error::Error;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The classes in the file `path`, one a line in order of their labels; blank lines are skipped.
pub(crate) fn read(path: &Path) -> Result<Vec<String>, Error> {
    let text = fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    let names: Vec<String> = text.lines().map(str::trim).filter(|l| !l.is_empty()).map(String::from).collect();
    if names.is_empty() {
        return Err(Error::input(path, "holds no class; expected a name on each line"));
    }
    check(path, &names)?;
    Ok(names)
}

/// Refuses names that differ in case only: file systems and people take them for the same.
pub(crate) fn check(path: &Path, names: &[String]) -> Result<(), Error> {
    let mut seen: BTreeMap<String, &String> = BTreeMap::new();
    for name in names {
        let what = match seen.insert(name.to_lowercase(), name) {
            None => continue,
            Some(other) if other == name => format!("the class `{name}` is listed twice"),
            Some(other) => {
                format!("the classes `{other}` and `{name}` differ in upper and lower case only; rename or merge them")
            }
        };
        return Err(Error::input(path, what));
    }
    Ok(())
}
