//! Converts a few samples per split beforehand to estimate the output size, to choose which samples are measured, and
//! to find the value type and band count.

use std::path::Path;

use loaders::record::OVERHEAD;
use loaders::{Bands, Dtype, Format, Limits, guarded_with};

use super::order::CHUNK_SAMPLES;
use super::{dataset, shard_writer};
use crate::error::Error;
use crate::image::band_stats::BandStats;
use crate::image::recode::{Recoder, Target};
use crate::options::{ConvertOptions, OnBad};
use crate::progress::Progress;
use crate::source::{Sample, Source};
use crate::splits::TRAIN;
use crate::{pool, text};

/// Typical size of an index line, which holds two numbers.
const INDEX_LINE: u64 = 16;
/// Number of samples per split that are converted beforehand.
const SURVEY_SAMPLES: u64 = 16;
/// If images must be decoded to measure the mean and standard deviation, about this number of pixels is measured.
const MEASURED_PIXELS: u64 = 1 << 25;
/// If images must be decoded to be measured, at least this number of images is measured, whatever their size.
const MEASURED_IMAGES: u64 = 256;
/// When the mean that replaces nodata values is measured, each thread measures this number of parts before they are
/// merged.
const PARTS_PER_THREAD: usize = 4;

/// Estimates from the samples that were converted beforehand.
pub(super) struct Survey {
    /// Output size in bytes. For raw pixels it is exact except for the class names.
    pub needed: u64,
    /// The sampling interval per split: 10 means that every tenth sample is measured.
    pub strides: Vec<u64>,
    /// The first usable image's kind, which all images must share. `None` only if the conversion will fail.
    pub kind: Option<Kind>,
    /// The cached result of [`Survey::fill`].
    fill: Option<Vec<f64>>,
}

/// The properties that all images in a data set must share: value type, band count and nodata value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Kind {
    pub dtype: Dtype,
    pub channels: u32,
    /// The value that marks pixels without data.
    pub nodata: Option<f64>,
    /// The file that has this type and these bands, for messages.
    filename: String,
    /// The file that has the nodata value, or `filename` if there is no such value.
    nodata_file: String,
}

impl Kind {
    pub fn of(sample: &Sample, nodata: Option<f64>) -> Self {
        let (filename, nodata_file) = (sample.filename.clone(), sample.filename.clone());
        Kind { dtype: sample.dtype, channels: sample.channels, nodata, filename, nodata_file }
    }

    /// Returns this kind. If it has no nodata value, it gets the nodata value from `other`.
    fn with_nodata_of(self, other: &Kind) -> Self {
        match (self.nodata, other.nodata) {
            (None, Some(_)) => Kind { nodata: other.nodata, nodata_file: other.nodata_file.clone(), ..self },
            _ => self,
        }
    }

    /// Returns true if `dataset.json` describes the bands.
    pub fn needs_bands(&self) -> bool {
        Bands { dtype: self.dtype, channels: Some(self.channels), ..Bands::default() }.need_version()
    }

    /// Returns true if each band is measured with a histogram. Only histograms leave out nodata values.
    pub fn measures_bands(&self) -> bool {
        self.needs_bands() || self.nodata.is_some()
    }

    /// Adds a recoded sample's pixels to `stats`. Only raw images can have pixels without data.
    pub fn measure(&self, recoder: &mut Recoder<'_>, sample: &Sample, stats: &mut BandStats) -> Result<(), String> {
        let nodata = self.nodata.filter(|_| sample.format == Format::Raw);
        stats.add(sample.values(), recoder.pixels(sample)?, nodata);
        Ok(())
    }

    pub fn check(&self, found: &Kind) -> Result<(), String> {
        let first = &self.filename;
        // If a data set mixes 8-bit grey and RGB images, training converts the grey images to RGB.
        let are_photos = !self.measures_bands() && !found.needs_bands();
        if !are_photos && (self.dtype, self.channels) != (found.dtype, found.channels) {
            return Err(format!(
                "expected {} of {}, as in {first}, found {} of {}; all images of a data set need the same type and number of bands: \
                 choose bands with --bands, or convert TIFF and PNG files with --to-8bit",
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
                "found {}, but {} has {}; set the value for all images with --nodata",
                word(found.nodata),
                self.nodata_file,
                word(self.nodata)
            )),
            _ => Ok(()),
        }
    }
}

impl Survey {
    /// Surveys a source. Ignores unusable samples, because the conversion reports them. Returns an error if the band
    /// names do not match the bands.
    pub fn run(source: &dyn Source, options: &ConvertOptions) -> Result<Self, Error> {
        let target = Target::new(options, source.png_as_jpeg());
        let ConvertOptions { limits, jobs, on_bad, .. } = *options;
        let mut survey = Survey { needed: 0, strides: Vec::new(), kind: None, fill: None };
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
            let kinds = all.into_iter().flatten().map(|sample| sample.kind);
            survey.kind = survey.kind.into_iter().chain(kinds).reduce(|first, other| first.with_nodata_of(&other));
        }
        let every =
            source.splits().iter().enumerate().flat_map(|(split, info)| (0..info.len).map(move |index| (split, index)));
        for (split, index) in every.filter(|_| on_bad == OnBad::Skip) {
            if survey.kind.is_some() {
                break;
            }
            survey.kind = SurveyedSample::convert(source, split, index, target, limits)?.map(|first| first.kind);
        }
        survey.check_names(&options.band_names)?;
        Ok(survey)
    }

    fn check_names(&self, names: &[String]) -> Result<(), Error> {
        let Some(kind) = self.kind.as_ref().filter(|_| !names.is_empty()) else { return Ok(()) };
        if !kind.needs_bands() {
            let what = "--band-names does not apply to 8-bit grey or RGB images, because their channels have no names";
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

    /// Returns the band means of the split `train` (or of the first split if there is no `train`), without nodata
    /// values. Empty if the data set has no nodata value. The first call reads all images of this split. Returns an
    /// error if no image can be used or a band has no data. With [`OnBad::Fail`](crate::OnBad::Fail), also returns an
    /// error for the first unusable sample: repairing it later would change the mean, and finished shards would contain
    /// the old value.
    pub fn fill(&mut self, source: &dyn Source, options: &ConvertOptions) -> Result<&[f64], Error> {
        if self.fill.is_none() {
            self.fill = Some(self.measure_fill(source, options)?);
        }
        Ok(self.fill.as_deref().unwrap_or_default())
    }

    fn measure_fill(&self, source: &dyn Source, options: &ConvertOptions) -> Result<Vec<f64>, Error> {
        let Some(kind) = self.kind.as_ref().filter(|kind| kind.nodata.is_some()) else { return Ok(Vec::new()) };
        let target = Target::new(options, source.png_as_jpeg());
        let splits = source.splits();
        let split = splits.iter().position(|split| split.name == TRAIN).unwrap_or(0);
        let len = splits[split].len;
        let progress = Progress::new("measuring", Some(len), options.progress);
        let measure = |start: u64| {
            let (mut recoder, mut sample) = (Recoder::new(target, options.limits)?, Sample::default());
            let mut stats = BandStats::default();
            for index in start..len.min(start + CHUNK_SAMPLES) {
                let measured = read_sample(source, split, index, &mut sample).and_then(|()| {
                    let recoded = recoder.recode(&mut sample);
                    let checked = recoded.and_then(|()| kind.check(&Kind::of(&sample, recoder.nodata)));
                    let measured = checked.and_then(|()| kind.measure(&mut recoder, &sample, &mut stats));
                    measured.map_err(|what| unusable(source, split, index, &sample, what))
                });
                if options.on_bad == OnBad::Fail {
                    measured?;
                }
                progress.add(1);
            }
            Ok(stats)
        };
        let starts: Vec<u64> = (0..len).step_by(CHUNK_SAMPLES as usize).collect();
        let mut all = BandStats::default();
        // Histograms are large, so only a few parts exist at the same time.
        for starts in starts.chunks(PARTS_PER_THREAD * pool::threads(options.jobs)) {
            let parts = pool::run(starts.len(), options.jobs, |part| measure(starts[part]))?;
            parts.iter().try_for_each(|part| all.merge(part, Path::new(TRAIN)))?;
        }
        let name = &splits[split].name;
        if all.is_empty() {
            return Err(Error::input(Path::new(name), "no image of this split can be used"));
        }
        all.means().map_err(|band| dataset::without_data(name, band))
    }
}

/// Reads a sample into `sample`. If the source panics, returns an error that names the sample.
pub(super) fn read_sample(source: &dyn Source, split: usize, index: u64, sample: &mut Sample) -> Result<(), Error> {
    let failed = |panic: String| {
        Error::input(&source.place(split, index), format!("the reader failed on this sample ({panic})"))
    };
    guarded_with(|| source.sample(split, index, sample), failed)
}

/// Returns the error for a sample that was read but cannot be used. It names the sample's file.
pub(super) fn unusable(source: &dyn Source, split: usize, index: u64, sample: &Sample, what: String) -> Error {
    let (place, name) = (source.place(split, index), Path::new(&sample.filename));
    Error::input(if place.as_os_str().is_empty() { name } else { &place }, what)
}

/// A sample that was converted beforehand.
struct SurveyedSample {
    /// Size in bytes of the sample's record and index line.
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
        let (mut recoder, mut sample, mut record) = (Recoder::new(target, limits)?, Sample::default(), Vec::new());
        if read_sample(source, split, index, &mut sample).is_err() || recoder.recode(&mut sample).is_err() {
            return Ok(None);
        }
        shard_writer::encode(source, &sample, &mut record);
        let bytes = record.len() as u64 + OVERHEAD + INDEX_LINE;
        let area = u64::from(sample.height) * u64::from(sample.width);
        let kind = Kind::of(&sample, recoder.nodata);
        Ok(Some(Self { bytes, area, raw: sample.format == Format::Raw, kind }))
    }
}

/// Returns the sampling interval n for `samples` images with `area` pixels each: measuring every n-th image is enough.
pub(crate) fn stride(samples: u64, area: u64) -> u64 {
    let images = MEASURED_PIXELS / area.max(1);
    samples.div_ceil(images.max(MEASURED_IMAGES)).max(1)
}
