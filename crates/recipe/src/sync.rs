//! `sync`: how the ranks keep one model.

use schema::{KeyType, KeyValue};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// When and how the ranks' parameters are synchronised.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Sync {
    /// Gradients are summed in every step: all ranks always hold the same model.
    #[default]
    Allreduce,
    /// Local SGD: each rank trains by itself; after every so many steps all continue from their mean.
    Local(u64),
    /// Elastic averaging: each rank trains by itself; every `period` steps it moves towards a centre, and the centre towards it.
    Easgd {
        /// tau, steps between two synchronisations.
        period: u64,
        /// alpha, share of the distance that each moves.
        alpha: f64,
    },
}

/// The forms that `sync` takes.
pub const FORMS: &str = "\"allreduce\", \"local(H)\" or \"easgd(tau, alpha)\"";

impl Sync {
    /// Reads `allreduce`, `local(8)`, `easgd(10, 0.1)`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let other = || format!("expected {FORMS}, got \"{text}\"");
        let (name, rest) = text.split_once('(').unwrap_or((text, ")"));
        let inner = rest.trim_end().strip_suffix(')').ok_or_else(other)?;
        let arguments: Vec<&str> = inner.split(',').map(str::trim).filter(|a| !a.is_empty()).collect();
        let steps = |text: &str| match text.parse::<u64>() {
            Ok(steps) if steps >= 1 => Ok(steps),
            _ => Err(format!("expected a number of steps >= 1, got {text}")),
        };
        match (name.trim(), arguments.as_slice()) {
            ("allreduce", []) => Ok(Self::Allreduce),
            ("local", [period]) => Ok(Self::Local(steps(period)?)),
            ("easgd", [period, alpha]) => match alpha.parse::<f64>() {
                Ok(alpha) if alpha > 0.0 && alpha <= 1.0 => Ok(Self::Easgd { period: steps(period)?, alpha }),
                _ => Err(format!("expected an alpha in (0, 1], got {alpha}; 0.9 / ranks is the paper's")),
            },
            _ => Err(other()),
        }
    }
}

impl KeyValue for Sync {
    const TYPE: KeyType = KeyType::Parsed { expected: FORMS, parse: |text| Self::parse(text).map(drop) };
}

impl std::fmt::Display for Sync {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Allreduce => f.write_str("allreduce"),
            Self::Local(period) => write!(f, "local({period})"),
            Self::Easgd { period, alpha } => write!(f, "easgd({period}, {alpha})"),
        }
    }
}

impl Serialize for Sync {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sync {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(source)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_read_and_written() {
        for text in ["allreduce", "local(8)", "easgd(10, 0.1)"] {
            assert_eq!(Sync::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Sync::parse("local( 8 )"), Ok(Sync::Local(8)));
        assert_eq!(Sync::parse("easgd(10,0.25)"), Ok(Sync::Easgd { period: 10, alpha: 0.25 }));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_what_was_expected() {
        for (text, part) in [
            ("locl(8)", "expected \"allreduce\""),
            ("local", "expected \"allreduce\""),
            ("local(8", "expected \"allreduce\""),
            ("allreduce(2)", "expected \"allreduce\""),
            ("local(0)", "steps >= 1, got 0"),
            ("local(1.5)", "steps >= 1, got 1.5"),
            ("easgd(4)", "expected \"allreduce\""),
            ("easgd(4, 0)", "alpha in (0, 1], got 0"),
            ("easgd(4, nan)", "alpha in (0, 1], got nan"),
        ] {
            assert!(Sync::parse(text).unwrap_err().contains(part), "{text}");
        }
    }
}
