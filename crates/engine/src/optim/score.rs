//! The scores that recipes can name, and rules for comparing them.

use std::fmt;
use std::str::FromStr;

use schema::{TextForm, words};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Share of images for which the class with the highest score is correct.
    Top1,
    /// Share of images with a correct class among the five highest scores.
    Top5,
    Loss,
    /// Mean over the classes of their F1 scores.
    MacroF1,
    /// Mean over the classes of their average precisions.
    Map,
    /// Root mean squared error, as a mean over the targets. Only if labels are numbers.
    Rmse,
    /// Mean absolute error, as a mean over the targets. Only if labels are numbers.
    Mae,
    /// Coefficient of determination, as a mean over the targets. Only if labels are numbers.
    R2,
}

words! { Measure { Top1 = "top1", Top5 = "top5", Loss = "loss", MacroF1 = "macro_f1", Map = "map", Rmse = "rmse",
Mae = "mae", R2 = "r2" } }

impl Measure {
    /// Returns true if a lower score is better.
    pub fn falls(self) -> bool {
        matches!(self, Self::Loss | Self::Rmse | Self::Mae)
    }

    /// Returns true if the score is a fraction from 0 to 1.
    pub fn is_share(self) -> bool {
        matches!(self, Self::Top1 | Self::Top5 | Self::MacroF1 | Self::Map)
    }

    /// Returns true if the score exists for labels that are numbers, or for labels that are classes.
    pub fn exists(self, numbers: bool) -> bool {
        match self {
            Self::Loss => true,
            Self::Rmse | Self::Mae | Self::R2 => numbers,
            Self::Top1 | Self::Top5 | Self::MacroF1 | Self::Map => !numbers,
        }
    }
}

/// The name of a score: `top1`, or `ema.top1` for the averaged weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScoreName {
    /// True for a score of the averaged weights.
    pub ema: bool,
    pub measure: Measure,
}

/// The scores of one model, see [`Measure`] for their definitions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scores {
    pub top1: f64,
    pub top5: f64,
    pub loss: f64,
    /// `None` if it was not computed.
    pub macro_f1: Option<f64>,
    /// `None` if it was not computed.
    pub map: Option<f64>,
    /// `None` if the labels are not numbers. The same applies to `mae` and `r2`.
    pub rmse: Option<f64>,
    pub mae: Option<f64>,
    pub r2: Option<f64>,
}

/// The results of evaluating a split of the data set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scoring {
    pub weights: Scores,
    /// Scores of the averaged weights, if they were computed.
    pub ema: Option<Scores>,
}

impl ScoreName {
    pub const TOP1: Self = Self { ema: false, measure: Measure::Top1 };
    pub const LOSS: Self = Self { ema: false, measure: Measure::Loss };

    /// Returns true if `score` is better than `than` by more than `by`, which is at least 0. NaN is worse than every
    /// number.
    pub fn better(self, score: f64, than: f64, by: f64) -> bool {
        match self.measure {
            _ if score.is_nan() || than.is_nan() => than.is_nan() && !score.is_nan(),
            measure if measure.falls() => score < than - by,
            _ => score > than + by,
        }
    }

    /// Returns true if a score is at least as good as a target.
    pub fn reaches(self, score: f64, target: f64) -> bool {
        match self.measure {
            measure if measure.falls() => score <= target,
            _ => score >= target,
        }
    }
}

impl Scoring {
    /// Returns the score with this name, or `None` if it was not computed.
    pub fn get(&self, name: ScoreName) -> Option<f64> {
        let of = if name.ema { self.ema } else { Some(self.weights) };
        of.and_then(|scores| match name.measure {
            Measure::Top1 => Some(scores.top1),
            Measure::Top5 => Some(scores.top5),
            Measure::Loss => Some(scores.loss),
            Measure::MacroF1 => scores.macro_f1,
            Measure::Map => scores.map,
            Measure::Rmse => scores.rmse,
            Measure::Mae => scores.mae,
            Measure::R2 => scores.r2,
        })
    }
}

impl fmt::Display for ScoreName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.ema { "ema." } else { "" }, self.measure)
    }
}

impl FromStr for ScoreName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (ema, measure) = text.strip_prefix("ema.").map_or((false, text), |measure| (true, measure));
        let measure = measure.parse().map_err(|_| format!("expected {}, got \"{text}\"", Self::EXPECTED))?;
        Ok(Self { ema, measure })
    }
}

impl TextForm for ScoreName {
    const EXPECTED: &'static str = "\"top1\", \"top5\", \"loss\", \"macro_f1\" or \"map\", for numbers \"loss\", \"rmse\", \
        \"mae\" or \"r2\", or one of these for the averaged weights, such as \"ema.top1\"";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn score_names_round_trip_and_unknown_ones_are_refused() {
        for name in ["top1", "top5", "loss", "macro_f1", "map", "ema.top1", "ema.map", "rmse", "mae", "ema.r2"] {
            assert_eq!(name.parse::<ScoreName>().unwrap().to_string(), name);
        }
        assert_eq!("top1".parse(), Ok(ScoreName::TOP1));
        for name in ["", "acc", "ema", "ema.", "ema.ema.top1", "Top1"] {
            let error = name.parse::<ScoreName>().unwrap_err();
            assert!(error.ends_with(&format!("got \"{name}\"")) && error.contains("\"ema.top1\""), "{error}");
        }
    }

    #[test]
    fn better_means_higher_top1_or_lower_loss() {
        let (top1, loss) = (ScoreName::TOP1, ScoreName::LOSS);
        assert!(top1.better(0.5, 0.4, 0.0) && !top1.better(0.5, 0.5, 0.0) && !top1.better(0.5, 0.45, 0.0625));
        assert!(loss.better(0.4, 0.5, 0.0) && !loss.better(0.5, 0.5, 0.0) && !loss.better(0.45, 0.5, 0.0625));
        assert!(
            top1.better(0.0, f64::NAN, 0.0)
                && !top1.better(f64::NAN, 0.0, 0.0)
                && !loss.better(f64::NAN, f64::NAN, 0.0)
        );
        assert!(top1.reaches(0.75, 0.75) && !top1.reaches(0.5, 0.75) && !top1.reaches(f64::NAN, 0.0));
        let [rmse, r2]: [ScoreName; 2] = ["rmse", "r2"].map(|name| name.parse().unwrap());
        assert!(
            rmse.better(0.4, 0.5, 0.0)
                && rmse.reaches(3.0, 3.5)
                && r2.better(-0.1, -0.5, 0.0)
                && !r2.reaches(0.5, 0.75)
        );
        assert!(loss.reaches(0.75, 0.75) && !loss.reaches(1.0, 0.75));
    }

    #[test]
    fn scoring_returns_only_computed_scores() {
        let of = |top1| Scores { top1, top5: 0.9, loss: 1.5, map: Some(0.125), ..Scores::default() };
        let scoring = Scoring { weights: of(0.25), ema: Some(Scores { macro_f1: Some(0.5), ..of(0.75) }) };
        let get = |name: &str| scoring.get(name.parse().unwrap());
        assert_eq!((get("top1"), get("ema.top1"), get("loss")), (Some(0.25), Some(0.75), Some(1.5)));
        assert_eq!((get("map"), get("ema.map")), (Some(0.125), Some(0.125)));
        assert_eq!((get("macro_f1"), get("ema.macro_f1")), (None, Some(0.5)));
        assert_eq!(Scoring { ema: None, ..scoring }.get("ema.top1".parse().unwrap()), None);
    }
}
