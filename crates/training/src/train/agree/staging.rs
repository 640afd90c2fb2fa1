//! The data set's copy on each node's own disk: one rank of a node copies, the others wait, and all learn of failures.

use std::path::{Path, PathBuf};

use base::screen;
use loaders::{Dataset, stage};

use crate::error::Error;
use crate::train::agree::session::Session;

/// Copies splits of `data` below `under`, on each node's first rank, and returns the copy's folder. `splits` picks among the names of
/// the data set's splits. Without a `session` this is the only rank.
pub fn stage(
    session: Option<&Session>,
    data: &Path,
    under: &Path,
    splits: impl Fn(&[&str]) -> Result<Vec<String>, Error>,
) -> Result<PathBuf, Error> {
    let first = session.is_none_or(|session| session.world.node_rank == 0);
    let copied = || {
        let dataset = Dataset::open(data)?;
        let names: Vec<&str> = dataset.manifest.splits.keys().map(String::as_str).collect();
        let wanted = splits(&names)?;
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        Ok(stage::stage(data, under, &wanted)?)
    };
    let staged = if first { copied().map(Some) } else { Ok(None) };
    let staged = match session {
        Some(session) => session.agree(staged)?,
        None => staged?,
    };
    if let Some(staged) = staged.filter(|_| session.is_none_or(Session::is_root)) {
        let gb = |bytes: u64| bytes as f64 / 1e9;
        let (dir, copied, reused) = (staged.dir.display().to_string(), gb(staged.copied), gb(staged.reused));
        let dir = loaders::printable(&dir);
        screen::say(&format!("staged in {dir}: {copied:.2} GB copied, {reused:.2} GB were there"));
    }
    Ok(stage::place(data, under))
}
