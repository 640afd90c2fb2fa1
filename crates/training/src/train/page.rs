//! report.html at the end of a run.

use std::path::Path;

use base::screen;
use report::history::Run;
use report::page;

/// Writes the page of the run in `out`. A run is no worse for a page that could not be written: that is a line on stderr.
pub(super) fn write(out: &Path) {
    let text =
        Run::open(out).map(|run| page::render(&[run], None, recipe::keys::is_default)).map_err(|e| e.to_string());
    let path = out.join(page::NAME);
    let written = text.and_then(|text| loaders::replace::replace(&path, text.as_bytes()).map_err(|e| e.to_string()));
    if let Err(why) = written {
        screen::say(&format!("warning: no {}: {why}; `trireme report {}` makes it later", page::NAME, out.display()));
    }
}
