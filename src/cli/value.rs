//! Types and parsers for argument values that subcommands share.

use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Duration;

use backend::Precision;
use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use loaders::{Limits, MOST_THREADS};
use recipe::TransportSetting;
use recipe::scoring::duration as duration_of;
use training::bench::scale::Link;
use training::device::DeviceChoice;
use training::launch;
use training::train::evaluate::TestTime;
use training::train::observe::watch;

use crate::sweep;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceName(pub DeviceChoice);

impl ValueEnum for DeviceName {
    fn value_variants<'a>() -> &'a [Self] {
        static NAMES: LazyLock<Vec<DeviceName>> =
            LazyLock::new(|| launch::CHOICES.iter().copied().map(DeviceName).collect());
        &NAMES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let name = match self.0 {
            DeviceChoice::Auto => "auto",
            DeviceChoice::Kind(name) => name,
        };
        Some(PossibleValue::new(name).help(launch::about(self.0)))
    }
}

/// Parses a value and checks that it `fits`. `expected` describes the valid values in the message.
fn parsed<T: FromStr>(text: &str, fits: impl Fn(&T) -> bool, expected: &str) -> Result<T, String> {
    text.parse().ok().filter(fits).ok_or_else(|| format!("expected {expected}"))
}

fn is_positive(number: &f64) -> bool {
    *number > 0.0 && number.is_finite()
}

/// Parses a number of billion multiplications and additions.
pub(super) fn gflop(text: &str) -> Result<f64, String> {
    parsed(text, is_positive, "a number > 0")
}

/// Parses an integer >= 1.
pub(super) fn positive(text: &str) -> Result<usize, String> {
    parsed(text, |n| *n > 0, "an integer >= 1")
}

/// Parses an integer >= 0.
pub(super) fn natural<N: FromStr>(text: &str) -> Result<N, String> {
    parsed(text, |_| true, "an integer >= 0")
}

/// Parses the number of steps in a learning rate search. Fewer than 20 would show nothing.
pub(super) fn search_steps(text: &str) -> Result<u64, String> {
    parsed(text, |steps| *steps >= 20, "an integer >= 20")
}

/// Parses a number format.
pub(super) fn precision() -> impl TypedValueParser<Value = Precision> {
    PossibleValuesParser::new(Precision::WORDS).try_map(|word| word.parse::<Precision>())
}

/// Parses a transport of gradients, as in `reduce.path`.
pub(super) fn transport() -> impl TypedValueParser<Value = TransportSetting> {
    PossibleValuesParser::new(TransportSetting::WORDS).try_map(|word| word.parse::<TransportSetting>())
}

/// Parses a number of threads. The maximum is a number that certainly fits into memory.
pub(super) fn thread_count(text: &str) -> Result<usize, String> {
    match positive(text)? {
        threads if threads <= MOST_THREADS => Ok(threads),
        threads => Err(format!("{threads} threads were requested, the maximum is {MOST_THREADS}")),
    }
}

/// Parses the width or height of an image.
pub(super) fn pixels(text: &str) -> Result<u32, String> {
    parsed(text, |n| (1..=65_535).contains(n), "a number of pixels from 1 to 65535")
}

/// Parses an integer from 1 to 100.
pub(super) fn percent(text: &str) -> Result<u8, String> {
    parsed(text, |n| (1..=100).contains(n), "an integer from 1 to 100")
}

/// Parses a number above 0 and below 1.
pub(super) fn fraction(text: &str) -> Result<f64, String> {
    parsed(text, |share| *share > 0.0 && *share < 1.0, "a number above 0 and below 1")
}

/// Parses a number from 0 to 1.
pub(super) fn probability(text: &str) -> Result<f64, String> {
    parsed(text, |p| (0.0..=1.0).contains(p), "a number from 0 to 1")
}

/// Parses a finite number of seconds > 0.
pub(super) fn duration(text: &str) -> Result<f64, String> {
    parsed(text, is_positive, "a number of seconds > 0")
}

/// Parses the duration of a measurement in seconds, at most a day.
pub(super) fn measurement_seconds(text: &str) -> Result<f64, String> {
    const DAY: f64 = 86_400.0;
    match duration(text)? {
        seconds if seconds <= DAY => Ok(seconds),
        _ => Err(format!("expected at most a day ({DAY} seconds)")),
    }
}

/// Parses a bandwidth in GB/s (10^9 bytes) and returns bytes per second.
pub(super) fn gigabytes(text: &str) -> Result<f64, String> {
    parsed(text, is_positive, "a number of GB/s > 0").map(|rate| 1e9 * rate)
}

/// Parses a number of bytes >= 1 with an optional suffix K, M or G (powers of 1024).
pub(super) fn bytes(text: &str) -> Result<usize, String> {
    let expected = || "expected a size such as 4096, 64K, 4M or 1G".to_string();
    let shift = match text.chars().last() {
        Some('K' | 'k') => 10,
        Some('M' | 'm') => 20,
        Some('G' | 'g') => 30,
        _ => 0,
    };
    let digits = if shift > 0 { &text[..text.len() - 1] } else { text };
    let number = positive(digits).map_err(|_| expected())?;
    number.checked_mul(1 << shift).ok_or_else(expected)
}

/// Splits a list of transforms such as `pad_crop(4),contrast(0.2, 1.8),flip` at the commas outside of parentheses.
pub(super) fn transforms(list: &str) -> Vec<String> {
    sweep::split(list).into_iter().filter(|entry| !entry.is_empty()).collect()
}

/// Parses a link such as `100Gb/s,2us`: bandwidth in Gb/s (10^9 bits) or GB/s (10^9 bytes), latency in us or ms.
pub(super) fn link(text: &str) -> Result<Link, String> {
    let expected = || "expected a bandwidth and a latency, such as 100Gb/s,2us or 12.5GB/s,2us".to_string();
    let number = |text: &str, units: &[(&str, f64)]| {
        let (word, unit) = units.iter().find_map(|(ending, unit)| Some((text.strip_suffix(ending)?, unit)))?;
        word.trim().parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0).map(|n| n * unit)
    };
    let (bandwidth, latency) = text.split_once(',').ok_or_else(expected)?;
    let rate = number(bandwidth.trim(), &[("Gb/s", 1e9 / 8.0), ("GB/s", 1e9)])
        .filter(|rate| *rate > 0.0)
        .ok_or_else(expected)?;
    let latency = number(latency.trim(), &[("us", 1e-6), ("ms", 1e-3)]).ok_or_else(expected)?;
    Ok(Link { rate, latency })
}

/// A time limit for a wait. `None` means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience(pub Option<Duration>);

/// Parses a time such as 90s or 1h30m, or `off`.
pub(super) fn patience(text: &str) -> Result<Patience, String> {
    let time = (text != "off").then(|| duration_of(text)).transpose();
    time.map(Patience).map_err(|text| format!("{text}; write `off` for no limit"))
}

/// Options for commands that detect hanging waits.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Stall {
    /// Print a warning when a wait lasts this long, such as 90s or 1h30m. The warning names the ranks that keep the
    /// others waiting, and what these ranks do. `off` disables it
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = patience)]
    pub stall_warn: Patience,
    /// End the run when a wait lasts this long [default: 30m, or 10m if all ranks wait for MPI or the network]
    #[arg(long, value_name = "TIME", value_parser = patience)]
    pub stall_abort: Option<Patience>,
}

impl Stall {
    pub fn limits(&self) -> watch::Limits {
        let default = watch::Limits { warn: self.stall_warn.0, ..watch::Limits::default() };
        self.stall_abort.map_or(default, |Patience(end)| watch::Limits { abort: end, network: end, ..default })
    }
}

/// The views of an image that are scored. The result is the mean of their scores.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Views {
    /// Average the scores of each image and its mirror image
    #[arg(long)]
    pub flip: bool,
    /// Average the scores of the four corners and the centre of each image. With --flip, these are ten crops
    #[arg(long)]
    pub corners: bool,
    /// Also score two views that are shifted by N pixels along the diagonal. Together they have half of the weight
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true, conflicts_with = "corners")]
    pub shift: u32,
}

impl Views {
    pub fn test_time(self) -> TestTime {
        let Self { flip, corners, shift } = self;
        TestTime { flip, corners, shift }
    }
}

/// Limits for reading one file.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Cost {
    /// Memory for reading one file, in addition to four times the size of the file. The pixels of an image may use a
    /// third of this memory [default: 512M]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub limit_memory: Option<usize>,
    /// CPU time for decoding one image in seconds, estimated from its header [default: 5]
    #[arg(long, value_name = "S", value_parser = duration)]
    pub limit_seconds: Option<f64>,
}

impl Cost {
    /// Returns the limits, or their defaults. A longer time also allows more scans of a JPEG.
    pub fn limits(self) -> Limits {
        let mut limits = self.limit_memory.map_or(Limits::DEFAULT, |memory| Limits::with_memory(memory as u64));
        if let Some(seconds) = self.limit_seconds {
            limits.scans = (f64::from(limits.scans) * seconds / limits.seconds) as u32;
            limits.seconds = seconds;
        }
        limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links() {
        assert_eq!(link("100Gb/s,2us"), Ok(Link { rate: 12.5e9, latency: 2e-6 }));
        assert_eq!(link("12.5 GB/s, 1.5ms").map(|l| (l.rate, l.latency)), Ok((12.5e9, 1.5e-3)));
        for bad in ["100Gb/s", "100,2us", "0Gb/s,2us", "100Gb/s,2", "-1Gb/s,2us", "nanGb/s,2us"] {
            assert!(link(bad).unwrap_err().contains("100Gb/s,2us"), "{bad}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(bytes("4096"), Ok(4096));
        assert_eq!(bytes("64K"), Ok(65_536));
        assert_eq!(bytes("4m"), Ok(4 << 20));
        assert!(bytes("0").is_err() && bytes("K").is_err() && bytes("").is_err() && bytes("4X").is_err());
        assert!(bytes("99999999999999999999G").is_err() && bytes("9999999999999999G").is_err());
    }

    #[test]
    fn lists_part_at_commas_outside_of_parentheses() {
        assert_eq!(transforms("a(1, 2),b , c(3)"), ["a(1, 2)", "b", "c(3)"]);
        assert_eq!(transforms("flip"), ["flip"]);
        assert!(transforms("").is_empty());
        assert_eq!(transforms("normalize(0.5, 0.25"), ["normalize(0.5, 0.25"]);
    }

    #[test]
    fn numbers() {
        assert_eq!(positive("3"), Ok(3));
        assert!(positive("0").is_err() && positive("-1").is_err() && positive("x").is_err());
        assert_eq!((natural("0"), natural("7")), (Ok(0u64), Ok(7usize)));
        for bad in ["-1", "x", "99999999999999999999"] {
            assert!(natural::<u64>(bad).is_err_and(|why| why.contains(">= 0")), "{bad}");
        }
        assert_eq!(search_steps("20"), Ok(20));
        assert!(search_steps("10").is_err_and(|why| why.contains(">= 20")));
        assert_eq!(thread_count("1024"), Ok(1024));
        assert!(thread_count("99999").is_err_and(|why| why.contains("99999") && why.contains("1024")));
        assert_eq!((pixels("256"), percent("90"), fraction("0.1")), (Ok(256), Ok(90), Ok(0.1)));
        assert!(pixels("0").is_err() && pixels("65536").is_err() && percent("0").is_err() && percent("101").is_err());
        assert!(fraction("0").is_err() && fraction("1").is_err() && fraction("nan").is_err());
        assert_eq!(duration("0.5"), Ok(0.5));
        assert!(duration("0").is_err() && duration("nan").is_err() && duration("inf").is_err());
        assert_eq!((measurement_seconds("86400"), duration("1e9")), (Ok(86_400.0), Ok(1e9)));
        assert!(measurement_seconds("86401").is_err() && measurement_seconds("0").is_err());
    }

    #[test]
    fn times_and_never() {
        let time = |text| patience(text).unwrap().0.map(|time| time.as_secs_f64());
        assert_eq!([time("0.5s"), time("1h30m"), time("off")], [Some(0.5), Some(5400.0), None]);
        for bad in ["", "0s", "-1s", "nan", "90", "s"] {
            assert!(patience(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn flags_raise_what_they_name() {
        let limits = |limit_memory, limit_seconds| Cost { limit_memory, limit_seconds }.limits();
        assert_eq!(limits(None, None), Limits::DEFAULT);
        let raised = limits(Some(3 << 30), Some(50.0));
        assert_eq!((raised.memory, raised.pixels, raised.scans, raised.seconds), (3 << 30, 1 << 30, 5000, 50.0));
    }
}
