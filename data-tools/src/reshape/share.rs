//! How many samples of each class are taken.

use crate::error::Error;

/// How many samples of each class are taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Share {
    /// This share of them, in (0, 1), rounded.
    Fraction(f64),
    /// So many, or all where there are fewer.
    PerClass(u64),
}

impl Share {
    /// Refuses a share of nothing or of more than all.
    pub(super) fn check(self) -> Result<(), Error> {
        match self {
            Share::Fraction(share) if !(share > 0.0 && share < 1.0) => {
                Err(Error::Usage(format!("fraction {share} requested; expected a number above 0 and below 1")))
            }
            Share::PerClass(0) => Err(Error::Usage("0 images of each class requested; expected at least 1".into())),
            _ => Ok(()),
        }
    }

    /// The number of samples taken of `count`.
    pub(super) fn of(self, count: u64) -> u64 {
        match self {
            Share::Fraction(share) => (count as f64 * share).round() as u64,
            Share::PerClass(most) => most.min(count),
        }
    }
}
