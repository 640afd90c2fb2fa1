//! The scoring at the end of an epoch: when it is due, of the weights and of their averages, and what follows from it.

use super::evaluate::{Detail, Evaluated, Score};
use super::rules::{self, Ending, Scored};
use super::{RunContext, Training};
use crate::backend::Backend;
use crate::checkpoint::Sums;
use crate::error::Error;
use crate::optim::score::{Measure, Scores, Scoring};
use crate::report::Eval;
use crate::report::predictions::Predictions;

/// The scores of one model, and what was made of each image, on rank 0, where it was wanted.
struct Found {
    eval: Eval,
    predictions: Option<Predictions>,
}

impl Found {
    fn scores(&self) -> Scores {
        let Eval { top1, top5, loss, macro_f1, .. } = self.eval;
        Scores { top1, top5, loss, macro_f1 }
    }
}

impl<B: Backend> Training<'_, B> {
    /// Scores the data set's test or validation split, if it has one and this epoch is to be scored, and draws the consequences.
    pub(super) fn score(&mut self) -> Result<Scored, Error> {
        let epoch = self.at.epoch + 1;
        let due = self.at.step >= self.last || self.run.recipe.eval.scores(epoch);
        if self.run.evaluation.is_none() || !due {
            return Ok(Scored::Other);
        }
        let Some(mut weights) = self.evaluate(false)? else { return Ok(Scored::Stopped) };
        let averages = self.run.recipe.scores_averages() && self.run.strategy.sums_gradients();
        let mut ema = if averages { self.evaluate(true)? } else { None };
        if averages && ema.is_none() {
            return Ok(Scored::Stopped);
        }
        // an epoch that --max-steps cuts short is no epoch of the run
        let whole = self.run.ends_epoch(&self.at);
        let scoring = Scoring { weights: weights.scores(), ema: ema.as_ref().map(Found::scores) };
        let best = whole && self.take(&scoring);
        let by = self.run.recipe.best_by();
        let chosen = if by.ema { ema.as_mut() } else { Some(&mut weights) };
        chosen.into_iter().for_each(|found| found.eval.best = best.then(|| by.to_string()));
        for Found { eval, predictions } in std::iter::once(weights).chain(ema) {
            let shown = predictions.filter(|_| !eval.ema);
            self.report.event(eval)?;
            shown.map_or(Ok(()), |found| self.shown.evaluated(&self.run, &self.at, &found, &mut self.report))?;
        }
        if whole {
            self.follow();
        }
        Ok(if best { Scored::Best } else { Scored::Other })
    }

    /// Scores the weights, or with `ema` their averages; none if a rank received a request to stop.
    fn evaluate(&mut self, ema: bool) -> Result<Option<Found>, Error> {
        let f1 =
            self.run.recipe.scores_used().iter().any(|(_, name)| name.ema == ema && name.measure == Measure::MacroF1);
        let detail = match (f1, ema) {
            (true, _) => Detail::Outcomes,
            (false, true) => Detail::Score,
            (false, false) => self.shown.detail(),
        };
        let RunContext { session, stop, .. } = self.context;
        let run = &mut self.run;
        let Some(evaluation) = &run.evaluation else { return Ok(None) };
        let evaluated = match run.ema.as_mut().filter(|_| ema) {
            Some(averages) => averages.with(&mut run.graph, |graph| evaluation.run(session, graph, stop, detail))?,
            None => evaluation.run(session, &mut run.graph, stop, detail)?,
        };
        let Some(Evaluated { score, predictions }) = evaluated else { return Ok(None) };
        let Score { top1, top5, loss, count } = score;
        let macro_f1 = match f1 {
            // rank 0 alone has them; its bits are everyone's
            true => {
                let own = predictions.as_ref().map(|found| found.macro_f1().to_bits());
                Some(f64::from_bits(session.comm.broadcast("the mean F1", own.as_ref())?))
            }
            false => None,
        };
        let (at, split) = (&mut self.at, evaluation.split.name().to_string());
        if !ema {
            at.score = Some(Sums { loss, top1, top5, count });
        }
        let (step, epoch) = (at.step, at.epoch + 1);
        let eval = Eval { step, epoch, split, top1, top5, loss, count, macro_f1, ema, best: None };
        Ok(Some(Found { eval, predictions }))
    }

    /// Takes in the scores of an epoch; true if no score so far was better.
    fn take(&mut self, scoring: &Scoring) -> bool {
        let warm = self.at.step >= self.run.schedule.warmup_steps();
        rules::take(&self.run.recipe, &mut self.at, scoring, warm)
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
