//! A list of transforms: builds it, checks it before the first image, and scales its sizes.

use crate::decode::Exif;
use crate::error::Error;
use crate::format::manifest::Manifest;
use crate::random::ORDER_OP;
use crate::spec::{Dtype, ImageSpec, Images};
use crate::transform::call::{Size, pixels};
use crate::transform::op::{Context, Misfit, Sizes, Transform, Varied};
use crate::transform::statistics::Statistics;
use crate::transform::{call, ops};

/// A word at the start of a list: ignore the EXIF orientation.
pub const IGNORE_EXIF: &str = "ignore_exif";

/// A word at the start of a list: a JPEG that a resize shrinks to half or less may be decoded at 1/2 or 1/4 scale. This
/// is faster, but the result differs slightly.
pub const FAST_DECODE: &str = "fast_decode";

/// A word at the start of a list: convert grey images to RGB with three equal channels, for networks that were trained
/// on colour images.
pub const RGB: &str = "rgb";

/// The words that may come before the transforms in a list. They configure decoding and are not transforms.
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

/// Returns the images that the transforms of a list read. With `rgb`, grey images have three channels.
pub fn as_read(list: &[String], images: Images) -> Images {
    if Head::split(list).0.rgb { as_rgb(images) } else { images }
}

/// The transforms in order, and what is known about them before the first image.
#[derive(Debug)]
pub(super) struct TransformList {
    /// The images that the list accepts.
    pub input: Images,
    /// The shape of the resulting images.
    pub output: ImageSpec,
    pub head: Head,
    /// The stored values' type.
    pub dtype: Dtype,
    /// The bands that each image keeps, in order. `None` if all are kept.
    pub selection: Option<Vec<usize>>,
    pub transforms: Vec<Box<dyn Transform>>,
    /// Number of geometric transforms at the start of the list. They only choose which part of the image goes where and
    /// in which size. So they are applied before the image is decoded, and only the pixels that they need are decoded.
    pub geometric: usize,
    /// Number of transforms at the start of the list that can work on bytes. This part of the list ends before the
    /// first transform that is neither geometric nor returns bytes.
    pub bytes: usize,
    /// Number of floats that the largest intermediate image has, once images have been converted to floats.
    pub work: usize,
}

impl TransformList {
    /// Builds the transforms of a list for images like `input`.
    pub fn new(list: &[String], input: Images, manifest: &Manifest) -> Result<Self, Error> {
        // Random draws depend on a transform's index. The words at the head of the list must not count.
        let (head, list) = Head::split(list);
        let input = if head.rgb { as_rgb(input) } else { input };
        let mut transforms: Vec<Box<dyn Transform>> = Vec::with_capacity(list.len());
        let mut now = match input {
            Images::Fixed(spec) => Sizes::Equal(spec),
            Images::Varied { channels } => Sizes::Varied(Varied { channels, short_side: None }),
        };
        let dtype = manifest.bands.dtype;
        if head.rgb && dtype != Dtype::U8 {
            let problem =
                format!("it is for images of bytes, but this data set has {dtype} values; write select_bands(1, 1, 1)");
            return Err(Error::Transform { index: 0, text: RGB.into(), problem, is_about_sizes: false });
        }
        let mut statistics = Statistics::new(manifest, input.channels(), head.rgb);
        let (mut work, mut selection) = (None, None::<Vec<usize>>);
        for (index, text) in list.iter().enumerate() {
            let fail = |problem: Misfit| {
                let is_about_sizes = matches!(problem, Misfit::VariousSizes);
                Error::Transform { index, text: text.clone(), problem: problem.to_string(), is_about_sizes }
            };
            let first = transforms.iter().all(|before| before.selection().is_some());
            let (transform, output) = step(index, text, (&statistics, first), now).map_err(fail)?;
            now = output;
            transform.restate(&mut statistics);
            if let Some(bands) = transform.selection() {
                if !transforms.iter().all(|before| before.is_geometric()) {
                    return Err(fail("it must come before all transforms that change values".into()));
                }
                selection = Some(match selection {
                    Some(before) => bands.iter().map(|&band| before[band]).collect(),
                    None => bands.to_vec(),
                });
            }
            if dtype == Dtype::U8 && transform.needs_byte_scale() && transforms.iter().any(|before| before.rescales()) {
                let why =
                    "it expects values from 0 to 255, so it must come before normalize, standardize, scale and log1p";
                return Err(fail(why.into()));
            }
            if let Sizes::Equal(spec) = now
                && (work.is_some() || !transform.is_geometric())
            {
                work = work.max(Some(spec.values()));
            }
            transforms.push(transform);
        }
        let Sizes::Equal(output) = now else {
            return Err(Error::VariousSizes { images: input });
        };
        let geometric = transforms.iter().take_while(|transform| transform.is_geometric()).count();
        let rest = transforms[geometric..].iter();
        let keeping = rest.take_while(|transform| transform.keeps_bytes() || transform.is_geometric()).count();
        let work = work.unwrap_or(0).max(output.values());
        Ok(Self { input, output, head, dtype, selection, transforms, geometric, bytes: geometric + keeping, work })
    }

    /// Returns the geometric transforms at the start of the list.
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

/// Builds the transform at `index` in a list and returns its result shapes for images like `now`. `first` is true if
/// all transforms before it only select bands.
fn step(
    index: usize,
    text: &str,
    (statistics, first): (&Statistics, bool),
    now: Sizes,
) -> Result<(Box<dyn Transform>, Sizes), Misfit> {
    if index >= usize::from(ORDER_OP) {
        return Err(format!("a list has at most {ORDER_OP} transforms").into());
    }
    let input = match now {
        Sizes::Equal(spec) => spec,
        Sizes::Varied(varied) => ImageSpec::new(0, 0, varied.channels),
    };
    if HEAD_WORDS.contains(&text.trim()) {
        return Err("it must come before the transforms, at the start of the list".into());
    }
    let transform = ops::parse(text, Context { input, statistics })?;
    if transform.resizes() && !first {
        let why = "it resizes, so it must be the first in the list (only select_bands may come before it)";
        return Err(why.into());
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

/// Names of transforms with sizes in pixels as their first arguments, and how many sizes they have.
const SIZED: [(&str, usize); 8] = [
    ("center_crop", 1),
    ("corner_crop", 1),
    ("cutout", 1),
    ("inception_crop", 1),
    ("random_crop", 1),
    ("random_resized_crop", 1),
    ("resize", 1),
    ("scale_jitter", 2),
];

/// Returns the list with every size multiplied by `to / from`, rounded to the nearest integer and at least 1. Offsets
/// such as the padding of `pad_crop` do not change.
///
/// # Errors
///
/// Returns an error if no transform of the list has a size.
pub fn scaled(list: &[String], from: u32, to: u32) -> Result<Vec<String>, String> {
    let resized: Vec<Option<String>> = list.iter().map(|text| scale_sizes(text, from, to)).collect();
    if resized.iter().all(Option::is_none) {
        let why = "no transform in the list has a size; put resize(size) or random_resized_crop(size) at its start";
        return Err(why.to_owned());
    }
    Ok(resized.into_iter().zip(list).map(|(new, old)| new.unwrap_or_else(|| old.clone())).collect())
}

/// Scales the sizes of a transform. Returns `None` for a transform without sizes, or if it cannot be parsed.
fn scale_sizes(text: &str, from: u32, to: u32) -> Option<String> {
    let (name, inside) = text.trim().strip_suffix(')')?.split_once('(')?;
    let (_, sizes) = SIZED.into_iter().find(|(sized, _)| *sized == name.trim())?;
    let words = inside.split(',').map(str::trim).enumerate();
    let changed: Option<Vec<String>> =
        words.map(|(place, word)| if place < sizes { size(word, from, to) } else { Some(word.to_owned()) }).collect();
    Some(format!("{}({})", name.trim(), changed?.join(", ")))
}

/// Scales a size, such as `256` or `192x256`.
fn size(word: &str, from: u32, to: u32) -> Option<String> {
    let side = |side: u32| (f64::from(side) * f64::from(to) / f64::from(from)).round().max(1.0) as u32;
    match call::size(word) {
        Some(Size { height, width }) => Some(format!("{}x{}", side(height), side(width))),
        None => pixels(word.parse().ok()?, 1).ok().map(|pixels| side(pixels).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(list: &[&str], from: u32, to: u32) -> Result<Vec<String>, String> {
        scaled(&list.iter().map(ToString::to_string).collect::<Vec<_>>(), from, to)
    }

    #[test]
    fn all_sizes_are_scaled_by_the_same_factor() {
        let list = ["resize(256, bicubic)", "random_crop(224)", "pad_crop(4)", "flip(0.3)", "cutout(16)", "normalize"];
        let small = ["resize(146, bicubic)", "random_crop(128)", "pad_crop(4)", "flip(0.3)", "cutout(9)", "normalize"];
        assert_eq!(of(&list, 224, 128).unwrap(), small);
        let list = ["scale_jitter(256, 512)", "random_resized_crop( 192x256, 0.35, lanczos )"];
        assert_eq!(
            of(&list, 192, 96).unwrap(),
            ["scale_jitter(128, 256)", "random_resized_crop(96x128, 0.35, lanczos)"]
        );
        assert_eq!(of(&["cutout(1)"], 224, 32).unwrap(), ["cutout(1)"], "never nothing");
    }

    #[test]
    fn a_list_without_a_size_is_refused() {
        for list in [&["pad_crop(4)", "flip", "normalize"][..], &[], &["resize"], &["resize(big)"]] {
            assert!(of(list, 32, 16).unwrap_err().contains("random_resized_crop(size)"), "{list:?}");
        }
    }

    #[test]
    fn all_scalable_transforms_exist() {
        let names = ops::names();
        assert!(SIZED.iter().all(|(name, _)| names.contains(name)));
    }
}
