//! Evaluations during a run: when they are due, which weights they score, and which decisions follow from the scores.

use backend::Backend;
use engine::optim::schedule::ScheduleKind;
use engine::optim::score::{Measure, ScoreName, Scores, Scoring};
use formats::checkpoint::{Best, LabelScores, Progress, StopState};
use recipe::Recipe;
use report::Eval;
use report::predictions::Predictions;

use super::evaluate::{Detail, EvaluationResult};
use super::{RunContext, Training};
use crate::error::Error;
use crate::train::agree::Session;
use crate::train::observe::notices;

/// The scores of one set of weights. On rank 0 also the prediction for each image, if requested.
struct ModelScores {
    eval: Eval,
    /// Its scores are also in checkpoints and in the model file.
    result: EvaluationResult,
}

/// If the loss at the end of the run is larger, the run ends with an error. This is the square root of the largest f32, so that squares of
/// the network's outputs do not overflow.
const LARGEST_LOSS: f64 = 1.8e19;

/// Selects the split to score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScoredSplit {
    /// The split that is scored after each epoch.
    Watched,
    /// The split that is scored at the end of the run.
    AtEnd,
}

impl ModelScores {
    fn scores(&self) -> Scores {
        let Eval { top1, top5, loss, macro_f1, map, rmse, mae, r2, .. } = self.eval;
        Scores { top1, top5, loss, macro_f1, map, rmse, mae, r2 }
    }
}

impl<B: Backend> Training<'_, B> {
    /// Scores the split that is evaluated after each epoch, if there is one and the evaluation is due. Then applies the rules that depend
    /// on the scores.
    pub(super) fn score(&mut self) -> Result<ScoringResult, Error> {
        let epoch = self.epochs_begun();
        let due = self.at.step >= self.last || self.run.recipe.eval.scores(epoch);
        if self.run.evaluation.is_none() || !due {
            return Ok(ScoringResult::Other);
        }
        let Some((mut weights, mut ema)) = self.evaluate_all(ScoredSplit::Watched)? else {
            return Ok(ScoringResult::Stopped);
        };
        self.at.score = Some(weights.result.score);
        // --max-steps can add an evaluation that is not planned, or end an epoch early. Such a score may be the best, but `[stop]` and the
        // plateau schedule ignore it. So the run computes the same when it is continued without --max-steps.
        let planned = self.run.recipe.eval.scores(epoch) || self.at.step >= self.run.schedule.total_steps();
        let whole = planned && self.run.ends_epoch(&self.at);
        let scoring = Scoring { weights: weights.scores(), ema: ema.as_ref().map(ModelScores::scores) };
        let lost = self.lost(std::iter::once(&weights).chain(&ema));
        let best = lost.is_none() && self.take(&scoring, whole);
        let by = self.run.recipe.best_by();
        let chosen = if by.ema { ema.as_mut() } else { Some(&mut weights) };
        chosen.into_iter().for_each(|found| found.eval.best = best.then(|| by.to_string()));
        self.report.event(weights.eval)?;
        self.page_data.store(&self.run, (self.at.step, epoch), &weights.result, &mut self.report)?;
        ema.map_or(Ok(()), |ema| self.report.event(ema.eval))?;
        if let Some(lost) = lost {
            return Err(lost);
        }
        if whole {
            self.follow();
        }
        Ok(if best { ScoringResult::Best } else { ScoringResult::Other })
    }

    /// Returns the scored epoch's number, counted from 1. The progress may already be at the beginning of the next epoch.
    fn epochs_begun(&self) -> u32 {
        self.at.epoch + u32::from(self.at.step_of_epoch > 0)
    }

    /// Scores the split that is evaluated at the end of the run, if there is one. Returns false if a rank received a request to stop.
    pub(super) fn score_at_end(&mut self) -> Result<bool, Error> {
        if self.run.evaluation_at_end.is_none() {
            return Ok(true);
        }
        self.run.resize_for_scoring()?;
        let Some((weights, ema)) = self.evaluate_all(ScoredSplit::AtEnd)? else { return Ok(false) };
        self.score_at_end = Some(weights.result.score);
        let lost = self.lost(std::iter::once(&weights).chain(&ema));
        std::iter::once(weights).chain(ema).try_for_each(|found| self.report.event(found.eval))?;
        lost.map_or(Ok(true), Err)
    }

    /// Returns the error that ends the run if the loss of one of these scores is not finite or, at the end of the run, above
    /// [`LARGEST_LOSS`].
    fn lost<'f>(&self, mut scores: impl Iterator<Item = &'f ModelScores>) -> Option<Error> {
        let largest = if self.at.step >= self.last { LARGEST_LOSS } else { f64::MAX };
        let ModelScores { eval, .. } = scores.find(|found| found.eval.loss.is_nan() || found.eval.loss > largest)?;
        let whose = if eval.ema { "the averaged weights" } else { "the weights" };
        Some(notices::scored(&self.context.session.world, whose, &eval.split, self.at.step, eval.loss))
    }

    /// Scores the weights and, if the recipe requests it, the averaged weights. The averaged weights are not scored if ranks step
    /// independently. Returns `None` if a rank received a request to stop.
    fn evaluate_all(&mut self, which: ScoredSplit) -> Result<Option<(ModelScores, Option<ModelScores>)>, Error> {
        let Some(weights) = self.evaluate(which, false)? else { return Ok(None) };
        if !self.run.recipe.scores_averages() || !self.run.strategy.sums_gradients() {
            return Ok(Some((weights, None)));
        }
        Ok(self.evaluate(which, true)?.map(|averages| (weights, Some(averages))))
    }

    /// Scores the weights, or the averaged weights if `ema` is set. Returns `None` if a rank received a request to stop.
    fn evaluate(&mut self, which: ScoredSplit, ema: bool) -> Result<Option<ModelScores>, Error> {
        let used = |measure| self.run.recipe.scores_used().iter().any(|(_, n)| n.ema == ema && n.measure == measure);
        let detail = match (used(Measure::Map), used(Measure::MacroF1), ema) {
            (true, ..) => Detail::Precisions,
            (_, true, _) => Detail::Outcomes,
            (false, false, true) => Detail::Score,
            (false, false, false) if which == ScoredSplit::Watched => self.page_data.detail(),
            (false, false, false) => Detail::Score,
        };
        let goes_by = [used(Measure::MacroF1), used(Measure::Map)];
        let RunContext { session, stop, .. } = self.context;
        let epoch = self.epochs_begun();
        let run = &mut self.run;
        let evaluation = match which {
            ScoredSplit::Watched => &run.evaluation,
            ScoredSplit::AtEnd => &run.evaluation_at_end,
        };
        let Some(evaluation) = evaluation else { return Ok(None) };
        // for multi-label images, `Detail::Score` already includes the scores over classes
        let detail = if evaluation.split.multi_label() { Detail::Score } else { detail };
        let evaluated = match run.ema.as_mut().filter(|_| ema) {
            Some(averages) => averages.with(&mut run.graph, |graph| evaluation.run(session, graph, stop, detail))?,
            None => evaluation.run(session, &mut run.graph, stop, detail)?,
        };
        let Some(result) = evaluated else { return Ok(None) };
        let [macro_f1, map] = match result.score.several {
            Some(LabelScores { macro_f1, map, .. }) => [Some(macro_f1), Some(map)],
            None => over_classes(session, goes_by, result.predictions.as_ref())?,
        };
        let eval = Eval {
            step: self.at.step,
            epoch,
            split: evaluation.split.name().to_string(),
            macro_f1,
            map: map.filter(|map| !map.is_nan()),
            ema,
            at_end: which == ScoredSplit::AtEnd,
            ..result.event()
        };
        Ok(Some(ModelScores { eval, result }))
    }

    /// Updates the best score with the scores after an epoch. If `whole` is set, also updates the state of `[stop]` and of the plateau
    /// schedule. Returns true if the new score is the best so far.
    fn take(&mut self, scoring: &Scoring, whole: bool) -> bool {
        let warm = self.at.step >= self.run.schedule.warmup_steps();
        if whole {
            remember(&self.run.recipe, &mut self.at, scoring, warm);
        }
        take_best(&self.run.recipe, &mut self.at, scoring)
    }

    /// Lowers the learning rate or ends the run, if the scores so far require it.
    fn follow(&mut self) {
        let at = &self.at;
        let before = self.run.schedule.drops();
        let drops = at.rules.plateau.map_or(0, |plateau| plateau.drops);
        if drops > before {
            self.run.schedule.set_drops(drops);
            let lr = self.run.schedule.lr(at.step);
            self.report.note(&format!("plateau: the learning rate falls to {lr:.4e} after step {}", at.step));
        }
        let ending = ending(&self.run.recipe, &self.at);
        if let Some(ending) = ending {
            let seconds = self.seconds_so_far();
            self.seconds_to_target = seconds.filter(|_| matches!(ending, Ending::Target { .. }));
            self.report.note(&ending.text(self.at.step, seconds));
            (self.last, self.ended) = (self.at.step, Some(ending));
        }
    }
}

/// Returns the mean F1 and the mean average precision for single-label images, if a rule of the run needs them. Rank 0 computes and
/// broadcasts them, because only it has the predictions.
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

// Decisions that depend on the scores of a run: which checkpoint is the best, whether the run ends, and whether the plateau schedule lowers
// the rate. All ranks have the same scores, so all ranks make the same decisions.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScoringResult {
    /// A rank received a request to stop before the evaluation was complete.
    Stopped,
    /// The score is the best so far.
    Best,
    /// An earlier score was at least as good, or no evaluation was due.
    Other,
}

/// The reason why a run ends early.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    Target {
        name: ScoreName,
        score: f64,
        target: f64,
    },
    /// A score has not improved for a number of evaluations.
    Patience {
        name: ScoreName,
        best: f64,
        /// Number of evaluations since the best.
        since: u32,
    },
}

/// Updates the state of `[stop]` with new scores. After the warm-up, when `warm` is true, also updates the plateau
/// schedule.
pub fn remember(recipe: &Recipe, at: &mut Progress, scoring: &Scoring, warm: bool) {
    if let Some(score) = scoring.get(recipe.stop.score().value()).filter(|_| recipe.stop.is_set()) {
        at.rules.stop = Some(watch(recipe, at.rules.stop, score));
    }
    if let ScheduleKind::Plateau(plateau) = &recipe.schedule.kind
        && let Some(score) = scoring.get(plateau.score().value()).filter(|_| warm)
    {
        at.rules.plateau = Some(plateau.after(at.rules.plateau, score));
    }
}

/// Updates the best score. Returns true if the new score is the best so far.
pub fn take_best(recipe: &Recipe, at: &mut Progress, scoring: &Scoring) -> bool {
    let name = recipe.best_by();
    let Some(score) = scoring.get(name) else { return false };
    // a best score of another kind cannot be compared with the new score
    let before = at.best.take().filter(|best| best.by == name.to_string());
    // a resumed run may score the step of its best score again
    let better = before.as_ref().is_none_or(|best| best.step == at.step || name.better(score, best.score, 0.0));
    at.best = if better { Some(Best { by: name.to_string(), score, step: at.step }) } else { before };
    better
}

/// Returns the state of `[stop]` after the new score `score`.
fn watch(recipe: &Recipe, before: Option<StopState>, score: f64) -> StopState {
    let (name, by) = (recipe.stop.score().value(), recipe.stop.min_delta());
    match before {
        Some(StopState { best, since, .. }) if !name.better(score, best, by) => {
            StopState { best, last: score, since: since + 1 }
        }
        _ => StopState { best: score, last: score, since: 0 },
    }
}

/// Describes the rules of the recipe that depend on scores. Returns `None` if there are none.
pub fn describe(recipe: &Recipe) -> Option<String> {
    let (stop, name) = (&recipe.stop, recipe.stop.score().value());
    let best =
        recipe.checkpoint.best_by.as_ref().map(|by| format!("the checkpoint with the best {} is kept", by.value()));
    let patience = stop.patience.map(|most| format!("the run ends after {most} evaluations without a better {name}"));
    let target = stop.target.map(|target| format!("the run ends when {name} reaches {target}"));
    let all: Vec<String> = best.into_iter().chain(patience).chain(target).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Returns why a resumed run has already ended by the rules of this recipe, or `None` if it can continue.
pub fn over(recipe: &Recipe, at: &Progress) -> Option<Ending> {
    ending(recipe, at).filter(|_| at.step_of_epoch == 0)
}

/// Returns why the scores so far end the run, or `None` if they do not.
pub fn ending(recipe: &Recipe, at: &Progress) -> Option<Ending> {
    let StopState { best, last, since } = at.rules.stop?;
    let name = recipe.stop.score().value();
    let target = recipe.stop.target.filter(|target| name.reaches(last, *target));
    let patience = recipe.stop.patience.filter(|patience| since >= *patience);
    let reached = target.map(|target| Ending::Target { name, score: last, target });
    reached.or(patience.map(|_| Ending::Patience { name, best, since }))
}

impl Ending {
    pub fn word(&self) -> &'static str {
        match self {
            Ending::Target { .. } => "target",
            Ending::Patience { .. } => "patience",
        }
    }

    /// Returns advice on how to continue the run.
    pub fn cure(&self) -> &'static str {
        match self {
            Ending::Target { .. } => " It has reached stop.target; to continue, set another target",
            Ending::Patience { .. } => " It has reached stop.patience; to continue, set a larger stop.patience",
        }
    }

    /// Returns the message that the run ends after step `step`. `seconds` is the time from the first image to the score that ends it.
    pub fn text(&self, step: u64, seconds: Option<f64>) -> String {
        match *self {
            Ending::Target { name, score, target } => {
                let time = seconds.map_or(String::new(), |seconds| {
                    format!("; time to target {seconds:.2} s, counted as in MLPerf from the first image to this score")
                });
                format!("target: {name} {score:.4} has reached stop.target = {target} after step {step}{time}")
            }
            Ending::Patience { name, best, since } => format!(
                "stop: no better {name} than {best:.4} in {since} evaluations (stop.patience), so the run ends after step {step}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::run_state::PlateauState;
    use engine::optim::score::Scores;

    fn recipe(lines: &str, schedule: &str) -> Recipe {
        let text = format!(
            "model = \"lenet\"\ndata = \"d\"\nepochs = 3\nbatch = 8\n{lines}\n[optimizer]\nkind = \"sgd\"\n\
             [schedule]\nbase_lr = 0.1\n{schedule}"
        );
        Recipe::from_toml(&text).unwrap()
    }

    fn scoring(top1: f64, loss: f64) -> Scoring {
        Scoring { weights: Scores { top1, top5: 1.0, loss, ..Scores::default() }, ema: None }
    }

    /// Records the score and then decides whether it is the best, as training does.
    fn take(recipe: &Recipe, at: &mut Progress, scoring: &Scoring, warm: bool) -> bool {
        remember(recipe, at, scoring, warm);
        take_best(recipe, at, scoring)
    }

    /// Applies the scores in order, one per step. Returns the steps with a new best score, and the step at which the run ends.
    fn run(recipe: &Recipe, shares: &[f64]) -> (Vec<u64>, Option<u64>) {
        let (mut at, mut best) = (Progress::default(), Vec::new());
        for share in shares {
            at.step += 1;
            if take(recipe, &mut at, &scoring(*share, 1.0 - share), true) {
                best.push(at.step);
            }
            if ending(recipe, &at).is_some() {
                return (best, Some(at.step));
            }
        }
        (best, None)
    }

    #[test]
    fn patience_counts_evaluations_without_improvement() {
        let kind = "kind = \"constant\"";
        let shares = [0.2, 0.3, 0.3, 0.25, 0.31, 0.29, 0.3, 0.31];
        assert_eq!(run(&recipe("", kind), &shares), (vec![1, 2, 5], None));
        assert_eq!(run(&recipe("[stop]\npatience = 2", kind), &shares).1, Some(4));
        assert_eq!(run(&recipe("[stop]\npatience = 3", kind), &shares).1, Some(8));
        assert_eq!(run(&recipe("[stop]\npatience = 2\nscore = \"loss\"", kind), &shares).1, Some(4));
        // 0.31 is better than 0.3 by less than `min_delta`, so it does not count
        assert_eq!(run(&recipe("[stop]\npatience = 3\nmin_delta = 0.05", kind), &shares).1, Some(5));
        assert_eq!(run(&recipe("[stop]\ntarget = 0.3", kind), &shares).1, Some(2));
    }

    #[test]
    fn the_rules_are_described() {
        let kind = "kind = \"constant\"";
        assert_eq!(describe(&recipe("", kind)), None);
        let all =
            recipe("[stop]\npatience = 2\ntarget = 1.5\nscore = \"loss\"\n[checkpoint]\nbest_by = \"top5\"", kind);
        support::mentions(describe(&all).unwrap(), &["best top5", "after 2 ", "better loss", "reaches 1.5"]);
    }

    #[test]
    fn the_best_is_selected_by_the_score_in_the_recipe() {
        let by_loss = recipe("[checkpoint]\nbest_by = \"loss\"", "kind = \"constant\"");
        let mut at =
            Progress { best: Some(Best { by: "top1".into(), score: 0.9, step: 7 }), step: 9, ..Progress::default() };
        assert!(take(&by_loss, &mut at, &scoring(0.1, 2.0), true), "another score's best is forgotten");
        assert_eq!(at.best, Some(Best { by: "loss".into(), score: 2.0, step: 9 }));
        at.step = 10;
        assert!(
            !take(&by_loss, &mut at, &scoring(0.9, 2.5), true) && at.best.as_ref().is_some_and(|best| best.step == 9)
        );
        // NaN is never the best
        assert!(!take(&by_loss, &mut at, &scoring(0.9, f64::NAN), true));
        // a run that was stopped after its best score repeats the evaluation when it is resumed
        at.step = 11;
        for _ in 0..2 {
            assert!(take(&by_loss, &mut at, &scoring(0.9, 1.5), true));
        }
    }

    #[test]
    fn the_plateau_remembers_after_the_warm_up() {
        let plateau = recipe("", "kind = \"plateau\"\npatience = 0");
        let mut at = Progress::default();
        take(&plateau, &mut at, &scoring(0.1, 2.0), false);
        assert_eq!(at.rules.plateau, None);
        for _ in 0..3 {
            take(&plateau, &mut at, &scoring(0.1, 2.0), true);
        }
        assert_eq!(at.rules.plateau, Some(PlateauState { best: 2.0, since: 0, drops: 2, cooldown: 0 }));
    }

    #[test]
    fn the_reason_for_the_end_is_described() {
        let name = ScoreName::TOP1;
        let target = Ending::Target { name, score: 0.76, target: 0.759 };
        let parts = ["target: top1 0.7600 ", "stop.target = 0.759 ", "step 12", " 3.50 s"];
        support::mentions(target.text(12, Some(3.5)), &parts);
        let patience = Ending::Patience { name, best: 0.5, since: 3 };
        support::mentions(patience.text(12, None), &["top1", "0.5000", "3 evaluations", "stop.patience", "step 12"]);
    }
}
