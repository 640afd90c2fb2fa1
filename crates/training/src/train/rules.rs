//! What follows from the scores of a run: which checkpoint is the best, whether the run is over, whether the plateau schedule lowers the
//! rate. All ranks have the same scores, and decide alike.

use engine::optim::schedule::{PlateauState, ScheduleKind};
use engine::optim::score::{ScoreName, Scoring};
use formats::checkpoint::{Best, Plateaued, Progress, Watched};
use recipe::Recipe;

/// What became of a scoring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scored {
    /// A rank received a request to stop before its end.
    Stopped,
    /// No score so far was better.
    Best,
    /// Some was, or nothing was to be scored.
    Other,
}

/// Why a run is over before its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    /// A score has come as far as it was to come.
    Target {
        /// Which.
        name: ScoreName,
        /// Its value.
        score: f64,
        /// What it was to reach.
        target: f64,
    },
    /// It did not get better for so long.
    Patience {
        /// Which.
        name: ScoreName,
        /// The best.
        best: f64,
        /// Scorings since the best.
        since: u32,
    },
}

/// Updates the state of `[stop]` and the plateau schedule with new scores. `warm`: the warm-up is over.
pub fn remember(recipe: &Recipe, at: &mut Progress, scoring: &Scoring, warm: bool) {
    if let Some(score) = scoring.get(recipe.stop.score().value()).filter(|_| recipe.stop.is_set()) {
        at.memory.stop = Some(watch(recipe, at.memory.stop, score));
    }
    if let ScheduleKind::Plateau(plateau) = &recipe.schedule.kind
        && let Some(score) = scoring.get(plateau.score().value()).filter(|_| warm)
    {
        let before = at.memory.plateau.map(|Plateaued { best, since, drops, cooldown }| PlateauState {
            best,
            since,
            drops,
            cooldown,
        });
        let PlateauState { best, since, drops, cooldown } = plateau.after(before, score);
        at.memory.plateau = Some(Plateaued { best, since, drops, cooldown });
    }
}

/// Updates the best score. Returns true if the new score is the best so far.
pub fn take_best(recipe: &Recipe, at: &mut Progress, scoring: &Scoring) -> bool {
    let name = recipe.best_by();
    let Some(score) = scoring.get(name) else { return false };
    // that of another score is no measure for this one
    let before = at.best.take().filter(|best| best.by == name.to_string());
    let better = before.as_ref().is_none_or(|best| name.better(score, best.score, 0.0));
    at.best = if better { Some(Best { by: name.to_string(), score, step: at.step }) } else { before };
    better
}

/// What `[stop]` remembers after a score.
fn watch(recipe: &Recipe, before: Option<Watched>, score: f64) -> Watched {
    let (name, by) = (recipe.stop.score().value(), recipe.stop.min_delta());
    match before {
        Some(Watched { best, since, .. }) if !name.better(score, best, by) => {
            Watched { best, last: score, since: since + 1 }
        }
        _ => Watched { best: score, last: score, since: 0 },
    }
}

/// What follows from scores, in words; nothing where no key asks for anything.
pub fn describe(recipe: &Recipe) -> Option<String> {
    let (stop, name) = (&recipe.stop, recipe.stop.score().value());
    let best =
        recipe.checkpoint.best_by.as_ref().map(|by| format!("the checkpoint with the best {} is kept", by.value()));
    let patience = stop.patience.map(|most| format!("the run ends after {most} scorings without a better {name}"));
    let target = stop.target.map(|target| format!("the run ends when {name} has reached {target}"));
    let all: Vec<String> = best.into_iter().chain(patience).chain(target).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Whether a run that goes on with this recipe is over already.
pub fn over(recipe: &Recipe, at: &Progress) -> Option<Ending> {
    ending(recipe, at).filter(|_| at.step_of_epoch == 0)
}

/// Whether the scores so far end a run.
pub fn ending(recipe: &Recipe, at: &Progress) -> Option<Ending> {
    let Watched { best, last, since } = at.memory.stop?;
    let name = recipe.stop.score().value();
    let target = recipe.stop.target.filter(|target| name.reaches(last, *target));
    let patience = recipe.stop.patience.filter(|patience| since >= *patience);
    let reached = target.map(|target| Ending::Target { name, score: last, target });
    reached.or(patience.map(|_| Ending::Patience { name, best, since }))
}

impl Ending {
    /// One word, for the log.
    pub fn word(&self) -> &'static str {
        match self {
            Ending::Target { .. } => "target",
            Ending::Patience { .. } => "patience",
        }
    }

    /// What to give so that the run goes on.
    pub fn cure(&self) -> &'static str {
        match self {
            Ending::Target { .. } => " It has reached stop.target; to go on, give another",
            Ending::Patience { .. } => " It was out of stop.patience; to go on, give more",
        }
    }

    /// In words, after an optimizer step; `seconds`: from the first image to this score.
    pub fn text(&self, step: u64, seconds: Option<f64>) -> String {
        match *self {
            Ending::Target { name, score, target } => {
                let time = seconds.map_or(String::new(), |seconds| {
                    format!("; time to it {seconds:.2} s, as MLPerf counts: from the first image to this score")
                });
                format!("target: {name} {score:.4} has reached stop.target = {target} after step {step}{time}")
            }
            Ending::Patience { name, best, since } => format!(
                "stop: no better {name} than {best:.4} in {since} scorings (stop.patience), so the run ends after step {step}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::optim::score::Scores;

    fn recipe(lines: &str, schedule: &str) -> Recipe {
        let text = format!(
            "model = \"lenet\"\ndata = \"d\"\nepochs = 3\nbatch = 8\n{lines}\n[optimizer]\nkind = \"sgd\"\n\
             [schedule]\nbase_lr = 0.1\n{schedule}"
        );
        Recipe::from_toml(&text).unwrap()
    }

    fn scoring(top1: f64, loss: f64) -> Scoring {
        Scoring { weights: Scores { top1, top5: 1.0, loss, macro_f1: None, map: None }, ema: None }
    }

    /// Calls both functions.
    fn take(recipe: &Recipe, at: &mut Progress, scoring: &Scoring, warm: bool) -> bool {
        remember(recipe, at, scoring, warm);
        take_best(recipe, at, scoring)
    }

    /// Takes in shares after one another; gives the steps of the best, and after which step the run is over.
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
    fn patience_counts_scorings_that_are_no_better() {
        let kind = "kind = \"constant\"";
        let shares = [0.2, 0.3, 0.3, 0.25, 0.31, 0.29, 0.3, 0.31];
        assert_eq!(run(&recipe("", kind), &shares), (vec![1, 2, 5], None));
        assert_eq!(run(&recipe("[stop]\npatience = 2", kind), &shares).1, Some(4));
        assert_eq!(run(&recipe("[stop]\npatience = 3", kind), &shares).1, Some(8));
        assert_eq!(run(&recipe("[stop]\npatience = 2\nscore = \"loss\"", kind), &shares).1, Some(4));
        // 0.31 is no better than 0.3 by more than 0.05
        assert_eq!(run(&recipe("[stop]\npatience = 3\nmin_delta = 0.05", kind), &shares).1, Some(5));
        assert_eq!(run(&recipe("[stop]\ntarget = 0.3", kind), &shares).1, Some(2));
    }

    #[test]
    fn rules_in_words() {
        let kind = "kind = \"constant\"";
        assert_eq!(describe(&recipe("", kind)), None);
        let all =
            recipe("[stop]\npatience = 2\ntarget = 1.5\nscore = \"loss\"\n[checkpoint]\nbest_by = \"top5\"", kind);
        let text = "the checkpoint with the best top5 is kept; the run ends after 2 scorings without a better loss; the run ends when loss \
                    has reached 1.5";
        assert_eq!(describe(&all).unwrap(), text);
    }

    #[test]
    fn what_is_best_goes_by_the_score_that_was_named() {
        let by_loss = recipe("[checkpoint]\nbest_by = \"loss\"", "kind = \"constant\"");
        let mut at =
            Progress { best: Some(Best { by: "top1".into(), score: 0.9, step: 7 }), step: 9, ..Progress::default() };
        assert!(take(&by_loss, &mut at, &scoring(0.1, 2.0), true), "another score's best is forgotten");
        assert_eq!(at.best, Some(Best { by: "loss".into(), score: 2.0, step: 9 }));
        at.step = 10;
        assert!(
            !take(&by_loss, &mut at, &scoring(0.9, 2.5), true) && at.best.as_ref().is_some_and(|best| best.step == 9)
        );
        // what is no number is never the best
        assert!(!take(&by_loss, &mut at, &scoring(0.9, f64::NAN), true));
    }

    #[test]
    fn the_plateau_remembers_after_the_warm_up() {
        let plateau = recipe("", "kind = \"plateau\"\npatience = 0");
        let mut at = Progress::default();
        take(&plateau, &mut at, &scoring(0.1, 2.0), false);
        assert_eq!(at.memory.plateau, None);
        for _ in 0..3 {
            take(&plateau, &mut at, &scoring(0.1, 2.0), true);
        }
        assert_eq!(at.memory.plateau, Some(Plateaued { best: 2.0, since: 0, drops: 2, cooldown: 0 }));
    }

    #[test]
    fn endings_in_words() {
        let name = ScoreName::TOP1;
        let target = Ending::Target { name, score: 0.76, target: 0.759 };
        let text = "target: top1 0.7600 has reached stop.target = 0.759 after step 12; time to it 3.50 s, as MLPerf counts: from the \
                    first image to this score";
        assert_eq!(target.text(12, Some(3.5)), text);
        let patience = Ending::Patience { name, best: 0.5, since: 3 };
        assert!(patience.text(12, None).contains("no better top1 than 0.5000 in 3 scorings"));
    }
}
