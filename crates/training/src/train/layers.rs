//! `log.histograms`: statistics of the parameters and of the summed gradients of every layer, now and then. All ranks have the same
//! gradients after their sum, so rank 0's are those of any number of ranks, to the bit where the codec's are.

use backend::{Backend, LossScale};
use formats::checkpoint::Progress;
use report::{Layers, Spread, TensorSpread};

use crate::error::Error;
use crate::train::agree::session::Session;
use crate::train::plan::run::Run;
use crate::train::reduce::gradients::GradientSum;

/// Whether the step after `at` is measured.
pub(super) fn due<B: Backend>(run: &Run<B>, at: &Progress) -> bool {
    run.recipe.log.histograms.is_some_and(|every| (at.step + 1).is_multiple_of(every))
}

/// Measures the step after `at`, whose gradients are summed and not used yet; nothing on ranks other than 0. Gradients of losses with a
/// scale are divided by it. Collective.
pub(super) fn measure<B: Backend>(
    session: &Session,
    run: &Run<B>,
    at: &Progress,
    reduction: &mut GradientSum<B>,
    scale: Option<LossScale>,
) -> Result<Option<Layers>, Error> {
    let graph = &run.graph;
    let elements: Vec<usize> = graph.params().iter().map(|p| p.spec.elems()).collect();
    let zero_codes = reduction.zero_codes(&elements)?;
    if !session.is_root() {
        return Ok(None);
    }
    let factor = scale.map_or(1.0, |scale| 1.0 / f64::from(scale.scale));
    let mut tensors = Vec::new();
    for (index, zero_codes) in zero_codes.into_iter().enumerate() {
        tensors.push(TensorSpread {
            name: graph.params()[index].name.clone(),
            elements: elements[index] as u64,
            weight: Spread::of(&graph.param(index)?, 1.0),
            gradient: Spread::of(&graph.gradient(index)?, factor),
            zero_codes,
        });
    }
    Ok(Some(Layers { step: at.step + 1, epoch: at.epoch, tensors }))
}
