//! `[distill]`: a teacher.

use schema::{Range, section};

section! {
    /// Training by what a trained network says of the same images, beside their labels. [numbers.md](numbers.md#distillation) has the
    /// formula.
    pub struct DistillSpec {
        /// The trained network: a run's folder, model.h5 or a checkpoint. It must have the data set's classes, and the transforms' image
        /// size.
        absent teacher: String = "no teacher";
        /// Share of the loss that is the divergence from the teacher; the rest is that of the labels.
        optional share: f64 = 0.5, in Range::Probability;
        /// By which the scores of both are divided before their softmax.
        optional temperature: f64 = 4.0, in Range::PositiveF32;
    }
}

impl DistillSpec {
    /// Refuses keys without a teacher.
    ///
    /// # Errors
    /// The key, and what is wrong with it.
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        let idle = [("distill.share", self.share.is_some()), ("distill.temperature", self.temperature.is_some())];
        match idle.into_iter().find(|(_, given)| *given && self.teacher.is_none()) {
            Some((key, _)) => Err((key, "has no meaning without distill.teacher, a trained network".into())),
            None => Ok(()),
        }
    }
}
