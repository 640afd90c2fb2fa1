//! The files of a run: model.h5 and the models at the ends of epochs. Rank 0 alone writes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::evaluate::Score;
use super::prepare::{Request, Run};
use super::session::Session;
use super::{Error, model};
use crate::backend::Backend;
use crate::checkpoint::ModelFile;
use crate::recipe;
use crate::report::{Checkpoint, Reporter};
use loaders::Images;

/// Writes models under the output folder; on ranks other than 0 it does nothing.
pub struct Output {
    root: bool,
    out: PathBuf,
    keep: usize,
    written: Vec<PathBuf>,
}

impl Output {
    /// For this run.
    pub fn new<B: Backend>(session: &Session, request: &Request, run: &Run<B>) -> Self {
        Self {
            root: session.is_root(),
            out: request.out.clone(),
            keep: run.recipe.checkpoint.keep,
            written: Vec::new(),
        }
    }

    /// Where the final model goes.
    pub fn model_path(&self) -> PathBuf {
        self.out.join("model.h5")
    }

    /// A model at the end of an epoch; the oldest beyond `checkpoint.keep` goes.
    pub fn checkpoint<B: Backend>(
        &mut self,
        run: &mut Run<B>,
        epoch: u32,
        step: u64,
        score: Option<Score>,
        report: &mut Reporter,
    ) -> Result<(), Error> {
        if !self.root {
            return Ok(());
        }
        let path = self.out.join("checkpoints").join(format!("epoch-{epoch:04}.h5"));
        file(run, u64::from(epoch), step, score)?.write(&path)?;
        self.written.push(path.clone());
        if self.written.len() > self.keep {
            let oldest = self.written.remove(0);
            std::fs::remove_file(&oldest)
                .map_err(|e| Error::Failed(format!("cannot remove the old checkpoint {}: {e}", oldest.display())))?;
        }
        report.event(Checkpoint { step, epoch, path })?;
        Ok(())
    }

    /// The one final model.
    pub fn model<B: Backend>(&self, run: &mut Run<B>, step: u64, score: Option<Score>) -> Result<(), Error> {
        if !self.root {
            return Ok(());
        }
        let epoch = step.div_ceil(run.division.steps_per_epoch);
        Ok(file(run, epoch, step, score)?.write(&self.model_path())?)
    }
}

/// All that a model file says; nothing of it depends on ranks, hosts, times or speeds.
fn file<B: Backend>(run: &mut Run<B>, epoch: u64, step: u64, score: Option<Score>) -> Result<ModelFile, Error> {
    let input = run.graph.net().input;
    let image = match run.source.preprocess.input() {
        Images::Fixed(spec) => [spec.channels, spec.height, spec.width],
        Images::Varied { channels } => [channels, 0, 0],
    };
    let mut scores = BTreeMap::new();
    if let (Some(score), Some(evaluation)) = (score, &run.evaluation) {
        let split = evaluation.split.name();
        for (name, value) in [("top1", score.top1), ("top5", score.top5), ("loss", score.loss)] {
            scores.insert(format!("{split}/{name}"), value);
        }
    }
    let layers = model::layers(&run.graph)?;
    let ema = run.ema.as_mut().map(|ema| ema.with(&mut run.graph, |graph| model::layers(graph))).transpose()?;
    let mut recipe = run.recipe.clone();
    // how the run was driven is no part of what was computed
    recipe.loader = recipe::Loader { on_corrupt: recipe.loader.on_corrupt, ..Default::default() };
    Ok(ModelFile {
        network: recipe.model.clone(),
        input: [input.c, input.h, input.w],
        image: image.map(|n| n as usize),
        classes: run.source.train.class_names().to_vec(),
        preprocess: run.source.preprocess.ops(),
        mean: run.source.manifest.mean.clone(),
        std: run.source.manifest.std.clone(),
        recipe: recipe.to_toml()?,
        scores,
        epoch,
        step,
        layers,
        ema: ema.unwrap_or_default(),
    })
}
