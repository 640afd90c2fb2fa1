//! Scores a split. The split is divided into logical batches, which do not depend on the number of ranks, and each batch goes to one rank.
//! Every image counts once, and the results are summed over all ranks.

mod collector;
mod views;

use std::borrow::Cow;
use std::sync::Arc;

use backend::{Backend, LossSums};
use collector::{
    BatchScore, Collector, MultiLabelCollector, MultiLabelResults, NumberCollector, over_classes, sets_of,
};
use comm::Comm;
use engine::{Batch, Graph};
use formats::checkpoint::Sums;
use loaders::{EvalOrder, LabelSets, Options, Order, Pipeline, Split, SubsetOrder};
use report::predictions::{ClassScore, MultiLabelOutcome, Predictions};

use crate::error::Error;
use crate::train::agree::Session;
use crate::train::device_input::DeviceInput;
use crate::train::observe::stop::Stop;
use crate::train::observe::watch::Activity;

pub use collector::{Detail, NumberResults, NumberScale, precisions_fit};
pub use views::{TestTime, Views};

#[derive(Clone, Debug)]
pub struct EvaluationResult {
    /// The means over the images. `top1` and `top5` are fractions of images. For a multi-label image, any class in its
    /// label set is correct. They are NaN if labels are numbers. The loss has no label smoothing. It is cross-entropy,
    /// for multi-label images binary cross-entropy averaged over the classes, and for numbers the training loss.
    pub score: Sums,
    /// Predictions for single-label images, if requested. Only on rank 0.
    pub predictions: Option<Predictions>,
    /// Scores of each class, for multi-label images.
    pub per_class: Option<Vec<ClassScore>>,
    /// Predictions for multi-label images, if average precisions are requested. Only on rank 0.
    pub outcomes: Option<Vec<MultiLabelOutcome>>,
    /// Scores per target, for images with numbers. Includes predictions if they were requested.
    pub numbers: Option<NumberResults>,
}

impl EvaluationResult {
    /// Returns the event that reports the scores, without step, epoch and split.
    pub fn event(&self) -> report::Eval {
        let score = &self.score;
        report::Eval {
            top1: score.top1,
            top5: score.top5,
            loss: score.loss,
            count: score.count,
            macro_f1: score.several.map(|several| several.macro_f1),
            micro_f1: score.several.map(|several| several.micro_f1),
            map: score.several.map(|several| several.map).filter(|map| !map.is_nan()),
            rmse: score.numbers.map(|numbers| numbers.rmse),
            mae: score.numbers.map(|numbers| numbers.mae),
            r2: score.numbers.map(|numbers| numbers.r2).filter(|r2| !r2.is_nan()),
            targets: self.numbers.as_ref().map(|numbers| numbers.per_target.clone()).unwrap_or_default(),
            ..Default::default()
        }
    }
}

/// Sums of a score, first over this rank's batches and then over all ranks. Each batch has its own slot for the loss, and the slots are
/// added in the order of the batches. So the sum is bit-identical for every number of ranks. The counts are integers, so their sums are
/// exact.
#[derive(Clone, Debug, Default)]
struct ScoreSums {
    top1: f64,
    top5: f64,
    count: f64,
    /// Number of ranks that received a request to stop.
    stop: f64,
    losses: Vec<f64>,
    /// Sums for the scores if labels are numbers: [`NumberCollector::width`] values per batch.
    errors: Vec<f64>,
}

impl ScoreSums {
    /// Creates empty sums for the batches of all ranks.
    fn new(evaluation: &Evaluation, collectors: &Collectors) -> Self {
        let batches = evaluation.images().div_ceil(evaluation.batch as u64) as usize;
        let width = collectors.numbers.as_ref().map_or(0, NumberCollector::width);
        Self { losses: vec![0.0; batches], errors: vec![0.0; width * batches], ..Self::default() }
    }

    /// Returns the numbers to sum over the ranks, in the order of the fields.
    fn to_slots(&self) -> Vec<f64> {
        [&[self.top1, self.top5, self.count, self.stop], self.losses.as_slice(), &self.errors].concat()
    }

    fn set_slots(&mut self, slots: &[f64]) {
        let (counts, rest) = slots.split_at(4);
        let (losses, errors) = rest.split_at(self.losses.len());
        [self.top1, self.top5, self.count, self.stop] = [counts[0], counts[1], counts[2], counts[3]];
        (self.losses, self.errors) = (losses.to_vec(), errors.to_vec());
    }

    fn add(&mut self, batch: u64, part: BatchScore) {
        self.top1 += part.top1 as f64;
        self.top5 += part.top5 as f64;
        self.count += part.count as f64;
        self.losses[batch as usize] += part.loss;
    }

    /// Adds the sums for the batch that was last added to `collector`.
    fn add_errors(&mut self, batch: u64, collector: &NumberCollector) {
        let own = &mut self.errors[batch as usize * collector.width()..];
        own.iter_mut().zip(collector.sums()).for_each(|(sum, value)| *sum += value);
    }

    /// Returns the error sums, added over all batches in the order of the batches.
    fn total_errors(&self) -> Vec<f64> {
        let mut totals = vec![0.0; self.errors.len() / self.losses.len().max(1)];
        for batch in self.errors.chunks_exact(totals.len().max(1)) {
            totals.iter_mut().zip(batch).for_each(|(sum, value)| *sum += value);
        }
        totals
    }

    /// Replaces the numbers by their sums over all ranks. Collective.
    fn sum(&mut self, comm: &Comm) -> Result<(), Error> {
        let mut slots = self.to_slots();
        comm.run("sum of scores", |world| world.sum_f64(&mut slots))?;
        self.set_slots(&slots);
        Ok(())
    }

    /// Returns the means, or `None` if a rank received a request to stop.
    fn score(&self) -> Option<Sums> {
        let mean = |sum: f64| sum / self.count.max(1.0);
        let loss = mean(self.losses.iter().sum());
        let count = self.count as u64;
        let score = Sums { top1: mean(self.top1), top5: mean(self.top5), loss, count, several: None, numbers: None };
        (self.stop == 0.0).then_some(score)
    }
}

struct ScoredBatch {
    ids: Vec<u64>,
    labels: Vec<u32>,
    sets: LabelSets,
    /// All images' numbers, image after image, if labels are numbers.
    numbers: Vec<f32>,
    scores: Vec<f32>,
}

impl ScoredBatch {
    fn new(batch: &loaders::Batch, labels: &[u32], scores: Vec<f32>) -> Self {
        let numbers = batch.targets().unwrap_or_default().to_vec();
        Self { ids: batch.ids().to_vec(), labels: labels.to_vec(), sets: sets_of(batch), numbers, scores }
    }
}

/// Collectors for the results of each image. At most one of them is present.
struct Collectors {
    one: Option<Collector>,
    several: Option<MultiLabelCollector>,
    numbers: Option<NumberCollector>,
}

impl Collectors {
    fn new(detail: Detail, evaluation: &Evaluation, classes: usize) -> Self {
        let none = Self { one: None, several: None, numbers: None };
        let images = evaluation.images();
        match &evaluation.numbers {
            Some(scale) => Self { numbers: Some(NumberCollector::new(scale.clone(), detail != Detail::Score)), ..none },
            None if evaluation.split.multi_label() => {
                Self { several: Some(MultiLabelCollector::new(classes, images, detail == Detail::Precisions)), ..none }
            }
            None => Self { one: Collector::new(detail, classes, images), ..none },
        }
    }

    /// Adds a batch's scores to `sums` if the images have numbers or label sets. Returns false if images have exactly
    /// one label.
    fn add(&mut self, step: u64, batch: &ScoredBatch, sums: &mut ScoreSums) -> bool {
        match (&mut self.several, &mut self.numbers) {
            (Some(collector), _) => sums.add(step, collector.add(&batch.ids, &batch.sets, &batch.scores)),
            (None, Some(collector)) => {
                sums.add(step, collector.add(&batch.ids, &batch.numbers, &batch.scores));
                sums.add_errors(step, collector);
            }
            (None, None) => return false,
        }
        true
    }
}

/// The images to score, and how to convert their labels.
#[derive(Clone, Debug)]
pub struct Selection {
    /// For each class of the data set, the model's label of the class with the same name. `None` if the model lacks this class.
    pub labels: Vec<Option<u32>>,
    /// Ids of the images to score. `None` if all images are scored.
    pub images: Option<Arc<[u64]>>,
}

/// The images to score and the settings of an evaluation.
#[derive(Clone)]
pub struct Evaluation {
    pub split: Arc<Split>,
    /// Transforms from a record to an input.
    pub pipeline: Pipeline,
    /// The views of each image in test-time augmentation. Empty if only the plain view is evaluated.
    pub views: Views,
    /// Images per logical batch. It does not depend on the number of ranks, so that the score does not either.
    pub batch: usize,
    pub options: Options,
    /// How outputs become numbers. `None` if labels are classes.
    pub numbers: Option<NumberScale>,
    /// Which images to score, and how labels are converted. Set if classes were matched by name or only some images are scored.
    pub selection: Option<Selection>,
}

impl Evaluation {
    /// Restricts the evaluation to at most `most` images, spread evenly over the split.
    pub fn limited(self, most: Option<u64>) -> Self {
        let all = self.split.len();
        let Some(most) = most.filter(|most| *most < all) else { return self };
        let images = spread(most, all).collect();
        let labels = (0..self.split.classes() as u32).map(Some).collect();
        Self { selection: Some(Selection { labels, images: Some(images) }), ..self }
    }

    pub fn images(&self) -> u64 {
        let chosen = self.selection.as_ref().and_then(|selection| selection.images.as_ref());
        chosen.map_or(self.split.len(), |images| images.len() as u64)
    }

    /// Returns the model's label for each class of the data set, if there is a selection.
    pub fn labels(&self) -> Option<&[Option<u32>]> {
        self.selection.as_ref().map(|selection| selection.labels.as_slice())
    }

    /// Returns the order of this rank's batches.
    fn order(&self, session: &Session) -> Box<dyn Order> {
        let order = EvalOrder::new(self.images(), self.batch, session.world.rank, session.world.size);
        match self.selection.as_ref().and_then(|selection| selection.images.clone()) {
            Some(images) => Box::new(SubsetOrder::new(order, images)),
            None => Box::new(order),
        }
    }

    /// Returns all batch sizes that occur on any rank.
    pub fn sizes(&self) -> Vec<usize> {
        let tail = (self.images() % self.batch as u64) as usize;
        let full = (self.images() >= self.batch as u64).then_some(self.batch);
        full.into_iter().chain((tail > 0).then_some(tail)).collect()
    }

    /// Converts the labels of a batch to the model's labels.
    fn model_labels<'a>(&self, labels: &'a [u32]) -> Result<Cow<'a, [u32]>, Error> {
        let Some(own) = self.labels() else { return Ok(labels.into()) };
        let model = |&label: &u32| own.get(label as usize).copied().flatten().ok_or_else(|| unmatched(label));
        labels.iter().map(model).collect::<Result<Vec<_>, _>>().map(Cow::Owned)
    }

    /// Scores this rank's batches and sums the results over all ranks. Returns `None` if a rank received a request to stop before its last
    /// batch.
    pub fn run<B: Backend>(
        &self,
        session: &Session,
        graph: &mut Graph<B>,
        stop: &Stop,
        detail: Detail,
    ) -> Result<Option<EvaluationResult>, Error> {
        let mut collectors = Collectors::new(detail, self, graph.classes());
        let mut sums = match self.views.is_empty() {
            true => self.plain(session, graph, stop, &mut collectors)?,
            false => self.by_views(session, graph, stop, &mut collectors)?,
        };
        sums.sum(&session.comm)?;
        let Some(score) = sums.score() else { return Ok(None) };
        let predictions = collectors.one.map(|collector| collector.gather(&session.comm)).transpose()?.flatten();
        let result = EvaluationResult { score, predictions, per_class: None, outcomes: None, numbers: None };
        if let Some(collector) = collectors.numbers {
            let numbers = collector.finish(&session.comm, &sums.total_errors(), score.count)?;
            let score = Sums { top1: f64::NAN, top5: f64::NAN, numbers: Some(numbers.means()), ..score };
            return Ok(Some(EvaluationResult { score, numbers: Some(numbers), ..result }));
        }
        let Some(collector) = collectors.several else { return Ok(Some(result)) };
        let MultiLabelResults { per_class, outcomes } = collector.gather(&session.comm)?;
        let score = Sums { several: Some(over_classes(&per_class)), ..score };
        Ok(Some(EvaluationResult { score, per_class: Some(per_class), outcomes, ..result }))
    }

    /// Scores this rank's batches with the plain view only.
    fn plain<B: Backend>(
        &self,
        session: &Session,
        graph: &mut Graph<B>,
        stop: &Stop,
        collectors: &mut Collectors,
    ) -> Result<ScoreSums, Error> {
        let mut sums = ScoreSums::new(self, collectors);
        let scores = graph.net().nodes.len();
        let is_stopped = self.each_batch(&self.pipeline, session, graph, stop, |graph, batch, labels, found| {
            let LossSums { loss, top1, top5, count } = found;
            let is_classified = collectors.several.is_none() && collectors.numbers.is_none();
            match is_classified {
                true => sums.add(batch.step(), BatchScore { loss, top1, top5, count }),
                false => {
                    let scored = ScoredBatch::new(batch, labels, graph.output(scores)?);
                    collectors.add(batch.step(), &scored, &mut sums);
                }
            }
            if let Some(collector) = &mut collectors.one {
                collector.add(batch.ids(), labels, &graph.output(scores)?);
            }
            Ok(())
        })?;
        sums.stop = f64::from(u8::from(is_stopped));
        Ok(sums)
    }

    /// Evaluates this rank's batches of a view, and passes each batch, the model's labels and the sums of the losses to
    /// `take`. Returns true if it ended early because of a request to stop.
    fn each_batch<B: Backend>(
        &self,
        view: &Pipeline,
        session: &Session,
        graph: &mut Graph<B>,
        stop: &Stop,
        mut take: impl FnMut(&mut Graph<B>, &loaders::Batch, &[u32], LossSums) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        session.watch.set_activity(Activity::ScoringData { after: 0 });
        let input = DeviceInput::new(graph.backend(), view);
        let mut loader = input.start(&self.split, view, self.order(session), self.options)?;
        while let Some(batch) = loader.next()? {
            let on_device = graph.backend().queue().is_some();
            session.watch.set_activity(Activity::Scoring { batch: batch.step(), on_device });
            let labels = self.model_labels(batch.labels())?;
            let one = Batch { images: input.input(&batch), labels: &labels, ids: batch.ids(), epoch: 0 };
            let found = graph.evaluate(one, 0.0)?;
            take(graph, &batch, &labels, found)?;
            if stop.requested() {
                return Ok(true);
            }
            session.watch.set_activity(Activity::ScoringData { after: batch.step() });
        }
        Ok(false)
    }
}

/// Returns `count` indices that are spread evenly over `all` images.
pub fn spread(count: u64, all: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |k| (u128::from(k) * u128::from(all) / u128::from(count)) as u64)
}

fn unmatched(label: u32) -> Error {
    Error::Failed(format!(
        "an image has class {label}, which the model does not have, although such images are skipped; this is a bug in trireme, please \
         report it"
    ))
}

/// Returns the original file name in an image's record. Returns an empty string if there is no name or the record cannot be read.
pub fn file_name(split: &Split, id: u64) -> String {
    let mut copy = Vec::new();
    split.record(id, &mut copy).map(|(example, _)| example.filename.to_string()).unwrap_or_default()
}
