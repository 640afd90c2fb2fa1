//! Converts a few samples of each split beforehand, to estimate the size of the output and to choose the samples that are
//! measured.

use super::record;
use crate::error::Error;
use crate::image::recode::Recoder;
use crate::image::target::Target;
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
    /// Surveys a source. Samples that cannot be used are left to the conversion to report.
    pub fn of(source: &dyn Source, target: Target, limits: Limits) -> Result<Self, Error> {
        let (mut recoder, mut sample, mut record) = (Recoder::new(target, limits)?, Sample::new(), Vec::new());
        let mut survey = Survey { needed: 0, strides: Vec::new() };
        for (split, info) in source.splits().iter().enumerate() {
            let count = SURVEYED.min(info.len);
            let (mut seen, mut bytes, mut area, mut raw) = (0u64, 0u64, 0u64, false);
            for i in 0..count {
                let read = source.sample(split, i * info.len / count, &mut sample);
                if read.is_err() || recoder.recode(&mut sample).is_err() {
                    continue;
                }
                record.clear();
                record::encode(source, &sample, &mut record);
                seen += 1;
                bytes += record.len() as u64 + OVERHEAD + INDEX_LINE;
                area += u64::from(sample.height) * u64::from(sample.width);
                raw = sample.format == Format::Raw;
            }
            survey.needed = survey.needed.saturating_add((bytes / seen.max(1)).saturating_mul(info.len));
            survey.strides.push(if raw { 1 } else { stride(info.len, area / seen.max(1)) });
        }
        Ok(survey)
    }
}

/// Every how many of `samples` images of `area` pixels one is measured.
fn stride(samples: u64, area: u64) -> u64 {
    let images = MEASURED_PIXELS / area.max(1);
    samples.div_ceil(images.max(MEASURED_IMAGES)).max(1)
}
