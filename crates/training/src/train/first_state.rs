//! Where a run begins: at its first weights, or at the checkpoint that it goes on from.

use std::path::Path;

use backend::Backend;
use formats::checkpoint::Progress;

use crate::error::Error;
use crate::train::agree::session::Session;
use crate::train::define;
use crate::train::init::begin::Begin;
use crate::train::init::whiten;
use crate::train::plan::run::Run;
use crate::train::save::best;
use crate::train::save::resume::Resume;

/// A run that begins, with its first weights. Collective.
pub fn begun<B: Backend>(session: &Session, run: &mut Run<B>, begin: Option<Begin>) -> Result<Progress, Error> {
    weights(session, run, begin)?;
    Ok(Progress { seed: run.recipe.seed, data: run.source.identity()?, ..Progress::default() })
}

/// A run in `out` that goes on, with a note where its best checkpoint is gone. Collective.
pub fn restored<B: Backend>(
    session: &Session,
    run: &mut Run<B>,
    resume: Resume,
    out: &Path,
) -> Result<(Progress, Option<String>), Error> {
    let (best, note) = best::carried(session, out, &resume.head)?;
    Ok((Progress { best, ..resume.restore(session, run)? }, note))
}

/// The weights of the network's file, then those of `[init]`, in place of random ones. Collective.
pub fn weights<B: Backend>(session: &Session, run: &mut Run<B>, begin: Option<Begin>) -> Result<(), Error> {
    define::begin(session, run)?;
    begin.map_or(Ok(()), |begin| begin.apply(session, run))?;
    run.recipe.init.whiten.clone().map_or(Ok(()), |layer| whiten::apply(session, run, &layer))
}
