//! What follows from scores, over all sections of a recipe: which scores it uses, and keys that cannot be used with others.

use engine::optim::schedule::ScheduleKind;
use engine::optim::score::{Measure, ScoreName};
use schema::Parsed;

use super::error::{Error, Origin};
use super::recipe::Recipe;

impl Recipe {
    /// The scores on which something depends, with the key that names each.
    pub fn scores_used(&self) -> Vec<(&'static str, ScoreName)> {
        let best = self.checkpoint.best_by.as_ref().map(|by| ("checkpoint.best_by", by.value()));
        let stop = self.stop.is_set().then(|| ("stop.score", self.stop.score().value()));
        let plateau = match &self.schedule.kind {
            ScheduleKind::Plateau(plateau) => Some(("schedule.score", plateau.score().value())),
            _ => None,
        };
        best.into_iter().chain(stop).chain(plateau).collect()
    }

    /// Whether the averages are scored.
    pub fn scores_averages(&self) -> bool {
        self.ema.is_kept() && self.eval.ema()
    }

    /// Refuses averages that begin behind the last step of the run, once it is known how many steps an epoch has.
    ///
    /// # Errors
    /// With the key.
    pub fn averages_begin(&self, steps_per_epoch: u64) -> Result<(), Error> {
        let total = self.total_steps(steps_per_epoch);
        match self.ema.swa_start {
            Some(start) if u64::from(start).saturating_mul(steps_per_epoch) > total => {
                let why = format!(
                    "the run has {total} steps, {steps_per_epoch} an epoch, so nothing would be averaged after epoch {start}; give more \
                     steps, or an earlier epoch"
                );
                Err(Error::Value { place: "ema.swa_start".into(), why })
            }
            _ => Ok(()),
        }
    }

    /// The score by which the best checkpoint is kept.
    pub fn best_by(&self) -> ScoreName {
        self.checkpoint.best_by.as_ref().map_or(ScoreName::TOP1, Parsed::value)
    }
}

/// Keys of `[eval]` and `[stop]` that cannot be used, or not with others.
pub(super) fn check(recipe: &Recipe, origin: &Origin) -> Result<(), Error> {
    let refuse = |key: &str, why: String| Err(Error::Value { place: origin.of(key), why });
    let (eval, stop) = (&recipe.eval, &recipe.stop);
    if eval.offset() >= eval.every() && eval.offset() > 0 {
        return refuse("eval.offset", format!("must be below eval.every = {}, got {}", eval.every(), eval.offset()));
    }
    if eval.ema == Some(true) && !recipe.ema.is_kept() {
        return refuse("eval.ema", "has no meaning without ema.decay or ema.swa_start, which keep averages".into());
    }
    check_averages(recipe).or_else(|(key, why)| refuse(key, why))?;
    let share = stop.score().value().measure != Measure::Loss;
    match stop.target {
        Some(target) if share && !(0.0..=1.0).contains(&target) => {
            return refuse("stop.target", format!("a share lies between 0 and 1, as 0.759 for 75.9 %; got {target}"));
        }
        _ => {}
    }
    for (key, name) in recipe.scores_used().into_iter().filter(|(_, name)| name.ema) {
        if !recipe.ema.is_kept() {
            return refuse(
                key,
                format!("\"{name}\" needs averages; give ema.decay, as 0.999, or use \"{}\"", name.measure),
            );
        }
        if !recipe.scores_averages() {
            return refuse(key, format!("\"{name}\" needs scores of the averages; leave eval.ema = false out"));
        }
    }
    Ok(())
}

/// One kind of averages, within the run.
fn check_averages(recipe: &Recipe) -> Result<(), (&'static str, String)> {
    let ema = &recipe.ema;
    match (ema.swa_start, recipe.epochs) {
        (Some(_), _) if ema.decay.is_some() => {
            Err(("ema.swa_start", "cannot be combined with ema.decay; choose one of the two".into()))
        }
        (Some(start), Some(epochs)) if start > epochs => {
            Err(("ema.swa_start", format!("the run has {epochs} epochs, so nothing would be averaged; got {start}")))
        }
        (None, _) if ema.swa_every.is_some() => {
            Err(("ema.swa_every", "has no meaning without ema.swa_start, the first epoch that is averaged".into()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Known;
    use super::super::{Changes, Recipe};
    use super::*;

    /// A recipe of three epochs with these lines.
    fn read(lines: &str) -> Result<Recipe, String> {
        let text = format!(
            "model = \"lenet\"\ndata = \"d\"\nepochs = 3\nbatch = 8\n{lines}\n[optimizer]\nkind = \"sgd\"\n\
             [schedule]\nkind = \"constant\"\nbase_lr = 0.1\n"
        );
        let known = Known { models: &["lenet"], transforms: &[] };
        Recipe::parse(&text, "a.toml", &Changes::default(), &known)
            .map(|loaded| loaded.recipe)
            .map_err(|e| e.to_string())
    }

    #[track_caller]
    fn refused(lines: &str, parts: &[&str]) {
        let error = read(lines).unwrap_err();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }

    #[test]
    fn which_epochs_are_scored() {
        let scored = |lines: &str| {
            let eval = read(lines).unwrap().eval;
            (1..=9).filter(|epoch| eval.scores(*epoch)).collect::<Vec<_>>()
        };
        assert_eq!(scored("").len(), 9);
        assert_eq!(scored("[eval]\nevery = 4"), [4, 8]);
        assert_eq!(scored("[eval]\nevery = 4\noffset = 1"), [1, 5, 9]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_key() {
        refused("[eval]\nevery = 2\noffset = 2", &["a.toml: eval.offset: must be below eval.every = 2"]);
        refused("[eval]\nlimit = 0", &["eval.limit", ">= 1"]);
        refused("[eval]\nema = true", &["eval.ema: has no meaning without ema.decay or ema.swa_start"]);
        refused("[stop]\ntarget = 75.9", &["stop.target: a share lies between 0 and 1", "got 75.9"]);
        refused("[stop]\npatience = 2\nscore = \"acc\"", &["stop.score", "\"macro_f1\"", "\"acc\""]);
        refused(
            "[checkpoint]\nbest_by = \"ema.top1\"",
            &["checkpoint.best_by: \"ema.top1\" needs averages", "ema.decay"],
        );
        refused("[ema]\ndecay = 0.9\nswa_start = 2", &["ema.swa_start: cannot be combined with ema.decay"]);
        refused("[ema]\nswa_start = 4", &["ema.swa_start: the run has 3 epochs"]);
        refused("[ema]\nswa_every = 2", &["ema.swa_every: has no meaning without ema.swa_start"]);
        let off = "[stop]\npatience = 1\nscore = \"ema.loss\"\n[ema]\ndecay = 0.9\n[eval]\nema = false";
        refused(off, &["stop.score: \"ema.loss\"", "eval.ema = false"]);
    }

    #[test]
    fn averages_begin_within_a_run_of_steps() {
        let mut recipe = read("[ema]\nswa_start = 3").unwrap();
        (recipe.epochs, recipe.steps) = (None, Some(260));
        let error = recipe.averages_begin(100).unwrap_err().to_string();
        assert!(error.starts_with("ema.swa_start: the run has 260 steps, 100 an epoch"), "{error}");
        // the weights of the very last step are averaged
        recipe.steps = Some(300);
        assert!(recipe.averages_begin(100).is_ok());
        recipe.ema.swa_start = Some(u32::MAX);
        assert!(recipe.averages_begin(u64::MAX).is_err());
        recipe.ema.swa_start = None;
        assert!(recipe.averages_begin(100).is_ok());
    }

    #[test]
    fn a_loss_may_be_any_target() {
        let recipe = read("[stop]\ntarget = 1.5\nscore = \"loss\"\n[checkpoint]\nbest_by = \"macro_f1\"").unwrap();
        assert_eq!(recipe.stop.target, Some(1.5));
        assert_eq!(recipe.best_by().measure, Measure::MacroF1);
        assert_eq!(
            recipe.scores_used().iter().map(|one| one.0).collect::<Vec<_>>(),
            ["checkpoint.best_by", "stop.score"]
        );
    }
}
