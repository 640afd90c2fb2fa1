//! The classes of the training images, the same on every rank: rank 0 alone reads the labels, and the others get them.

use crate::error::Error;
use crate::train::agree::session::Session;
use crate::train::plan::census::Census;
use crate::train::plan::source::Source;

/// Gives all ranks the labels that rank 0 reads, where the recipe needs them. Collective.
///
/// # Errors
/// On all ranks alike: for a record without a label.
pub fn share(session: &Session, source: &mut Source) -> Result<(), Error> {
    if !Census::needed(&source.recipe) {
        return Ok(());
    }
    session.agree(if session.is_root() { source.count() } else { Ok(()) })?;
    if session.world.size > 1 {
        let labels = session.comm.broadcast("the labels", source.census.as_ref().map(|census| &census.labels))?;
        source.census = Some(Census::of(labels, source.train.classes()));
    }
    Ok(())
}
