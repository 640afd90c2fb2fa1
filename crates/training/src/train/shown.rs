//! What a run keeps for people to look at: what its last scoring made of each image, and pictures of what it trains on. On rank 0 alone;
//! a run is no worse for pictures that cannot be made.

use std::path::Path;
use std::time::{Duration, Instant};

use backend::Backend;
use data_tools::{Thumbnail, Thumbnails};
use formats::checkpoint::{LabelScores, Progress};
use loaders::replace;
use report::evaluation_file::SeveralLabels;
use report::predictions::{ClassScore, Predictions};
use report::{EvaluationFile, Reporter, evaluation_file};

use crate::error::Error;
use crate::train::evaluate::{Detail, file_name};
use crate::train::plan::run::Run;
use crate::train::plan::source::Source;

/// Training images that are shown.
const SAMPLES: u64 = 8;
/// Epochs in which each is shown.
const EPOCHS: u32 = 3;
/// Between two pictures of the confusion in event files.
const APART: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Default)]
pub(super) struct Shown {
    /// Whether report.html will be written.
    page: bool,
    /// Whether anything of this is wanted.
    wanted: bool,
    root: bool,
    last: Option<EvaluationFile>,
    augmented: Option<Vec<Thumbnail>>,
    /// When the last one was handed to the sinks, and its step.
    told: Option<(Instant, u64)>,
}

impl Shown {
    /// For a run as its recipe has it.
    pub fn new<B: Backend>(run: &Run<B>, root: bool) -> Self {
        let (page, events) = (run.recipe.log.report(), run.recipe.log.tensorboard());
        Self { page, wanted: page || events, root, ..Self::default() }
    }

    /// What is wanted of a scoring: the same on every rank.
    pub fn detail(&self) -> Detail {
        if self.wanted { Detail::Outcomes } else { Detail::Score }
    }

    /// Takes what the scoring at the end of an epoch made of each image.
    pub fn evaluated<B: Backend>(
        &mut self,
        run: &Run<B>,
        at: &Progress,
        predictions: &Predictions,
        report: &mut Reporter,
    ) -> Result<(), Error> {
        let (Some(evaluation), true) = (&run.evaluation, self.root && self.wanted) else { return Ok(()) };
        let split = &evaluation.split;
        let file = EvaluationFile::new(at.step, at.epoch + 1, split.name(), split.class_names(), predictions);
        self.take(run, at, file, report)
    }

    /// The same of images that may have several labels: the scores of each class.
    pub fn scored_classes<B: Backend>(
        &mut self,
        run: &Run<B>,
        at: &Progress,
        classes: &[ClassScore],
        report: &mut Reporter,
    ) -> Result<(), Error> {
        let (Some(evaluation), Some(score), true) = (&run.evaluation, &at.score, self.root && self.wanted) else {
            return Ok(());
        };
        let LabelScores { map, micro_f1, macro_f1 } = score.several.unwrap_or_default();
        let [map, micro_f1] = [map, micro_f1].map(|share| Some(share).filter(|share| share.is_finite()));
        let average_precision = classes.iter().map(|class| class.average_precision).collect();
        let several = SeveralLabels { images: score.count, map, micro_f1, average_precision };
        let (split, when) = (&evaluation.split, (at.step, at.epoch + 1));
        let names = split.class_names();
        let file = EvaluationFile::of_classes(when, split.name(), names, classes, several, macro_f1);
        self.take(run, at, file, report)
    }

    fn take<B: Backend>(
        &mut self,
        run: &Run<B>,
        at: &Progress,
        file: EvaluationFile,
        report: &mut Reporter,
    ) -> Result<(), Error> {
        self.last = Some(file);
        if self.augmented.is_none() {
            let pictures = self.augmented.insert(augmented(&run.source));
            report.pictures(at.step, pictures)?;
        }
        let due = self.told.is_none_or(|(when, _)| when.elapsed() >= APART);
        if due { self.tell(report) } else { Ok(()) }
    }

    fn tell(&mut self, report: &mut Reporter) -> Result<(), Error> {
        let Some(last) = &self.last else { return Ok(()) };
        self.told = Some((Instant::now(), last.step));
        Ok(report.evaluation(last)?)
    }

    /// The end of the run, or of a part of it: what was not told yet, and evaluation.json. What cannot be written is a line in the log.
    pub fn finish<B: Backend>(&mut self, out: &Path, run: &Run<B>, report: &mut Reporter) {
        if !self.root || !self.wanted {
            return;
        }
        if self.last.as_ref().map(|last| last.step) != self.told.map(|(_, step)| step)
            && let Err(error) = self.tell(report)
        {
            report.note(&format!("warning: {error}"));
        }
        let Some(file) = self.last.as_mut().filter(|_| self.page) else { return };
        if let Some(evaluation) = &run.evaluation {
            let mut pictures = Thumbnails::stored(&evaluation.split);
            for one in &mut file.worst {
                one.file = file_name(&evaluation.split, one.id);
                one.picture = pictures.of(one.id, 0).ok().as_ref().map(evaluation_file::address);
            }
        }
        file.augmented = self.augmented.iter().flatten().map(Into::into).collect();
        let path = out.join(evaluation_file::NAME);
        let text = file.to_text().map_err(|e| e.to_string());
        let written = text.and_then(|text| replace::replace(&path, text.as_bytes()).map_err(|e| e.to_string()));
        if let Err(why) = written {
            report.note(&format!("warning: no {}: {why}", path.display()));
        }
    }
}

/// A few training images, each as some epochs see it; those that cannot be shown are left out.
fn augmented(source: &Source) -> Vec<Thumbnail> {
    let (train, ops) = (&source.train, source.augment.ops());
    let viewer = Thumbnails::transformed(&source.manifest, train, &ops, source.recipe.seed);
    let Ok(mut viewer) = viewer else { return Vec::new() };
    let count = SAMPLES.min(train.len());
    let ids = (0..count).map(|k| (u128::from(k) * u128::from(train.len()) / u128::from(count)) as u64);
    let views = ids.flat_map(|id| (0..EPOCHS).map(move |epoch| (id, epoch)));
    views.filter_map(|(id, epoch)| viewer.of(id, epoch).ok()).collect()
}
