//! `--extend-epochs`: a run that goes on for more epochs than it was planned for.

use engine::optim::schedule::Extension;
use formats::checkpoint::Progress;
use recipe::Recipe;

use crate::error::Error;

/// Makes the recipe that a run goes on with that of a longer run than `old` says, from where it is on; gives the line that says what
/// becomes of the rates. Without more epochs nothing changes: the run was extended before.
///
/// # Errors
/// For fewer epochs than before.
pub(super) fn extend(recipe: &mut Recipe, old: &Recipe, at: &Progress, images: u64) -> Result<Option<String>, Error> {
    let (Some(before), Some(epochs), batch) = (old.epochs, recipe.epochs, recipe.batch) else {
        return Err(Error::Usage("--extend-epochs: the length of the run is given in steps, not in epochs".into()));
    };
    if epochs < before {
        return Err(Error::Usage(format!(
            "--extend-epochs: the run is one of {before} epochs already, got {epochs}; give more, as --set epochs={}",
            before + 1
        )));
    }
    if epochs == before {
        return Ok(None);
    }
    let (step, steps_per_epoch) = (at.step, images.div_ceil(batch as u64));
    let drops = at.memory.plateau.map_or(0, |plateau| plateau.drops);
    Ok(Some(Extension { step, steps_per_epoch, batch, before, epochs, drops }.apply(&mut recipe.schedule)?))
}
