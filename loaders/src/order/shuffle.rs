//! The ways of mixing an epoch's samples, as a recipe names them. The orders themselves are in `train` and `window`.

use std::str::FromStr;

/// How the samples of an epoch are mixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shuffle {
    /// One permutation of the whole split: any sample may follow any other.
    #[default]
    Full,
    /// Each worker mixes this many shards at a time.
    Window(usize),
}

impl Shuffle {
    /// Shards that a rank with so many workers has in use at once, for [`Options::open`](crate::Options::open): for each worker those
    /// of its window and of the next, and one that a batch between two windows still needs. 0: all.
    pub fn open(&self, workers: usize) -> usize {
        match self {
            Self::Full => 0,
            Self::Window(k) => workers.saturating_mul(k.saturating_mul(2).saturating_add(1)),
        }
    }
}

impl FromStr for Shuffle {
    type Err = String;

    /// From `full` or `window(k)`, k at least 1.
    fn from_str(text: &str) -> Result<Self, String> {
        let inner = text.strip_prefix("window(").and_then(|rest| rest.strip_suffix(')'));
        match inner.map(|k| k.trim().parse()) {
            Some(Ok(k)) if k > 0 => Ok(Self::Window(k)),
            None if text == "full" => Ok(Self::Full),
            _ => {
                Err(format!("expected \"full\" or \"window(k)\" with k >= 1 shards, as \"window(8)\", got \"{text}\""))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_recipe() {
        assert_eq!("full".parse(), Ok(Shuffle::Full));
        assert_eq!("window(8)".parse(), Ok(Shuffle::Window(8)));
        for wrong in ["window", "window(0)", "window(-1)", "window(x)", "Full", "", "window(8"] {
            let error = wrong.parse::<Shuffle>().unwrap_err();
            assert!(error.contains("window(k)") && error.ends_with(&format!("got \"{wrong}\"")), "{error}");
        }
    }

    #[test]
    fn shards_in_use() {
        assert_eq!((Shuffle::Full.open(3), Shuffle::Window(4).open(3)), (0, 27));
        assert_eq!(Shuffle::Window(usize::MAX).open(2), usize::MAX);
    }
}
