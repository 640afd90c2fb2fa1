//! The scoring at the end of an epoch: when it is due, of the weights and of their averages, and what follows from it.

use backend::Backend;
use engine::optim::score::{Measure, Scores, Scoring};
use formats::checkpoint::{LabelScores, Sums};
use report::Eval;
use report::predictions::{ClassScore, Predictions};

use super::evaluate::{Detail, Evaluated, Score};
use super::rules::{self, Ending, Scored};
use super::{RunContext, Training};
use crate::error::Error;
use crate::train::agree::session::Session;
use crate::train::observe::diagnose;

/// The scores of one model, and what was made of each image, on rank 0, where it was wanted.
struct Found {
    eval: Eval,
    predictions: Option<Predictions>,
    /// Of each class, where images may have several labels.
    per_class: Option<Vec<ClassScore>>,
    /// Written to files of the run.
    sums: Sums,
}

/// The largest loss of a model that is worth keeping. With a million the right class has a probability of e^-1000000.
const LARGEST_LOSS: f64 = 1e6;

/// Selects the split to score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    /// The split that is scored after each epoch.
    Watched,
    /// The split that is scored at the end of the run.
    AtEnd,
}

impl Found {
    fn scores(&self) -> Scores {
        let Eval { top1, top5, loss, macro_f1, map, .. } = self.eval;
        Scores { top1, top5, loss, macro_f1, map }
    }
}

impl<B: Backend> Training<'_, B> {
    /// Scores the watched split if the data set has one and this epoch is to be scored. Applies the rules that depend on the scores.
    pub(super) fn score(&mut self) -> Result<Scored, Error> {
        let epoch = self.at.epoch + 1;
        let due = self.at.step >= self.last || self.run.recipe.eval.scores(epoch);
        if self.run.evaluation.is_none() || !due {
            return Ok(Scored::Other);
        }
        let Some((mut weights, mut ema)) = self.evaluate_all(Which::Watched)? else { return Ok(Scored::Stopped) };
        self.at.score = Some(weights.sums);
        // --max-steps can add this evaluation or end its epoch early. The score may be the best, but [stop] and the plateau schedule skip
        // it. So the continued run is the same as one without --max-steps.
        let planned = self.run.recipe.eval.scores(epoch) || self.at.step >= self.run.schedule.total_steps();
        let whole = planned && self.run.ends_epoch(&self.at);
        let scoring = Scoring { weights: weights.scores(), ema: ema.as_ref().map(Found::scores) };
        let lost = self.lost(std::iter::once(&weights).chain(&ema));
        let best = lost.is_none() && self.take(&scoring, whole);
        let by = self.run.recipe.best_by();
        let chosen = if by.ema { ema.as_mut() } else { Some(&mut weights) };
        chosen.into_iter().for_each(|found| found.eval.best = best.then(|| by.to_string()));
        for Found { eval, predictions, per_class, .. } in std::iter::once(weights).chain(ema) {
            let (shown, classes) = (predictions.filter(|_| !eval.ema), per_class.filter(|_| !eval.ema));
            self.report.event(eval)?;
            shown.map_or(Ok(()), |found| self.shown.evaluated(&self.run, &self.at, &found, &mut self.report))?;
            if let Some(classes) = classes {
                self.shown.scored_classes(&self.run, &self.at, &classes, &mut self.report)?;
            }
        }
        if let Some(lost) = lost {
            return Err(lost);
        }
        if whole {
            self.follow();
        }
        Ok(if best { Scored::Best } else { Scored::Other })
    }

    /// Scores the split that is evaluated at the end of the run, if there is one. Returns false if a rank received a request to stop.
    pub(super) fn score_at_end(&mut self) -> Result<bool, Error> {
        if self.run.evaluation_at_end.is_none() {
            return Ok(true);
        }
        self.run.resize_for_scoring()?;
        let Some((weights, ema)) = self.evaluate_all(Which::AtEnd)? else { return Ok(false) };
        self.score_at_end = Some(weights.sums);
        let lost = self.lost(std::iter::once(&weights).chain(&ema));
        std::iter::once(weights).chain(ema).try_for_each(|found| self.report.event(found.eval))?;
        lost.map_or(Ok(true), Err)
    }

    /// Returns the error that ends the run if the loss of one of these scores is not finite or, at the end of the run, above
    /// [`LARGEST_LOSS`].
    fn lost<'f>(&self, mut scores: impl Iterator<Item = &'f Found>) -> Option<Error> {
        let largest = if self.at.step >= self.last { LARGEST_LOSS } else { f64::MAX };
        let Found { eval, .. } = scores.find(|found| found.eval.loss.is_nan() || found.eval.loss > largest)?;
        let whose = if eval.ema { "the averaged weights" } else { "the weights" };
        Some(diagnose::scored(&self.context.session.world, whose, &eval.split, self.at.step, eval.loss))
    }

    /// Scores the weights and, if the recipe wants it, their averages. Returns `None` if a rank received a request to stop.
    fn evaluate_all(&mut self, which: Which) -> Result<Option<(Found, Option<Found>)>, Error> {
        let Some(weights) = self.evaluate(which, false)? else { return Ok(None) };
        if !self.run.recipe.scores_averages() || !self.run.strategy.sums_gradients() {
            return Ok(Some((weights, None)));
        }
        Ok(self.evaluate(which, true)?.map(|averages| (weights, Some(averages))))
    }

    /// Scores the weights, or with `ema` their averages; none if a rank received a request to stop.
    fn evaluate(&mut self, which: Which, ema: bool) -> Result<Option<Found>, Error> {
        let used = |measure| self.run.recipe.scores_used().iter().any(|(_, n)| n.ema == ema && n.measure == measure);
        let detail = match (used(Measure::Map), used(Measure::MacroF1), ema) {
            (true, ..) => Detail::Precisions,
            (_, true, _) => Detail::Outcomes,
            (false, false, true) => Detail::Score,
            (false, false, false) if which == Which::Watched => self.shown.detail(),
            (false, false, false) => Detail::Score,
        };
        let goes_by = [used(Measure::MacroF1), used(Measure::Map)];
        let RunContext { session, stop, .. } = self.context;
        let run = &mut self.run;
        let evaluation = match which {
            Which::Watched => &run.evaluation,
            Which::AtEnd => &run.evaluation_at_end,
        };
        let Some(evaluation) = evaluation else { return Ok(None) };
        // the score has all that is kept of images that may have several labels
        let detail = if evaluation.split.multi_label() { Detail::Score } else { detail };
        let evaluated = match run.ema.as_mut().filter(|_| ema) {
            Some(averages) => averages.with(&mut run.graph, |graph| evaluation.run(session, graph, stop, detail))?,
            None => evaluation.run(session, &mut run.graph, stop, detail)?,
        };
        let Some(Evaluated { score, predictions, per_class, .. }) = evaluated else { return Ok(None) };
        let Score { top1, top5, loss, count, several } = score;
        let [macro_f1, map] = match several {
            Some(LabelScores { macro_f1, map, .. }) => [Some(macro_f1), Some(map)],
            None => over_classes(session, goes_by, predictions.as_ref())?,
        };
        // the final evaluation comes after the epoch was counted, unless --max-steps ended it early
        let epoch = self.at.epoch + u32::from(which == Which::Watched || self.at.step_of_epoch > 0);
        let eval = Eval {
            step: self.at.step,
            epoch,
            split: evaluation.split.name().to_string(),
            top1,
            top5,
            loss,
            count,
            macro_f1,
            micro_f1: several.map(|several| several.micro_f1),
            map: map.filter(|map| !map.is_nan()),
            ema,
            best: None,
            at_end: which == Which::AtEnd,
        };
        let sums = Sums { loss, top1, top5, count, several };
        Ok(Some(Found { eval, predictions, per_class, sums }))
    }

    /// Updates the best score with the scores of an epoch. If the epoch is `whole`, updates the rules of the run, too. Returns true if the
    /// new score is the best so far.
    fn take(&mut self, scoring: &Scoring, whole: bool) -> bool {
        let warm = self.at.step >= self.run.schedule.warmup_steps();
        if whole {
            rules::remember(&self.run.recipe, &mut self.at, scoring, warm);
        }
        rules::take_best(&self.run.recipe, &mut self.at, scoring)
    }

    /// Draws the consequences of the scores so far.
    fn follow(&mut self) {
        let at = &self.at;
        let before = self.run.schedule.drops();
        let drops = at.memory.plateau.map_or(0, |plateau| plateau.drops);
        if drops > before {
            self.run.schedule.set_drops(drops);
            let lr = self.run.schedule.lr(at.step);
            self.report.note(&format!("plateau: the learning rate falls to {lr:.4e} after step {}", at.step));
        }
        let ending = rules::ending(&self.run.recipe, &self.at);
        if let Some(ending) = ending {
            let seconds = self.seconds_so_far();
            self.seconds_to_target = seconds.filter(|_| matches!(ending, Ending::Target { .. }));
            self.report.note(&ending.text(self.at.step, seconds));
            (self.last, self.ended) = (self.at.step, Some(ending));
        }
    }
}

/// Mean F1 and mean average precision of images of one label, where the run goes by them. Rank 0 alone can tell; its bits are everyone's.
fn over_classes(
    session: &Session,
    goes_by: [bool; 2],
    predictions: Option<&Predictions>,
) -> Result<[Option<f64>; 2], Error> {
    let of = |found: &Predictions| [found.macro_f1(), found.mean_precision().unwrap_or(f64::NAN)].map(f64::to_bits);
    if goes_by == [false; 2] {
        return Ok([None; 2]);
    }
    let all: [u64; 2] = session.comm.broadcast("scores over classes", predictions.map(of).as_ref())?;
    Ok(std::array::from_fn(|i| goes_by[i].then(|| f64::from_bits(all[i]))))
}
