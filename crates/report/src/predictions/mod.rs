//! What a network made of each image of a split, and all scores that follow from it. Every number depends on the images alone, in the
//! order of their ids: the same on any number of ranks.

mod calibration;
mod class_score;
mod confusion;
mod outcome;
mod predicted;
mod ranking;
mod several;

pub use calibration::{Bin, calibration, expected_error};
pub use class_score::ClassScore;
pub use confusion::{Confusion, Pair};
pub use outcome::{Guess, Outcome, Softmax};
pub use predicted::Predictions;
pub use ranking::Ranking;
pub use several::{SeveralOutcome, sigmoid};
