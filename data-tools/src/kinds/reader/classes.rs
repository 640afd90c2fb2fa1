//! Class names of a source of folders: read from a list, and checked for names that differ in case only.

use crate::error::Error;
use crate::text;
use loaders::regular;
use std::collections::BTreeMap;
use std::path::Path;

/// The most lines of a list of classes.
const MOST: usize = 1_000_000;

/// The classes in the file `path`, one a line in order of their labels; blank lines are skipped.
pub(crate) fn read(path: &Path) -> Result<Vec<String>, Error> {
    let text = regular::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    let text = text::without_mark(&text);
    if text.lines().nth(MOST).is_some() {
        return Err(Error::input(path, format!("more than {MOST} lines; expected the name of a class on each")));
    }
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
