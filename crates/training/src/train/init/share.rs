//! All ranks start from what rank 0 has put into its memory.

use backend::Backend;

use crate::error::Error;
use crate::train::agree::session::Session;
use crate::train::plan::run::Run;
use crate::train::save::spread::{spread, spread_values};

/// Gives rank 0's weights and running statistics to all, and lets all that follows the weights start from them. Collective.
pub fn share<B: Backend>(session: &Session, run: &mut Run<B>) -> Result<(), Error> {
    spread(session, run.graph.arenas().1)?;
    spread_values(session, run.graph.running_mut())?;
    run.ema.as_mut().map_or(Ok(()), |averages| averages.restart(&run.graph))?;
    Ok(run.strategy.restart(run.graph.backend(), run.graph.weights())?)
}
