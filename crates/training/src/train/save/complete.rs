//! Whether the run in an output folder is over, so that there is nothing to go on with.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use loaders::safe_create;

use super::output;
use super::resume::Head;

/// Bytes in which the last line of a log lies.
const TAIL: u64 = 65_536;

/// When a run is over.
#[derive(Clone, Copy, Debug)]
pub struct Over {
    /// Its last step.
    pub last: u64,
    /// What to give so that it goes on.
    pub more: &'static str,
}

/// What to say of a run whose checkpoint is that of its last step, whose model is written, and whose log ends with the end of it; none
/// of a run that can go on. Changes nothing.
pub fn told(out: &Path, head: &Head, over: Over) -> Option<String> {
    let Over { last, more } = over;
    let step = head.progress.step;
    let model = output::model_path(out);
    (step >= last && model.is_file() && ended_at(out) == Some(step)).then(|| {
        let plural = if step == 1 { "" } else { "s" };
        format!(
            "{}: complete, {step} step{plural}: nothing to do. The model is {}.{more}",
            out.display(),
            model.display()
        )
    })
}

/// The step of the log's last line, if that line tells of the end.
fn ended_at(out: &Path) -> Option<u64> {
    let mut file = safe_create::open_own(&out.join("metrics.jsonl")).ok()??;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut text = Vec::new();
    file.take(TAIL).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    let line: serde_json::Value = serde_json::from_str(text.lines().last()?).ok()?;
    (line["event"] == "end").then(|| line["step"].as_u64()).flatten()
}
