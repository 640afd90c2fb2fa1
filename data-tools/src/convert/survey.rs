//! Converts a few samples of each split beforehand, to estimate the size of the output and to choose the samples that are
//! measured.

use super::record;
use crate::error::Error;
use crate::image::recode::Recoder;
use crate::image::target::Target;
use crate::pool;
use crate::source::{Sample, Source};
use loaders::record::OVERHEAD;
use loaders::{Format, Limits};

/// Bytes of a line of the index, roughly: two numbers.
const INDEX_LINE: u64 = 16;
/// Samples of a split that are converted beforehand.
const SURVEYED: u64 = 16;
/// Pixels that mean and deviation are measured on where images must be decoded for it ...
const MEASURED_PIXELS: u64 = 1 << 25;
/// ... but at least so many images.
const MEASURED_IMAGES: u64 = 256;

/// Estimates from a few samples.
pub(super) struct Survey {
    /// Bytes of the output (exact but for the labels' names in RAW sources).
    pub needed: u64,
    /// Of each split: every how many samples one is measured.
    pub strides: Vec<u64>,
}

impl Survey {
    /// Surveys a source on `jobs` threads. Samples that cannot be used are left to the conversion to report.
    pub fn of(source: &dyn Source, target: Target, limits: Limits, jobs: usize) -> Result<Self, Error> {
        let mut survey = Survey { needed: 0, strides: Vec::new() };
        for (split, info) in source.splits().iter().enumerate() {
            let count = SURVEYED.min(info.len);
            let index = |i: usize| i as u64 * info.len / count;
            let all = pool::run(count as usize, jobs, |i| Seen::of(source, split, index(i), target, limits))?;
            let seen = all.iter().flatten().count().max(1) as u64;
            let sum = |of: fn(&Seen) -> u64| all.iter().flatten().map(of).sum::<u64>();
            let raw = all.iter().flatten().next_back().is_some_and(|last| last.raw);
            survey.needed = survey.needed.saturating_add((sum(|one| one.bytes) / seen).saturating_mul(info.len));
            survey.strides.push(if raw { 1 } else { stride(info.len, sum(|one| one.area) / seen) });
        }
        Ok(survey)
    }
}

/// A sample that was converted beforehand.
struct Seen {
    /// Of its record and of its line in the index.
    bytes: u64,
    /// Pixels.
    area: u64,
    raw: bool,
}

impl Seen {
    /// None of a sample that cannot be used.
    fn of(
        source: &dyn Source,
        split: usize,
        index: u64,
        target: Target,
        limits: Limits,
    ) -> Result<Option<Self>, Error> {
        let (mut recoder, mut sample, mut record) = (Recoder::new(target, limits)?, Sample::new(), Vec::new());
        if source.sample(split, index, &mut sample).is_err() || recoder.recode(&mut sample).is_err() {
            return Ok(None);
        }
        record::encode(source, &sample, &mut record);
        let bytes = record.len() as u64 + OVERHEAD + INDEX_LINE;
        let area = u64::from(sample.height) * u64::from(sample.width);
        Ok(Some(Self { bytes, area, raw: sample.format == Format::Raw }))
    }
}

/// Every how many of `samples` images of `area` pixels one is measured.
fn stride(samples: u64, area: u64) -> u64 {
    let images = MEASURED_PIXELS / area.max(1);
    samples.div_ceil(images.max(MEASURED_IMAGES)).max(1)
}
