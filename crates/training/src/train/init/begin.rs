//! From the file that `init.from` names to the memory of all ranks.

use std::collections::BTreeMap;
use std::path::Path;

use backend::Backend;
use formats::interop;
use formats::interop::Weights;

use super::fit::{self, Fit, Taken};
use super::share::share;
use super::{keras_order, origin, table, whiten};
use crate::error::Error;
use crate::train::agree::session::Session;
use crate::train::plan::named_file::is_there;
use crate::train::plan::run::Run;

/// Weights that fit the network; rank 0 alone holds them.
pub struct Begin {
    loaded: Option<Loaded>,
}

struct Loaded {
    weights: Weights,
    fit: Fit,
    notes: Vec<String>,
}

/// Reads and checks the file that the recipe names, if it names one, and what only a run that begins must have right. Collective.
///
/// # Errors
/// On all ranks alike: for a file that cannot be read, does not fit, or was trained on something else.
pub fn prepare<B: Backend>(session: &Session, run: &Run<B>) -> Result<Option<Begin>, Error> {
    session.agree(run.recipe.averages_begin(run.division.steps_per_epoch).map_err(Error::from))?;
    run.recipe.init.whiten.as_deref().map_or(Ok(()), |layer| whiten::check(run.graph.net(), layer))?;
    let Some(from) = &run.recipe.init.from else { return Ok(None) };
    let loaded = if session.is_root() { load(run, Path::new(from)).map(Some) } else { Ok(None) };
    Ok(Some(Begin { loaded: session.agree(loaded)? }))
}

fn load<B: Backend>(run: &Run<B>, from: &Path) -> Result<Loaded, Error> {
    is_there("init.from: cannot read", from, "name a file of weights, or leave the key out")?;
    let read = interop::read(from, run.recipe.init.key.as_deref())
        .map_err(|error| Error::Failed(format!("init.from: {error}")))?;
    let weights = keras_order::arranged(run.graph.net(), read, &run.recipe.init)?;
    let fit = fit::fit(run.graph.net(), &weights, &run.recipe.init)?;
    table::check(&fit, &weights, run.recipe.init.strict())?;
    fit.check_values(&weights)?;
    let mut notes: Vec<String> = weights.warning.iter().cloned().collect();
    notes.extend(origin::check(&run.source, &fit, &weights)?);
    Ok(Loaded { weights, fit, notes })
}

impl Begin {
    /// The table for the log, and what is to be said beside; empty on other ranks than 0.
    pub fn notes(&self) -> Vec<String> {
        let lines = |loaded: &Loaded| [table::short(&loaded.fit, &loaded.weights), loaded.notes.clone()].concat();
        self.loaded.as_ref().map_or_else(Vec::new, lines)
    }

    /// The table of all tensors, for `--dry-run`; empty on other ranks than 0.
    pub fn table(&self) -> String {
        let text =
            |loaded: &Loaded| format!("{}{}\n", table::whole(&loaded.fit, &loaded.weights), lines(&loaded.notes));
        self.loaded.as_ref().map_or_else(String::new, text)
    }

    /// Puts the values into the memory of all ranks. Collective.
    pub fn apply<B: Backend>(self, session: &Session, run: &mut Run<B>) -> Result<(), Error> {
        let filled = self.loaded.map_or(Ok(()), |loaded| fill(run, &loaded));
        session.agree(filled)?;
        share(session, run)
    }
}

fn lines(notes: &[String]) -> String {
    notes.iter().map(|note| format!("{note}\n")).collect()
}

/// Fills this rank's own memory.
fn fill<B: Backend>(run: &mut Run<B>, loaded: &Loaded) -> Result<(), Error> {
    let taken: BTreeMap<&str, Taken<'_>> = loaded.fit.taken(&loaded.weights).collect();
    let graph = &mut run.graph;
    for i in 0..graph.params().len() {
        if let Some(Taken { values, .. }) = taken.get(graph.params()[i].name.as_str()) {
            graph.set_param(i, values)?;
        }
    }
    for place in graph.norms().to_vec() {
        let name = &graph.net().nodes[place.node].name;
        let found = ["running_mean", "running_var"].map(|field| taken.get(format!("{name}.{field}").as_str()).copied());
        for (half, tensor) in found.into_iter().enumerate() {
            if let Some(Taken { values, .. }) = tensor {
                let at = place.offset + half * place.channels;
                graph.running_mut()[at..at + place.channels].copy_from_slice(values);
            }
        }
    }
    Ok(())
}
