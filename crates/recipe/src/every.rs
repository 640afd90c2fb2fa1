//! `checkpoint.every`: time, steps or epochs between two checkpoints; and times such as `1h30m`.

use std::str::FromStr;
use std::time::Duration;

/// The distance between two checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// Time.
    Time(Duration),
    /// Optimizer steps, >= 1.
    Steps(u64),
    /// Epochs, >= 1.
    Epochs(u32),
}

impl FromStr for Every {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            || format!("expected a time as \"10m\", steps as \"500 steps\" or epochs as \"2 epochs\", got \"{text}\"");
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

/// Days, hours, minutes and seconds, each with its letter, the largest first: `1h30m`, `90s`, `0.5h`; > 0.
pub fn duration(text: &str) -> Result<Duration, String> {
    let expected = || format!("expected a time as \"1h30m\", \"10m\" or \"90s\", got \"{text}\"");
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
