//! The planned run of one rank. [`build`](super::build) creates it.

use std::sync::Arc;

use backend::Backend;
use base::text::plural;
use engine::Graph;
use engine::optim::{Ema, Optimizer, Schedule};
use formats::checkpoint::Progress;
use loaders::order::{TrainOrder, worker_positions};
use loaders::{Balanced, Footprint, Options, Pipeline, Split};
use recipe::Recipe;

use crate::error::Error;
use crate::train::device_input::DeviceInput;
use crate::train::evaluate::Evaluation;
use crate::train::plan::division::Division;
use crate::train::plan::network::shape_of;
use crate::train::plan::request::TrainRequest;
use crate::train::plan::settings::{RunFacts, single_value_warning, warnings};
use crate::train::plan::source::Source;
use crate::train::reduce::plan::ReducePlan;
use crate::train::reduce::ranks::RankSum;
use crate::train::strategy::{OwnModel, Strategy};

/// Everything that a rank needs to run steps.
pub struct Run<B: Backend> {
    /// The recipe with all defaults filled in.
    pub recipe: Recipe,
    /// The data set, the transforms, and the recipe as read.
    pub source: Source,
    /// The division of the data among steps, workers and ranks.
    pub division: Division,
    pub schedule: Schedule,
    pub graph: Graph<B>,
    pub reduction: ReducePlan<B>,
    pub optimizer: Optimizer<B>,
    /// Moving averages of the weights.
    pub ema: Option<Ema<B>>,
    /// The evaluation after each epoch.
    pub evaluation: Option<Evaluation>,
    /// The evaluation at the end, on another split.
    pub evaluation_at_end: Option<Evaluation>,
    /// Decides when ranks synchronise their models.
    pub strategy: Box<dyn Strategy<B>>,
    /// Memory for this rank's own model while the graph has the synchronised one. `None` if all ranks always have one model.
    pub own: Option<OwnModel<B>>,
    /// An order of the images in which every class has the same share of an epoch, if requested.
    pub balanced: Option<Arc<Balanced>>,
    /// Options of the training loader.
    pub options: Options,
}

/// Memory that the loaders need.
pub struct Footprints {
    pub training: Footprint,
    /// Memory for evaluations. If two splits are scored, this is the memory of the larger loader.
    pub scoring: Option<Footprint>,
}

impl<B: Backend> Run<B> {
    /// Returns the number of epochs. The last epoch may have fewer steps.
    pub fn epochs(&self) -> u32 {
        self.schedule.total_steps().div_ceil(self.division.steps_per_epoch.max(1)) as u32
    }

    /// Returns true if the epoch or the run has no more steps after `at`.
    pub fn ends_epoch(&self, at: &Progress) -> bool {
        at.step_of_epoch >= self.division.steps_per_epoch || at.step >= self.schedule.total_steps()
    }

    /// Returns the number of the step at which the run ends: its last step, or `max_steps` if that is earlier.
    pub fn last_step(&self, max_steps: Option<u64>) -> u64 {
        max_steps.unwrap_or(u64::MAX).min(self.schedule.total_steps())
    }

    /// Rescales the gradients of a step, which are means over the planned number of samples, to means over `total`.
    /// `total` is the true number of samples or the sum of their weights, so it differs from the planned number if
    /// records were skipped or classes have weights. It is known only after the reduction. `step` counts within the
    /// epoch.
    pub fn rescale(&mut self, step: u64, total: f64) -> Result<(), Error> {
        let planned = self.samples(step) as f64;
        if total != planned && total > 0.0 {
            self.graph.scale_gradients((planned / total) as f32)?;
        }
        Ok(())
    }

    /// Returns how many images the gradient of a step averages over. If ranks step independently, this counts only the
    /// images of this rank.
    pub fn samples(&self, step: u64) -> usize {
        let (images, d) = (self.division.images_of(step), &self.division);
        if self.strategy.sums_gradients() {
            return images;
        }
        d.mine.clone().map(|v| worker_positions(images, v, d.workers).len()).sum()
    }

    /// Puts the synchronised model into the graph, for evaluation and saving. Returns false if the graph already has it. Collective.
    pub fn swap_in(&mut self, ranks: &mut dyn RankSum) -> Result<bool, Error> {
        match &mut self.own {
            Some(own) => Ok(own.swap_in(&mut self.graph, &*self.strategy, ranks)?),
            None => Ok(false),
        }
    }

    /// Puts this rank's own model back into the graph. Does nothing if it is already there.
    pub fn swap_out(&mut self) {
        if let Some(own) = &mut self.own {
            own.swap_out(&mut self.graph);
        }
    }

    /// Freezes or unfreezes the parameters in `freeze.patterns`, as `[freeze]` requires for this epoch.
    pub fn begin_step(&mut self, epoch: u32) {
        self.graph.set_frozen(self.recipe.freeze.holds(epoch));
    }

    /// Sets the graph to the size of this epoch's training images.
    pub fn resize(&mut self, epoch: u32) -> Result<(), Error> {
        Ok(self.graph.set_size(shape_of(self.source.augment(epoch).output()))?)
    }

    /// Sets the graph to the size of evaluation images.
    pub fn resize_for_scoring(&mut self) -> Result<(), Error> {
        Ok(self.graph.set_size(shape_of(self.source.preprocess.output()))?)
    }

    /// Returns this rank's training order, starting at the given epoch and step. It ends before the image size changes,
    /// or at the end of the run.
    pub fn order(&self, epoch: u32, step: u64) -> TrainOrder {
        let d = &self.division;
        let counts: Vec<u64> = self.source.train.shards().iter().map(|shard| shard.count).collect();
        let order = TrainOrder::new(
            self.recipe.seed,
            d.images,
            d.batch,
            d.workers,
            d.mine.clone(),
            (epoch, step),
            self.source.phases.end(epoch).unwrap_or(u32::MAX).min(self.epochs()),
        )
        .shuffled(self.recipe.shuffling(), &counts);
        let order = match &self.balanced {
            Some(balanced) => order.balanced(balanced.clone()),
            None => order,
        };
        order.repeated(self.recipe.augment.repeats())
    }

    pub fn warnings(&self, request: &TrainRequest) -> Vec<String> {
        // a learning-rate search does not compute scores, so missing scores need no warning
        let scored = self.evaluation.is_some() || request.find_lr.is_some();
        let length = RunFacts { images: self.division.images, max_steps: request.max_steps, scored };
        let of_settings = warnings(&self.recipe, self.graph.net(), &self.schedule, length);
        let of_settings =
            of_settings.into_iter().chain(single_value_warning(self.graph.net(), &self.division, self.recipe.sync_bn));
        of_settings.chain(self.small_passes()).collect()
    }

    /// Returns a note if a GPU runs more than one pass per step.
    fn small_passes(&self) -> Option<String> {
        let (passes, workers) = (self.division.mine.len(), self.division.workers);
        if self.graph.backend().queue().is_none() || passes <= 1 {
            return None;
        }
        let (images, batch) = (self.division.largest(), self.recipe.batch);
        let ranks = workers / passes;
        let normalises = !self.graph.norms().is_empty();
        let remedy = match batch.is_multiple_of(workers) && workers.is_multiple_of(passes) && normalises {
            // the number of images over which batch norm computes its statistics now
            true => {
                let group = self.recipe.bn_group.unwrap_or(images);
                format!(
                    "or give --set workers={ranks} --set bn_group={group}. Each GPU then runs one pass of {} images, and batch norm \
                     still uses {} at a time. Then at most {} can work",
                    passes * images,
                    plural(group, "image"),
                    plural(ranks, "rank")
                )
            }
            false if normalises => {
                "or set workers to the number of ranks. Batch norm then uses the images of a larger pass, which changes the result"
                    .into()
            }
            false => "or set workers to the number of ranks".into(),
        };
        Some(format!(
            "note: workers = {workers}, so each GPU runs {passes} passes per step, of {}. A GPU computes larger passes more efficiently: \
             start more ranks, {remedy}",
            plural(images, "image")
        ))
    }

    /// Returns the memory of the loaders for training and evaluation.
    pub fn footprints(&self) -> Result<Footprints, Error> {
        let batch = self.division.largest();
        let of = |split: &Split, pipeline: &Pipeline, options: &Options| {
            let input = DeviceInput::new(self.graph.backend(), pipeline);
            Footprint::new(split, options, batch, pipeline.output().values(), input.format())
        };
        // take the larger amount, because the splits are read one after the other
        let scorings = self.evaluation.iter().chain(&self.evaluation_at_end);
        let scorings: Vec<Footprint> =
            scorings.map(|e| of(&e.split, &e.pipeline, &e.options)).collect::<Result<_, _>>()?;
        let scoring = scorings.into_iter().max_by_key(Footprint::bytes);
        let training = of(&self.source.train, &self.source.augment, &self.options)?;
        let training = training.times(self.recipe.optimizer.passes());
        Ok(Footprints { training, scoring })
    }
}
