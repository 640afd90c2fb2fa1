//! The `[schedule]` section of a recipe. To add a kind of decay, add a line to [`ScheduleKind`].

use schema::{Range, Section, check_section, kinds, number_text, section};

use super::decay::OneCycle;
use super::decay::Plateau;
use super::decay::WarmRestarts;
use super::decay::WarmupFrom;
use super::decay::{Constant, Cosine, Decay, Exponential, Polynomial, ScheduleError, Step};

kinds! {
    /// The kinds of decay.
    pub enum ScheduleKind: Decay {
        "constant" => Constant(Constant),
        "step" => Step(Step),
        "cosine" => Cosine(Cosine),
        "polynomial" => Polynomial(Polynomial),
        "exponential" => Exponential(Exponential),
        "one_cycle" => OneCycle(OneCycle),
        "warm_restarts" => WarmRestarts(WarmRestarts),
        "plateau" => Plateau(Plateau),
    }
}

impl Default for ScheduleKind {
    fn default() -> Self {
        Self::Constant(Constant::default())
    }
}

section! {
    /// Learning rate: scaling with the batch size, linear warm-up, decay. Epochs may be fractions.
    pub struct ScheduleSpec (kind: ScheduleKind, last, "How the learning rate falls after the warm-up.") {
        /// Learning rate for reference_batch images per step.
        required base_lr: f64, in Range::AtLeast(0.0);
        /// Batch size of base_lr. The learning rate is multiplied by batch / reference_batch.
        absent reference_batch: usize = "no scaling", in Range::AtLeast(1.0);
        /// Epochs of linear warm-up, updated each step. Must be less than epochs.
        default warmup_epochs: f64 = 0.0, in Range::AtLeast(0.0);
        /// Learning rate at the start of the warm-up. "base" is base_lr.
        absent warmup_from: WarmupFrom = "\"base\" if the target is higher, else 0", in Range::AtLeast(0.0);
        /// Written by --extend-epochs, as pairs of epochs. Each time the run was extended, the first number is the epoch of the extension
        /// and the second is the epoch at which the decay would have ended. If both are equal, the run had already ended, and later rates
        /// follow the longer run.
        absent stretched: Vec<f64> = "[]";
    }
}

impl ScheduleSpec {
    /// Returns a constant rate without scaling and warm-up.
    pub fn constant(lr: f64) -> Self {
        Self { base_lr: lr, ..Self::default() }
    }

    /// Checks each value with the schema and against the length of the run in epochs. The length is infinite if it is
    /// not known yet.
    pub fn check(&self, epochs: impl Into<f64>) -> Result<(), ScheduleError> {
        let epochs = epochs.into();
        let wrong = |key, why| Err(ScheduleError { key, why });
        let table = toml::Table::try_from(self).map_err(|e| ScheduleError { key: "kind", why: e.to_string() })?;
        check_section(&Self::SCHEMA, &table)
            .map_err(|fault| ScheduleError { key: fault.key, why: fault.problem.to_string() })?;
        let warmup = self.warmup_epochs;
        if warmup > 0.0 && warmup >= epochs {
            return wrong("warmup_epochs", format!("must be below epochs = {epochs}, got {}", number_text(warmup)));
        }
        if self.warmup_from.is_some() && warmup == 0.0 {
            return wrong("warmup_from", "has no effect with warmup_epochs = 0".into());
        }
        check_stretched(self.stretched.as_deref().unwrap_or_default())?;
        self.kind.settings().check(warmup)
    }
}

/// Returns an error if `schedule.stretched` is not a list of pairs, or if the extensions are not in order.
fn check_stretched(epochs: &[f64]) -> Result<(), ScheduleError> {
    let wrong = |why: String| Err(ScheduleError { key: "stretched", why });
    if !epochs.len().is_multiple_of(2) {
        return wrong(format!("expected pairs of epochs, such as [40, 80], got {} numbers", epochs.len()));
    }
    match epochs.chunks_exact(2).find(|pair| !(0.0 < pair[0] && pair[0] <= pair[1])) {
        Some(pair) => wrong(format!("a decay that ends at epoch {} cannot be stretched at epoch {}", pair[1], pair[0])),
        None if !epochs.iter().step_by(2).is_sorted() => wrong("the first numbers of its pairs must ascend".into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_that_cannot_be_are_refused() {
        for bad in [&[1.0][..], &[3.0, 2.0], &[0.0, 2.0], &[3.0, 5.0, 2.0, 9.0], &[f64::NAN, 1.0]] {
            assert_eq!(check_stretched(bad).unwrap_err().key, "stretched", "{bad:?}");
        }
    }
}
