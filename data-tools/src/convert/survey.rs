//! Converts a few samples of each split beforehand to estimate the output size, to choose which samples are measured,
//! and to find the type and number of bands.

use std::path::Path;

use loaders::record::OVERHEAD;
use loaders::{Bands, Dtype, Format, Limits};

use super::work::CHUNK_SAMPLES;
use super::{dataset, shard_writer};
use crate::error::Error;
use crate::image::band_stats::BandStats;
use crate::image::recode::{Recoder, Target};
use crate::options::{ConvertOptions, OnBad};
use crate::progress::Progress;
use crate::raw::values::Values;
use crate::source::{Sample, Source};
use crate::splits::TRAIN;
use crate::{pool, text};

/// Typical size of an index line, which holds two numbers.
const INDEX_LINE: u64 = 16;
/// Number of samples per split that are converted beforehand.
const SURVEY_SAMPLES: u64 = 16;
/// If images must be decoded to measure the mean and standard deviation, about this many pixels are measured ...
const MEASURED_PIXELS: u64 = 1 << 25;
/// ... but at least this many images.
const MEASURED_IMAGES: u64 = 256;

/// Estimates from the samples that were converted beforehand.
pub(super) struct Survey {
    /// Size of the output in bytes. For raw pixels it is exact except for the class names.
    pub needed: u64,
    /// For each split: one in this many samples is measured.
    pub strides: Vec<u64>,
    /// The kind of the first usable image. All others must have it. `None` only if the conversion will fail.
    pub kind: Option<Kind>,
}

/// The type, number of bands and nodata value that every image of a data set must have.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Kind {
    pub dtype: Dtype,
    pub channels: u32,
    /// The value of pixels without data.
    pub nodata: Option<f64>,
    /// The file that has it, for messages.
    filename: String,
}

impl Kind {
    pub fn of(sample: &Sample, nodata: Option<f64>) -> Self {
        Kind { dtype: sample.dtype, channels: sample.channels, nodata, filename: sample.filename.clone() }
    }

    /// Returns true if `dataset.json` describes the bands.
    pub fn needs_bands(&self) -> bool {
        Bands { dtype: self.dtype, channels: Some(self.channels), ..Bands::default() }.need_version()
    }

    pub fn check(&self, found: &Kind) -> Result<(), String> {
        let first = &self.filename;
        // Training takes grey images of bytes as RGB next to RGB images.
        let are_photos = !self.needs_bands() && !found.needs_bands();
        if !are_photos && (self.dtype, self.channels) != (found.dtype, found.channels) {
            return Err(format!(
                "expected {} of {}, as in {first}, found {} of {}; all images of a data set need the same type and number of bands: \
                 choose bands with --bands, or use --to-8bit",
                text::plural(self.channels.into(), "band"),
                self.dtype,
                text::plural(found.channels.into(), "band"),
                found.dtype
            ));
        }
        let word = |nodata: Option<f64>| {
            nodata.map_or("no nodata value".into(), |nodata| format!("the nodata value {nodata}"))
        };
        match found.nodata {
            Some(nodata) if self.nodata.map(f64::to_bits) != Some(nodata.to_bits()) => Err(format!(
                "found {}, but {first} has {}; give the value for all images with --nodata",
                word(found.nodata),
                word(self.nodata)
            )),
            _ => Ok(()),
        }
    }
}

impl Survey {
    /// Surveys a source on `jobs` threads. Ignores unusable samples, because the conversion reports them.
    pub fn run(source: &dyn Source, target: Target<'_>, options: &ConvertOptions) -> Result<Self, Error> {
        let ConvertOptions { limits, jobs, on_bad, .. } = *options;
        let mut survey = Survey { needed: 0, strides: Vec::new(), kind: None };
        for (split, info) in source.splits().iter().enumerate() {
            let count = SURVEY_SAMPLES.min(info.len);
            let index = |i: usize| i as u64 * info.len / count;
            let all =
                pool::run(count as usize, jobs, |i| SurveyedSample::convert(source, split, index(i), target, limits))?;
            let seen = all.iter().flatten().count().max(1) as u64;
            let sum = |of: fn(&SurveyedSample) -> u64| all.iter().flatten().map(of).sum::<u64>();
            let raw = all.iter().flatten().next_back().is_some_and(|last| last.raw);
            survey.needed = survey.needed.saturating_add((sum(|one| one.bytes) / seen).saturating_mul(info.len));
            survey.strides.push(if raw { 1 } else { stride(info.len, sum(|one| one.area) / seen) });
            survey.kind = survey.kind.or_else(|| all.into_iter().flatten().next().map(|first| first.kind));
        }
        let every =
            source.splits().iter().enumerate().flat_map(|(split, info)| (0..info.len).map(move |index| (split, index)));
        for (split, index) in every.filter(|_| on_bad == OnBad::Skip) {
            if survey.kind.is_some() {
                break;
            }
            survey.kind = SurveyedSample::convert(source, split, index, target, limits)?.map(|first| first.kind);
        }
        Ok(survey)
    }

    /// Returns an error if there are names of bands, but not one for each.
    pub fn check_names(&self, names: &[String]) -> Result<(), Error> {
        let Some(kind) = self.kind.as_ref().filter(|_| !names.is_empty()) else { return Ok(()) };
        if !kind.needs_bands() {
            let what = "--band-names does not apply to grey or RGB images of bytes, whose channels have no names";
            return Err(Error::Usage(what.into()));
        }
        match names.len() == kind.channels as usize {
            true => Ok(()),
            false => Err(Error::Usage(format!(
                "--band-names has {}, but the images have {} ({})",
                text::plural(names.len() as u64, "name"),
                text::plural(kind.channels.into(), "band"),
                kind.filename
            ))),
        }
    }

    /// Returns the mean of each band over the split `train` without nodata values, if there is such a value. This reads
    /// the images of `train` once more. Ignores unusable samples, because the conversion reports them.
    pub fn fill(&self, source: &dyn Source, target: Target<'_>, options: &ConvertOptions) -> Result<Vec<f64>, Error> {
        let Some(kind) = self.kind.as_ref().filter(|kind| kind.nodata.is_some()) else { return Ok(Vec::new()) };
        let splits = source.splits();
        let split = splits.iter().position(|split| split.name == TRAIN).unwrap_or(0);
        let tasks = splits[split].len.div_ceil(CHUNK_SAMPLES);
        let progress = Progress::new("measuring", Some(splits[split].len), options.progress);
        let parts = pool::run(usize::try_from(tasks).unwrap_or(usize::MAX), options.jobs, |task| {
            let (mut recoder, mut sample) = (Recoder::new(target, options.limits)?, Sample::new());
            let mut stats = BandStats::default();
            let start = task as u64 * CHUNK_SAMPLES;
            for index in start..splits[split].len.min(start + CHUNK_SAMPLES) {
                let read = source.sample(split, index, &mut sample).is_ok() && recoder.recode(&mut sample).is_ok();
                if read && kind.check(&Kind::of(&sample, recoder.nodata())).is_ok() {
                    let (channels, width) = (sample.channels as usize, sample.width as usize);
                    stats.add(Values { dtype: sample.dtype, channels, width }, &sample.encoded, kind.nodata);
                }
                progress.add(1);
            }
            Ok(stats)
        })?;
        let mut all = BandStats::default();
        parts.iter().try_for_each(|part| all.merge(part, Path::new(TRAIN)))?;
        all.means().map_err(|band| dataset::without_data(&splits[split].name, band))
    }
}

/// A sample that was converted beforehand.
struct SurveyedSample {
    /// Size of its record and index line.
    bytes: u64,
    area: u64,
    raw: bool,
    kind: Kind,
}

impl SurveyedSample {
    /// Returns `None` if the sample cannot be used.
    fn convert(
        source: &dyn Source,
        split: usize,
        index: u64,
        target: Target<'_>,
        limits: Limits,
    ) -> Result<Option<Self>, Error> {
        let (mut recoder, mut sample, mut record) = (Recoder::new(target, limits)?, Sample::new(), Vec::new());
        if source.sample(split, index, &mut sample).is_err() || recoder.recode(&mut sample).is_err() {
            return Ok(None);
        }
        shard_writer::encode(source, &sample, &mut record);
        let bytes = record.len() as u64 + OVERHEAD + INDEX_LINE;
        let area = u64::from(sample.height) * u64::from(sample.width);
        let kind = Kind::of(&sample, recoder.nodata());
        Ok(Some(Self { bytes, area, raw: sample.format == Format::Raw, kind }))
    }
}

/// Returns n so that measuring one in n of `samples` images with `area` pixels is enough.
fn stride(samples: u64, area: u64) -> u64 {
    let images = MEASURED_PIXELS / area.max(1);
    samples.div_ceil(images.max(MEASURED_IMAGES)).max(1)
}
