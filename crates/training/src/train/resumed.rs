//! The checkpoint that `--resume` names, looked at before it is read.

use std::path::Path;

use loaders::why;

use crate::error::Error;
use crate::train::plan::request::TrainRequest;
use crate::train::save::saver;

/// What a name may be.
const CURE: &str = "name a file in the folder checkpoints of a run, or write `auto` for the newest one under --out";

/// Refuses a name that is no file's: of a folder the newest checkpoint is told, and so is that of --out where nothing has the name. For
/// the rank that reads it.
pub(super) fn check(request: &TrainRequest) -> Result<(), Error> {
    let Some(path) = &request.resume_from else { return Ok(()) };
    let what = match path.metadata() {
        Ok(about) if !about.is_dir() => return Ok(()),
        Ok(_) => format!("it is a folder, and no file{}", newest(path)),
        Err(error) => format!("{}{}", why(path, &error), newest(&request.out)),
    };
    Err(Error::Usage(format!("--resume {}: {what}; {CURE}", path.display())))
}

/// The newest checkpoint of a run, as a part of a message; nothing where there is none.
fn newest(run: &Path) -> String {
    let of = |folder: &Path| saver::list(folder).ok()?.into_iter().next().map(|(_, path)| path);
    let found = of(&run.join("checkpoints")).or_else(|| of(run));
    found.map_or_else(String::new, |path| format!("; the newest checkpoint in {} is {}", run.display(), path.display()))
}
