//! Warns on standard error while a file system does not answer.

use crate::error::Error;
use crate::progress;
use loaders::stall::{StallWatch, limits_of_environment};

/// Begins to watch all threads of this process, until the result is dropped.
///
/// # Errors
/// An environment variable with a limit that is none.
pub(crate) fn watch() -> Result<StallWatch, Error> {
    Ok(StallWatch::start(limits_of_environment().map_err(Error::Usage)?, progress::say))
}
