//! Collects the data for report.html on rank 0 during a run: predictions of the last evaluation, pictures of training
//! images, and statistics of the layers. A run does not fail if a picture or the page cannot be made.

use std::path::Path;
use std::time::{Duration, Instant};

use backend::{Backend, LossScale};
use base::screen;
use data_tools::{Thumbnail, Viewer};
use formats::checkpoint::{LabelScores, Progress};
use loaders::replace;
use report::evaluation_file::MultiLabelScores;
use report::history::Run as FinishedRun;
use report::{EvaluationFile, Layers, Reporter, Spread, TensorSpread, evaluation_file, page};

use crate::error::Error;
use crate::train::agree::Session;
use crate::train::evaluate::{Detail, EvaluationResult, NumberResults, file_name, spread};
use crate::train::plan::run::Run;
use crate::train::plan::source::Source;
use crate::train::reduce::gradients::GradientSum;

/// Number of training images to show.
const SAMPLES: u64 = 8;
/// Number of epochs for which each image is shown with its augmentation.
const EPOCHS: u32 = 3;
/// Minimum time between two evaluations that are sent to the outputs during training.
const APART: Duration = Duration::from_secs(30);

/// Data for report.html in addition to the log.
#[derive(Default)]
pub(super) struct PageData {
    page: bool,
    /// True if any output needs this data.
    wanted: bool,
    root: bool,
    last: Option<EvaluationFile>,
    augmented: Option<Vec<Thumbnail>>,
    /// Time and step of the last evaluation that was sent to the outputs.
    last_sent: Option<(Instant, u64)>,
}

impl PageData {
    /// Creates the collector that the recipe needs. `root` is true on rank 0.
    pub fn new<B: Backend>(run: &Run<B>, root: bool) -> Self {
        let (page, events) = (run.recipe.log.report(), run.recipe.log.tensorboard());
        Self { page, wanted: page || events, root, ..Self::default() }
    }

    /// Returns which results evaluations must collect for the page. Equal on every rank.
    pub fn detail(&self) -> Detail {
        if self.wanted { Detail::Outcomes } else { Detail::Score }
    }

    /// Stores the results for each image or class after an epoch, if the evaluation has kept them. `when` has the step and the epoch.
    pub fn store<B: Backend>(
        &mut self,
        run: &Run<B>,
        when: (u64, u32),
        result: &EvaluationResult,
        report: &mut Reporter,
    ) -> Result<(), Error> {
        let (Some(evaluation), true) = (&run.evaluation, self.root && self.wanted) else { return Ok(()) };
        let split = &evaluation.split;
        let EvaluationResult { score, predictions, per_class, numbers, .. } = result;
        let file = if let Some(predictions) = predictions {
            EvaluationFile::new(when, split.name(), split.class_names(), predictions)
        } else if let Some(classes) = per_class {
            let LabelScores { map, micro_f1, macro_f1 } = score.several.unwrap_or_default();
            let [map, micro_f1] = [map, micro_f1].map(|share| Some(share).filter(|share| share.is_finite()));
            let average_precision = classes.iter().map(|class| class.average_precision).collect();
            let several = MultiLabelScores { images: score.count, map, micro_f1, average_precision };
            EvaluationFile::of_classes(when, split.name(), split.class_names(), classes, several, macro_f1)
        } else if let Some(NumberResults { per_target, outcomes: Some(outcomes) }) = numbers {
            EvaluationFile::of_numbers(when, split.name(), per_target, outcomes)
        } else {
            return Ok(());
        };
        self.last = Some(file);
        if self.augmented.is_none() {
            let pictures = self.augmented.insert(augmented(&run.source));
            report.pictures(when.0, pictures)?;
        }
        let due = self.last_sent.is_none_or(|(when, _)| when.elapsed() >= APART);
        if due { self.send(report) } else { Ok(()) }
    }

    fn send(&mut self, report: &mut Reporter) -> Result<(), Error> {
        let Some(last) = &self.last else { return Ok(()) };
        self.last_sent = Some((Instant::now(), last.step));
        Ok(report.evaluation(last)?)
    }

    /// Sends the last evaluation to the outputs and writes evaluation.json. Logs a warning if that fails. Called when
    /// the run is complete, or when it stops early and can be resumed.
    pub fn finish<B: Backend>(&mut self, out: &Path, run: &Run<B>, report: &mut Reporter) {
        if !self.root || !self.wanted {
            return;
        }
        if self.last.as_ref().map(|last| last.step) != self.last_sent.map(|(_, step)| step)
            && let Err(error) = self.send(report)
        {
            report.note(&format!("warning: {error}"));
        }
        let Some(file) = self.last.as_mut().filter(|_| self.page) else { return };
        if let Some(evaluation) = &run.evaluation {
            let (split, bands) = (&evaluation.split, run.recipe.log.shown_bands());
            let mut pictures = Viewer::new(&run.source.manifest, split, &[], 0, &bands).ok();
            for one in &mut file.worst {
                one.file = file_name(split, one.id);
                let picture = pictures.as_mut().and_then(|pictures| pictures.thumbnail(one.id, 0).ok());
                one.picture = picture.as_ref().map(evaluation_file::address);
            }
        }
        file.augmented = self.augmented.iter().flatten().map(Into::into).collect();
        let path = out.join(evaluation_file::NAME);
        let text = file.to_text().map_err(|e| e.to_string());
        let written = text.and_then(|text| replace::replace(&path, text.as_bytes()).map_err(|e| e.to_string()));
        if let Err(why) = written {
            report.note(&format!("warning: cannot write {}: {why}", path.display()));
        }
    }
}

/// Returns training images with the augmentation of the first epochs, in the size of the first epoch. Omits images that cannot be read.
fn augmented(source: &Source) -> Vec<Thumbnail> {
    let (train, ops) = (&source.train, source.augment(0).ops());
    let recipe = &source.recipe;
    let viewer = Viewer::new(&source.manifest, train, &ops, recipe.seed, &recipe.log.shown_bands());
    let Ok(mut viewer) = viewer else { return Vec::new() };
    let ids = spread(SAMPLES.min(train.len()), train.len());
    let views = ids.flat_map(|id| (0..EPOCHS).map(move |epoch| (id, epoch)));
    views.filter_map(|(id, epoch)| viewer.thumbnail(id, epoch).ok()).collect()
}

/// Writes the report page for the run in `out` after it has ended or stopped. Prints a warning if that fails.
pub(super) fn write(out: &Path) {
    // This process still holds the folder's lock. Without `released`, the page would say "running" about a stopped run.
    let released = |run: FinishedRun| FinishedRun { released: true, ..run };
    let text = FinishedRun::open(out)
        .map(|run| page::render(&[released(run)], None, recipe::keys::is_default))
        .map_err(|e| e.to_string());
    let path = out.join(page::NAME);
    let written = text.and_then(|text| loaders::replace::replace(&path, text.as_bytes()).map_err(|e| e.to_string()));
    if let Err(why) = written {
        screen::say(&format!(
            "warning: cannot write {}: {why}; `trireme report {}` writes it later",
            page::NAME,
            out.display()
        ));
    }
}

// `log.histograms`: the statistics of weights and gradients. After the sum all ranks have the same gradients, so the
// statistics on rank 0 do not depend on the number of ranks.

/// Returns true if weights and gradients are measured in the step after `at`.
pub(super) fn due<B: Backend>(run: &Run<B>, at: &Progress) -> bool {
    run.recipe.log.histograms.is_some_and(|every| (at.step + 1).is_multiple_of(every))
}

/// Measures weights and gradients of the step after `at`. Call this after the gradients are summed and before the
/// optimizer uses them. Gradients are divided by the loss scale. Frozen parameters have the gradient 0. Returns `None` on
/// all ranks except 0. Collective.
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
        let gradient = match graph.trains(graph.params()[index].slot.bucket) {
            true => graph.gradient(index)?,
            false => vec![0.0; elements[index]],
        };
        tensors.push(TensorSpread {
            name: graph.params()[index].name.clone(),
            elements: elements[index] as u64,
            weight: Spread::of(&graph.param(index)?, 1.0),
            gradient: Spread::of(&gradient, factor),
            zero_codes,
        });
    }
    Ok(Some(Layers { step: at.step + 1, epoch: at.epoch, tensors }))
}
