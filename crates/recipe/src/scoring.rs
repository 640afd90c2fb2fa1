//! The sections `[eval]` and `[stop]`, and the interval in `[checkpoint]`: when and on which splits a run is evaluated, how often it saves
//! a checkpoint, and when it ends early.

use std::str::FromStr;
use std::time::Duration;

use base::text::did_you_mean;
use engine::optim::score::ScoreName;
use loaders::Manifest;
use schema::{Parsed, Range, quoted, section};

use super::error::Error;

section! {
    /// Evaluation during training.
    pub struct Eval {
        /// Epochs between two evaluations. The end of the run is always evaluated.
        optional every: u32 = 1, in Range::AtLeast(1.0);
        /// Shifts the evaluated epochs: offset, offset + every, ..., counted from 1. Must be below every. 0: every, 2
        /// every, ...
        optional offset: u32 = 0;
        /// Maximum number of images to evaluate, spread evenly over the split.
        absent limit: u64 = "all", in Range::AtLeast(1.0);
        /// Whether to average the scores of each image and its mirror image.
        optional flip: bool = false;
        /// Whether to average the scores of the four corners and the centre of each image, instead of using only
        /// center_crop. With flip, these are ten crops.
        optional corners: bool = false;
        /// Number of pixels by which two more views of each image are shifted along the diagonal. Together
        /// they have half of the weight in the average of the scores. 0: no such views.
        optional shift: u32 = 0;
        /// Whether to evaluate the averages of `[ema]` too.
        optional ema: bool = true;
    }
}

section! {
    /// Ends a run early, depending on its scores.
    pub struct Stop {
        /// The score that decides.
        optional score: Parsed<ScoreName> = Parsed::new("top1", ScoreName::TOP1);
        /// Number of consecutive evaluations without a better score after which the run ends.
        absent patience: u32 = "never", in Range::AtLeast(1.0) => changeable;
        /// Minimum difference by which a score must be better to count as better.
        optional min_delta: f64 = 0.0, in Range::AtLeast(0.0);
        /// Score at which the run ends, such as 0.759. The log then has the time to reach it, measured as in MLPerf.
        absent target: f64 = "none" => changeable;
    }
}

impl Eval {
    /// Returns true if this epoch is evaluated. Epochs are counted from 1.
    pub fn scores(&self, epoch: u32) -> bool {
        epoch % self.every() == self.offset()
    }
}

impl Stop {
    /// Returns true if a score can end the run.
    pub fn is_set(&self) -> bool {
        self.patience.is_some() || self.target.is_some()
    }
}

/// The splits that a run evaluates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScoredSplits {
    /// The split that is scored during training. Its scores select the best checkpoint and drive `[stop]` and the plateau schedule.
    pub watched: Option<String>,
    /// The split that is scored only once, at the end of the run. Nothing was selected by its scores, so they are unbiased.
    pub at_end: Option<String>,
}

impl ScoredSplits {
    /// Selects the splits for a run. The first split is `wanted` if the recipe names a split, otherwise `validation`, otherwise `test`. If
    /// it is `validation`, `test` is scored at the end. Splits without images count as missing, except `wanted`.
    ///
    /// # Errors
    /// Fails if `wanted` does not exist.
    pub fn of_run(wanted: Option<&str>, manifest: &Manifest) -> Result<Self, Error> {
        let watched = choose_split(wanted, ["validation", "test"], manifest)?;
        let left = watched.as_deref() == Some("validation") && has_images(manifest, "test");
        Ok(Self { watched, at_end: left.then(|| "test".to_string()) })
    }

    /// Returns the names of both splits.
    pub fn names(self) -> impl Iterator<Item = String> {
        self.watched.into_iter().chain(self.at_end)
    }
}

/// Selects the split for evaluating a finished model: `wanted`, otherwise `test`, otherwise `validation`. Returns `None` if neither has
/// images.
///
/// # Errors
/// Fails if `wanted` does not exist.
pub fn evaluation_split(wanted: Option<&str>, manifest: &Manifest) -> Result<Option<String>, Error> {
    choose_split(wanted, ["test", "validation"], manifest)
}

fn choose_split(wanted: Option<&str>, defaults: [&str; 2], manifest: &Manifest) -> Result<Option<String>, Error> {
    let Some(wanted) = wanted else {
        return Ok(defaults.into_iter().find(|split| has_images(manifest, split)).map(str::to_string));
    };
    if manifest.splits.contains_key(wanted) {
        return Ok(Some(wanted.to_string()));
    }
    let available: Vec<&str> = manifest.splits.keys().map(String::as_str).collect();
    let (has, hint) = (quoted(&available), did_you_mean(wanted, &available));
    let why = format!("the data set has no split \"{wanted}\"; it has {has}{hint}");
    Err(Error::Value { place: "eval_split".into(), why })
}

fn has_images(manifest: &Manifest, split: &str) -> bool {
    manifest.splits.get(split).is_some_and(|split| split.count > 0)
}

/// The interval between two checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    Time(Duration),
    /// A number of optimizer steps, at least 1.
    Steps(u64),
    /// A number of epochs, at least 1.
    Epochs(u32),
}

impl FromStr for Every {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "expected a time (\"10m\") or a whole number of steps (\"500 steps\") or epochs (\"2 epochs\"), at least 1, got \"{text}\""
            )
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let every = match words.as_slice() {
            [n, "step" | "steps"] => Every::Steps(n.parse().map_err(|_| expected())?),
            [n, "epoch" | "epochs"] => Every::Epochs(n.parse().map_err(|_| expected())?),
            _ => Every::Time(duration(text).map_err(|_| expected())?),
        };
        match every {
            Every::Steps(0) | Every::Epochs(0) => Err(expected()),
            every => Ok(every),
        }
    }
}

/// Parses days, hours, minutes and seconds, largest unit first, such as `1h30m`, `90s` or `0.5h`. The result is
/// positive.
pub fn duration(text: &str) -> Result<Duration, String> {
    let expected = || format!("expected a time greater than 0 such as \"1h30m\", \"10m\" or \"90s\", got \"{text}\"");
    let (mut rest, mut seconds, mut before) = (text.trim(), 0.0, f64::INFINITY);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(expected)?;
        let unit = match rest.as_bytes()[end] {
            b'd' => 86_400.0,
            b'h' => 3_600.0,
            b'm' => 60.0,
            b's' => 1.0,
            _ => return Err(expected()),
        };
        if unit >= before {
            return Err(expected());
        }
        let number: f64 = rest[..end].parse().map_err(|_| expected())?;
        seconds += number * unit;
        (rest, before) = (&rest[end + 1..], unit);
    }
    Duration::try_from_secs_f64(seconds).ok().filter(|d| !d.is_zero()).ok_or_else(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_steps_and_epochs() {
        let time = |seconds| Ok(Every::Time(Duration::from_secs(seconds)));
        assert_eq!("10m".parse(), time(600));
        assert_eq!("1h30m".parse(), time(5_400));
        assert_eq!(" 1d2h3m4s".parse(), time(93_784));
        assert_eq!("0.5h".parse(), time(1_800));
        assert_eq!("500 steps".parse(), Ok(Every::Steps(500)));
        assert_eq!("1 epoch".parse(), Ok(Every::Epochs(1)));
    }

    #[test]
    fn anything_else_is_refused_with_examples() {
        for text in ["", "10", "m", "10 m", "0s", "30m1h", "5m5m", "0 steps", "-1 steps", "2 weeks", "1e400h", "1..2s"]
        {
            let error = text.parse::<Every>().unwrap_err();
            assert!(error.contains("\"500 steps\"") && error.ends_with(&format!("got \"{text}\"")), "{error}");
        }
    }
}
