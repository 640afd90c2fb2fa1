//! `[eval]` and `[stop]`: when a run scores itself, and what ends it by its scores.

use engine::optim::score::ScoreName;
use schema::{Parsed, Range, section};

section! {
    /// Scoring while a run trains.
    pub struct Eval {
        /// Epochs from one scoring to the next; the end of the run is always scored.
        optional every: u32 = 1, in Range::AtLeast(1.0);
        /// Below every: the epochs offset, offset + every, ... are scored, counted from 1; 0: every, 2 every, ...
        optional offset: u32 = 0;
        /// Images that are scored at most, spread evenly over the split.
        absent limit: u64 = "all", in Range::AtLeast(1.0);
        /// Scores each image and its mirror image, and averages the two.
        optional flip: bool = false;
        /// Scores the four corners of each image beside the centre, in place of center_crop, and averages all; with flip, ten crops.
        optional corners: bool = false;
        /// Scores the averages of `[ema]`, too.
        optional ema: bool = true;
    }
}

section! {
    /// Ends a run before its time, by the scores of its epochs.
    pub struct Stop {
        /// Score that decides.
        optional score: Parsed<ScoreName> = Parsed::new("top1", ScoreName::TOP1);
        /// Scorings in a row that may pass without a better score; the run ends with the last of them.
        absent patience: u32 = "never", in Range::AtLeast(1.0) => changeable;
        /// By how much a score must be better to count as such.
        optional min_delta: f64 = 0.0, in Range::AtLeast(0.0);
        /// Score at which the run ends, as 0.759; the log has the time that it took, as MLPerf counts it.
        absent target: f64 = "none" => changeable;
    }
}

impl Eval {
    /// Whether an epoch is scored, counted from 1.
    pub fn scores(&self, epoch: u32) -> bool {
        epoch % self.every() == self.offset()
    }
}

impl Stop {
    /// Whether anything can end the run.
    pub fn is_set(&self) -> bool {
        self.patience.is_some() || self.target.is_some()
    }
}
