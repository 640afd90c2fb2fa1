//! Fuzzes RAW records of all value types and band counts: four bytes choose type, bands, height and width, and the rest is
//! the pixels. Transforms must accept a record if and only if its pixels have the right length. If a device converts
//! stored values, the bits must equal the host's.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loaders::example::{encode, parse};
use loaders::transform::Scratch;
use loaders::{Bands, Conversion, Dtype, Example, Format, ImageSpec, Images, LabelKind, Manifest, Pipeline};

/// The constant part of the memory limit. More than ten padded images of 255 x 255 pixels with 255 bands fit as floats.
const MEMORY: usize = 1 << 30;

/// Lists for images with at least two bands.
const LISTS: [&[&str]; 6] = [
    &["pad_crop(2)", "flip", "vertical_flip", "normalize"],
    &["select_bands(2, 1)", "normalize"],
    &["select_bands(2)"],
    &["clip_percentile(1, 99)", "log1p"],
    &["resize(5x7)", "normalize"],
    &[],
];

fn manifest(dtype: Dtype, channels: u32) -> Manifest {
    let numbers = |of: fn(u32) -> f64| (0..channels).map(of).collect::<Vec<f64>>();
    let percentiles = [("1", numbers(|c| f64::from(c))), ("99", numbers(|c| f64::from(2000 + c)))];
    let bands = Bands {
        dtype,
        channels: Some(channels),
        min: numbers(|_| 0.0),
        max: numbers(|c| f64::from(2550 + c)),
        percentiles: percentiles.map(|(percent, values)| (percent.to_string(), values)).into(),
        ..Bands::default()
    };
    let version = Manifest::version_for(LabelKind::OneClass, &bands);
    let (mean, std) = (numbers(|c| f64::from(100 * c)), numbers(|c| f64::from(1 + c)));
    Manifest { version, classes: vec!["a".into()], bands, mean, std, ..Manifest::default() }
}

/// Converts interleaved stored values to planes, as a device does.
fn converted(dtype: Dtype, bytes: &[u8], pairs: &[[f32; 2]]) -> Vec<u32> {
    let (count, size) = (bytes.len() / dtype.bytes() / pairs.len(), dtype.bytes());
    let value = |pixel: usize, band: usize| match bytes[(pixel * pairs.len() + band) * size..][..size] {
        [a, b] if dtype == Dtype::U16 => f32::from(u16::from_le_bytes([a, b])),
        [a, b] => f32::from(i16::from_le_bytes([a, b])),
        [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
        _ => unreachable!("bytes have tables"),
    };
    let planes = (0..pairs.len()).flat_map(|band| (0..count).map(move |pixel| (pixel, band)));
    planes.map(|(pixel, band)| ((value(pixel, band) - pairs[band][0]) / pairs[band][1]).to_bits()).collect()
}

fn run(data: &[u8]) {
    let [kind, channels, height, width, encoded @ ..] = data else { return };
    let dtype = Dtype::ALL[usize::from(kind % 4)];
    let (channels, height, width) = (u32::from(*channels), u32::from(*height), u32::from(*width));
    let example = Example {
        encoded,
        format: Format::Raw,
        height,
        width,
        channels,
        dtype,
        label: 0,
        text: "",
        filename: "",
        boxes: Default::default(),
        entry_points: &[],
        labels: Default::default(),
        targets: Default::default(),
    };
    let mut written = Vec::new();
    encode(&example, &mut written);
    let spec = ImageSpec::new(height, width, channels);
    // A RAW record needs its height, width and channels.
    assert_eq!(parse(&written).ok(), Some(example).filter(|_| spec.values() > 0));
    let is_whole = spec.values() > 0 && encoded.len() == spec.values() * dtype.bytes();
    let manifest = manifest(dtype, channels);
    for list in LISTS {
        let list: Vec<String> = list.iter().map(|op| op.to_string()).collect();
        let resizes = list.iter().any(|op| op.starts_with("resize"));
        let images = if resizes { Images::Varied { channels } } else { Images::Fixed(spec) };
        let Ok(pipeline) = Pipeline::new(&list, images, &manifest, 1) else { continue };
        let mut out = vec![0.0; pipeline.output().values()];
        let made = pipeline.run(&example, 3, 0, &mut Scratch::default(), &mut out);
        assert_eq!(made.is_ok(), is_whole, "{list:?}: {made:?}");
        let Some(Conversion::Normalize(pairs)) = pipeline.conversion().filter(|_| is_whole) else { continue };
        let mut bytes = vec![0; out.len() * dtype.bytes()];
        pipeline.run_bytes(&example, 3, 0, &mut Scratch::default(), &mut bytes).unwrap();
        let same = converted(dtype, &bytes, &pairs).into_iter().zip(&out);
        // the bits of a NaN may differ
        assert!(same.into_iter().all(|(a, b)| a == b.to_bits() || b.is_nan()), "{list:?}");
    }
}

fuzz_target!(|data: &[u8]| trireme_fuzz::read(data.len(), MEMORY, || run(data)));
