//! Sharpness-aware minimisation (Foret et al. 2021, arXiv 2010.01412). Each step moves the parameters along the gradient, scaled to a norm
//! of rho. It then computes the gradient of the same images at the moved parameters and applies it at the original parameters. Both
//! gradients are summed over all ranks, so the result does not depend on the number of ranks. A second loader reads the images for the
//! second gradient.

use backend::update::{NormedTensor, SgdRule, rates};
use backend::{Arena, Backend, Buffer, Norms, Rule, Update};
use engine::MicroBatch;
use formats::checkpoint::Progress;
use loaders::Loader;

use crate::error::Error;
use crate::train::device_input::DeviceInput;
use crate::train::micro_batches::{MicroBatches, Observers};
use crate::train::plan::run::Run;
use crate::train::plan::targets::Targets;
use crate::train::reduce::gradients::GradientSum;
use crate::train::reduce::metrics::StepMetrics;

/// Added to the norm of the gradient, so that rho is never divided by 0.
const TINY: f64 = 1e-12;

/// State for the second pass of each step.
pub struct Sam<B: Backend> {
    rho: f64,
    batches: MicroBatches,
    /// Reads the same images in the same order as the loader of the first pass.
    pub loader: Loader,
    /// Copy of the parameters before the move.
    before: Arena<B>,
    norms: Norms,
    rates: B::Buf,
}

impl<B: Backend> Sam<B> {
    /// Prepares the second pass for a run at the given epoch and step of the epoch. Returns `None` if the recipe has no
    /// `sam_rho`.
    pub fn new(run: &Run<B>, input: DeviceInput, at: (u32, u64)) -> Result<Option<Self>, Error> {
        let Some(rho) = run.recipe.optimizer.sam_rho else { return Ok(None) };
        let (backend, layout) = (run.graph.backend(), run.graph.layout());
        let tensor = |range| NormedTensor { range, weight_decay: 0.0, adapts: false, factor: 1.0 };
        let of_bucket = |bucket| layout.of_bucket(bucket).into_iter().map(|p| tensor(p.slot.range())).collect();
        let tensors: Vec<Vec<NormedTensor>> = (0..layout.buckets.len()).map(of_bucket).collect();
        let rates = backend.alloc(rates::FIRST + tensors.iter().flatten().count())?;
        let order = Box::new(run.order(at.0, at.1));
        let loader = input.start(&run.source.train, run.source.augment(at.0), order, run.options)?;
        let batches = MicroBatches::new(input, run.recipe.label_smoothing as f32, Targets::from_run(run));
        let norms = Norms { tensors, limit: Some(rho) };
        Ok(Some(Self { rho, batches, loader, before: Arena::new(backend, &layout.buckets)?, norms, rates }))
    }

    /// Runs the passes of this rank's workers a second time.
    pub fn passes(
        &mut self,
        run: &mut Run<B>,
        at: &Progress,
        reduction: &mut GradientSum<B>,
        metrics: &mut StepMetrics,
        observers: &mut Observers<'_>,
    ) -> Result<(), Error> {
        let mine = run.division.mine.clone();
        for worker in mine.clone() {
            let batch = self.batches.take(&mut self.loader, at, worker, observers)?;
            let turn = MicroBatch { worker, last: worker + 1 == mine.end };
            let pass = self.batches.start(run, &batch, at, turn, reduction, observers.session)?;
            pass.read(run, at.step + 1, metrics, observers.session)?;
        }
        Ok(())
    }

    /// Moves the parameters along the gradients in the graph. The gradients are overwritten.
    pub fn climb(&mut self, run: &mut Run<B>) -> Result<(), Error> {
        let (backend, weights, gradients) = run.graph.arenas();
        let update = Update { rule: Rule::Sgd(SgdRule { momentum: 0.0, nesterov: false }), lr: 0.0 };
        backend.queue().map_or(Ok(()), |queue| queue.begin_update(&update, 0.0))?;
        backend.rates(&self.norms, &update, weights, gradients, &mut self.rates)?;
        let mut norm = [0.0];
        self.rates.read(rates::NORM, &mut norm)?;
        let factor = (self.rho / (f64::from(norm[0]) + TINY)) as f32;
        for (before, (w, g)) in
            self.before.buckets.iter_mut().zip(weights.buckets.iter_mut().zip(&mut gradients.buckets))
        {
            backend.copy(before, w)?;
            backend.scale(g, factor)?;
            backend.add(w, g)?;
        }
        Ok(())
    }

    /// Restores the parameters from before the move.
    pub fn descend(&mut self, run: &mut Run<B>) -> Result<(), Error> {
        let (backend, weights, _) = run.graph.arenas();
        let mut pairs = weights.buckets.iter_mut().zip(&self.before.buckets);
        Ok(pairs.try_for_each(|(w, before)| backend.copy(w, before))?)
    }
}
