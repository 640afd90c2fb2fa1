//! A list of transforms, built and checked before the first image: shapes and memory.

use crate::decode::Exif;
use crate::error::Error;
use crate::format::manifest::Manifest;
use crate::random::ORDER_OP;
use crate::spec::{ImageSpec, Images};
use crate::transform::op::{Context, Sizes, Transform, Varied};
use crate::transform::ops;
use crate::transform::resized::MAX_CHANNELS;

/// First in a list: ignore the EXIF orientation.
pub const IGNORE_EXIF: &str = "ignore_exif";

/// First in a list: a JPEG that a resize shrinks to half or less may be decoded at 1/2 or 1/4 scale. This is faster, but the result differs
/// slightly.
pub const FAST_DECODE: &str = "fast_decode";

/// First in a list: convert grey images to RGB with three equal channels, for networks that were trained on colour images.
pub const RGB: &str = "rgb";

/// Words that may come first in a list. They configure decoding and are not transforms.
pub const HEAD_WORDS: [&str; 3] = [IGNORE_EXIF, FAST_DECODE, RGB];

/// Decoding settings from the words at the start of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Head {
    pub exif: Exif,
    pub fast_decode: bool,
    pub rgb: bool,
}

impl Head {
    /// Splits a list into settings and transforms.
    pub fn split(list: &[String]) -> (Self, &[String]) {
        let words = list.iter().take_while(|word| HEAD_WORDS.contains(&word.trim())).count();
        let (words, transforms) = list.split_at(words);
        let has = |name: &str| words.iter().any(|word| word.trim() == name);
        let exif = if has(IGNORE_EXIF) { Exif::Ignored } else { Exif::Applied };
        (Self { exif, fast_decode: has(FAST_DECODE), rgb: has(RGB) }, transforms)
    }

    /// Returns the words that produce these settings.
    pub fn words(self) -> impl Iterator<Item = String> {
        let exif = (self.exif == Exif::Ignored).then(|| IGNORE_EXIF.to_owned());
        let fast = self.fast_decode.then(|| FAST_DECODE.to_owned());
        exif.into_iter().chain(fast).chain(self.rgb.then(|| RGB.to_owned()))
    }
}

/// Returns how a list treats the EXIF orientation.
pub fn exif_of(list: &[String]) -> Exif {
    Head::split(list).0.exif
}

/// Transforms in order, and what they need.
#[derive(Debug)]
pub(super) struct TransformList {
    /// The images that go in.
    pub input: Images,
    /// The shape of the images that come out.
    pub output: ImageSpec,
    pub head: Head,
    pub transforms: Vec<Box<dyn Transform>>,
    /// How many transforms, from the first on, are geometric: after them the image is decoded.
    pub geometric: usize,
    /// How many, from the first on, leave bytes: geometric ones, then those that keep bytes, and geometric ones among them.
    pub bytes: usize,
    /// Floats of the largest shape that occurs after bytes have become floats.
    pub work: usize,
}

impl TransformList {
    /// Builds the transforms of a list for images like `input`.
    pub fn new(list: &[String], input: Images, manifest: &Manifest) -> Result<Self, Error> {
        // random draws depend on a transform's index, which does not count these words
        let (head, list) = Head::split(list);
        let input = if head.rgb { as_rgb(input) } else { input };
        let mut transforms: Vec<Box<dyn Transform>> = Vec::with_capacity(list.len());
        let mut now = match input {
            Images::Fixed(spec) => Sizes::Equal(spec),
            Images::Varied { channels } => Sizes::Varied(Varied { channels, short_side: None }),
        };
        let numbers = |numbers: &[f64]| if head.rgb { of_rgb(numbers) } else { numbers.to_vec() };
        let (mean, std) = (numbers(&manifest.mean), numbers(&manifest.std));
        let mut work = None;
        for (index, text) in list.iter().enumerate() {
            let fail = |problem| Error::Transform { index, text: text.clone(), problem };
            let (transform, output) = step(index, text, (&mean, &std), now).map_err(fail)?;
            now = output;
            if transform.keeps_bytes() && transforms.iter().any(|before| before.rescales()) {
                return Err(fail("it works on bytes, so it must stand before normalize and standardize".into()));
            }
            if let Sizes::Equal(spec) = now
                && (work.is_some() || !transform.is_geometric())
            {
                work = work.max(Some(spec.values()));
            }
            transforms.push(transform);
        }
        let Sizes::Equal(output) = now else {
            return Err(Error::Unsettled { images: input });
        };
        let geometric = transforms.iter().take_while(|transform| transform.is_geometric()).count();
        let rest = transforms[geometric..].iter();
        let keeping = rest.take_while(|transform| transform.keeps_bytes() || transform.is_geometric()).count();
        let work = work.unwrap_or(0).max(output.values());
        Ok(Self { input, output, head, transforms, geometric, bytes: geometric + keeping, work })
    }

    /// The geometric transforms at the start of the list.
    pub fn geometry(&self) -> &[Box<dyn Transform>] {
        &self.transforms[..self.geometric]
    }
}

/// Returns the same images, with grey converted to three channels.
fn as_rgb(images: Images) -> Images {
    match images {
        Images::Fixed(spec) if spec.channels == 1 => Images::Fixed(ImageSpec { channels: 3, ..spec }),
        Images::Varied { channels: 1 } => Images::Varied { channels: 3 },
        other => other,
    }
}

/// Repeats a grey data set's value for three channels.
fn of_rgb(numbers: &[f64]) -> Vec<f64> {
    if let [grey] = numbers { vec![*grey; 3] } else { numbers.to_vec() }
}

/// Makes the transform at `index` of a list, and gives the shapes of its results for images like `now`.
fn step(
    index: usize,
    text: &str,
    (mean, std): (&[f64], &[f64]),
    now: Sizes,
) -> Result<(Box<dyn Transform>, Sizes), String> {
    if index >= usize::from(ORDER_OP) {
        return Err(format!("a list has at most {ORDER_OP} transforms"));
    }
    let input = match now {
        Sizes::Equal(spec) => spec,
        Sizes::Varied(varied) => ImageSpec::new(0, 0, varied.channels),
    };
    if HEAD_WORDS.contains(&text.trim()) {
        return Err("it must stand before the transforms, at the head of the list".into());
    }
    let transform = ops::parse(text, Context { input, mean, std })?;
    if transform.resizes() && index > 0 {
        return Err("it resizes, so it must stand first in the list".into());
    }
    if transform.resizes() && input.channels as usize > MAX_CHANNELS {
        let channels = input.channels;
        return Err(format!("images of {channels} channels cannot be resized; expected at most {MAX_CHANNELS}"));
    }
    let output = match now {
        Sizes::Equal(spec) if transform.varies() => {
            transform.output_of_varied(Varied { channels: spec.channels, short_side: None })?
        }
        Sizes::Equal(spec) => Sizes::Equal(transform.output(spec)?),
        Sizes::Varied(varied) => transform.output_of_varied(varied)?,
    };
    Ok((transform, output))
}
