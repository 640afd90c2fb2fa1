//! `[mix]`: images and labels that are mixed with each other.

use loaders::MixSettings;
use schema::{Range, section};

section! {
    /// Images of a worker's share mixed with each other, and their labels with them: image i of n with image n - 1 - i, all by one draw of
    /// worker, epoch and step, as timm mixes a batch. The words are timm's. Without `mixup` and `cutmix` nothing is mixed.
    pub struct MixSpec {
        /// Parameter of the beta distribution of the share that an image keeps where two are added up (mixup); 0: no mixup.
        absent mixup: f64 = "no mixup", in Range::NonNegativeF32;
        /// The same of the area that an image keeps where it takes a rectangle of another (CutMix); 0: no CutMix.
        absent cutmix: f64 = "no CutMix", in Range::NonNegativeF32;
        /// Probability of CutMix where there are both.
        optional switch: f64 = 0.5, in Range::Probability;
        /// Probability that a share is mixed.
        optional prob: f64 = 1.0, in Range::Probability;
    }
}

impl MixSpec {
    /// How batches are mixed; none where they are not.
    pub fn settings(&self) -> Option<MixSettings> {
        let (mixup, cutmix) = (self.mixup.unwrap_or(0.0), self.cutmix.unwrap_or(0.0));
        let (switch, prob) = (self.switch(), self.prob());
        (mixup > 0.0 || cutmix > 0.0).then_some(MixSettings { mixup, cutmix, switch, prob })
    }

    /// For the log.
    pub fn describe(&self) -> Option<String> {
        let MixSettings { mixup, cutmix, switch, prob } = self.settings()?;
        let how = match (mixup > 0.0, cutmix > 0.0) {
            (true, true) => format!("mixup {mixup} or CutMix {cutmix} (with probability {switch})"),
            (true, false) => format!("mixup {mixup}"),
            _ => format!("CutMix {cutmix}"),
        };
        let often = if prob < 1.0 { format!(", with probability {prob}") } else { String::new() };
        Some(format!("{how}, within each worker's share{often}"))
    }

    /// Refuses keys without a meaning, and shares of a batch in which no image has a partner.
    ///
    /// # Errors
    /// The key, and what is wrong with it.
    pub(super) fn check(&self, batch: usize, workers: Option<usize>) -> Result<(), (&'static str, String)> {
        let Some(MixSettings { mixup, cutmix, .. }) = self.settings() else {
            let idle = [("mix.switch", self.switch.is_some()), ("mix.prob", self.prob.is_some())];
            return match idle.into_iter().find(|(_, given)| *given) {
                Some((key, _)) => Err((key, "has no meaning without mix.mixup or mix.cutmix above 0".into())),
                None => Ok(()),
            };
        };
        if self.switch.is_some() && (mixup == 0.0 || cutmix == 0.0) {
            return Err(("mix.switch", "has no meaning without both mix.mixup and mix.cutmix above 0".into()));
        }
        let Some(workers) = workers.filter(|workers| batch / workers < 2) else { return Ok(()) };
        let key = if mixup > 0.0 { "mix.mixup" } else { "mix.cutmix" };
        let least = 2 * workers;
        Err((
            key,
            format!(
                "images are mixed within a worker's share, and batch = {batch} leaves some of {workers} workers a single image; use a \
                 batch of at least {least}, or fewer workers"
            ),
        ))
    }
}
