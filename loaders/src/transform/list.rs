//! A list of transforms: what a transform is, how a list is built and checked before the first image, how its sizes are scaled, and
//! which lists a device can finish.

use std::fmt;

use crate::decode::Exif;
use crate::error::{Error, VARIOUS_SIZES};
use crate::format::manifest::Manifest;
use crate::random::{Draws, ORDER_OP};
use crate::spec::{ImageSpec, Images};
use crate::transform::call::{Arguments, Size, pixels};
use crate::transform::canvas::{Canvas, Work};
use crate::transform::geometry::CropRect;
use crate::transform::paint::{IDENTITY, MAX_CHANNELS};
use crate::transform::pipeline::Pipeline;
use crate::transform::{call, ops};

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

/// Transforms that begin with sizes in pixels, and how many they begin with.
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

/// The list with every size multiplied by `to / from`, rounded to the nearest and at least 1. Offsets such as the padding of `pad_crop`
/// stay.
///
/// # Errors
/// For a list that has no size.
pub fn scaled(list: &[String], from: u32, to: u32) -> Result<Vec<String>, String> {
    let resized: Vec<Option<String>> = list.iter().map(|text| one(text, from, to)).collect();
    if resized.iter().all(Option::is_none) {
        let why = "no transform in the list has a size; put resize(size) or random_resized_crop(size) at its head";
        return Err(why.to_owned());
    }
    Ok(resized.into_iter().zip(list).map(|(new, old)| new.unwrap_or_else(|| old.clone())).collect())
}

/// A call with its sizes scaled; none for a transform without any, or one that cannot be read.
fn one(text: &str, from: u32, to: u32) -> Option<String> {
    let (name, inside) = text.trim().strip_suffix(')')?.split_once('(')?;
    let (_, sizes) = SIZED.into_iter().find(|(sized, _)| *sized == name.trim())?;
    let words = inside.split(',').map(str::trim).enumerate();
    let changed: Option<Vec<String>> =
        words.map(|(place, word)| if place < sizes { size(word, from, to) } else { Some(word.to_owned()) }).collect();
    Some(format!("{}({})", name.trim(), changed?.join(", ")))
}

/// `256` or `192x256`, scaled.
fn size(word: &str, from: u32, to: u32) -> Option<String> {
    let side = |side: u32| (f64::from(side) * f64::from(to) / f64::from(from)).round().max(1.0) as u32;
    match call::size(word) {
        Some(Size { height, width }) => Some(format!("{}x{}", side(height), side(width))),
        None => pixels(word.parse().ok()?, 1).ok().map(|pixels| side(pixels).to_string()),
    }
}

/// One step from image to image. `Display` writes it with all arguments, so that it can be parsed again without the data set.
pub trait Transform: fmt::Debug + fmt::Display + Send + Sync {
    /// The shape of the result for images of shape `input`, or why they cannot be used. By default the shape does not change.
    fn output(&self, input: ImageSpec) -> Result<ImageSpec, String> {
        Ok(input)
    }

    /// The shapes of the results for images of various sizes, or why they cannot be used. Most transforms need one size.
    fn output_of_varied(&self, _input: Varied) -> Result<Sizes, String> {
        Err(various_sizes())
    }

    /// Whether it resizes the image ([`Canvas`] can do that once, and first of all).
    fn resizes(&self) -> bool {
        false
    }

    /// Whether images of one size come out in various sizes.
    fn varies(&self) -> bool {
        false
    }

    /// Whether it only moves pixels, which costs nothing before floats are made.
    fn is_geometric(&self) -> bool {
        false
    }

    /// Whether it may mirror top and bottom.
    fn upends(&self) -> bool {
        false
    }

    /// Whether its result may contain pixels from outside of the image.
    fn pads(&self) -> bool {
        false
    }

    /// Whether it works on bytes and leaves bytes, so that it must not stand behind `normalize` or `standardize`.
    fn keeps_bytes(&self) -> bool {
        false
    }

    /// Whether its results are no longer on the scale 0 to 255.
    fn rescales(&self) -> bool {
        false
    }

    /// If the result of each value depends on its byte and channel alone: those results, a table for each of `channels`.
    fn tables(&self, _channels: usize) -> Option<Vec<[f32; 256]>> {
        None
    }

    /// Changes the image; all randomness comes from `draws`.
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws);
}

/// What is known of images while their sizes vary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Varied {
    /// Channels of all.
    pub channels: u32,
    /// The length of the shorter side, if a transform has made it the same for all.
    pub short_side: Option<u32>,
}

/// The shapes of images between two transforms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    /// All have one shape.
    Equal(ImageSpec),
    /// Sizes vary.
    Varied(Varied),
}

/// What a transform may need to know beside its arguments.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'a> {
    /// The shape that the transform will get; 0 x 0 while sizes vary.
    pub input: ImageSpec,
    /// Of pixel / 255 over the training split, per channel.
    pub mean: &'a [f64],
    pub std: &'a [f64],
}

/// A transform, or what is wrong with its arguments.
pub(super) type Built = Result<Box<dyn Transform>, String>;

/// Makes a transform from its arguments.
#[derive(Clone, Copy)]
pub(super) enum Build {
    /// From numbers alone.
    Numbers(fn(&[f64], Context<'_>) -> Built),
    /// From a size, numbers and words.
    Any(fn(&Arguments<'_>, Context<'_>) -> Built),
}

impl Build {
    /// Makes the transform.
    pub fn run(self, arguments: &Arguments<'_>, context: Context<'_>) -> Built {
        match self {
            Self::Numbers(build) => build(arguments.only_numbers()?, context),
            Self::Any(build) => build(arguments, context),
        }
    }
}

/// The error of a transform that needs images of one size.
pub(super) fn various_sizes() -> String {
    VARIOUS_SIZES.to_owned()
}

// Lists that a device can finish: geometry and what keeps bytes, then at most `normalize`. The loader gives it bytes, or crop rectangles
// of images that the device has, and the tables from byte to float. The results are the same bit for bit, except that resized pixels
// are rounded.

impl Pipeline {
    /// The float of each byte, a table a channel, if the list is geometry and then what keeps bytes, with or without a `normalize` at
    /// its end; `None` for other lists.
    pub fn tables(&self) -> Option<Vec<[f32; 256]>> {
        let channels = self.output().channels as usize;
        match &self.list().transforms[self.list().bytes..] {
            [] => Some(vec![IDENTITY[0].table; channels]),
            [last] => last.tables(channels),
            _ => None,
        }
    }

    /// Fails where [`Pipeline::tables`] is `None`, and names the transform that needs floats.
    pub fn check_bytes(&self) -> Result<(), Error> {
        if self.tables().is_some() {
            return Ok(());
        }
        let (mut index, mut problem) =
            (self.list().bytes, "makes floats; for a batch of bytes normalize alone may do so, as the last");
        if self.list().transforms[index].tables(self.output().channels as usize).is_some() {
            (index, problem) = (index + 1, "follows what makes floats, which must be the last for a batch of bytes");
        }
        Err(Error::Transform { index, text: self.list().transforms[index].to_string(), problem: problem.into() })
    }

    /// Whether [`Pipeline::crop_rect`] and [`Pipeline::tables`] are all that the list does to an image: nothing is resized or upended,
    /// and nothing is padded after a crop.
    pub fn only_crops(&self) -> bool {
        let mut geometry = self.list().geometry().iter().enumerate();
        let simple =
            geometry.all(|(i, transform)| !transform.resizes() && !transform.upends() && (i == 0 || !transform.pads()));
        let simple = simple && self.list().bytes == self.list().geometric;
        simple && matches!(self.input(), Images::Fixed(_)) && self.tables().is_some()
    }

    /// The crop of sample `id` in `epoch`, an image of shape `spec`, if [`Pipeline::only_crops`] holds.
    pub fn crop_rect(&self, spec: ImageSpec, id: u64, epoch: u32) -> CropRect {
        let (mut values, mut work) = ([], Work::default());
        let mut canvas = Canvas::new(spec, &mut values, &mut work);
        self.apply_geometry(&mut canvas, id, epoch);
        canvas.crop_rect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::ops;

    fn of(list: &[&str], from: u32, to: u32) -> Result<Vec<String>, String> {
        scaled(&list.iter().map(ToString::to_string).collect::<Vec<_>>(), from, to)
    }

    #[test]
    fn every_size_goes_by_the_same_factor() {
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
    fn all_of_them_exist() {
        let names = ops::names();
        assert!(SIZED.iter().all(|(name, _)| names.contains(name)));
    }
}

#[cfg(test)]
mod device_tests {
    use super::*;
    use crate::format::example::{Example, Format};
    use crate::random::Draws;
    use crate::transform::canvas::Scratch;

    const SPEC: ImageSpec = ImageSpec::new(7, 5, 3);

    fn pipeline(ops: &[&str]) -> Pipeline {
        let ops: Vec<String> = ops.iter().map(|op| op.to_string()).collect();
        let manifest: crate::Manifest = serde_json::from_str(
            r#"{"version":1,"classes":["a"],"mean":[0.5,0.25,0.125],"std":[0.5,0.25,2.0],"splits":{}}"#,
        )
        .unwrap();
        Pipeline::new(&ops, SPEC, &manifest, 9).unwrap()
    }

    fn image() -> Vec<u8> {
        let mut draws = Draws::new(3, 0, 0, 0);
        (0..SPEC.values()).map(|_| draws.below(256) as u8).collect()
    }

    /// What a device makes of bytes: a table a channel, planar.
    fn planar(bytes: impl Fn(usize, usize, usize) -> u8, out: ImageSpec, tables: &[[f32; 256]]) -> Vec<f32> {
        let (h, w) = (out.height as usize, out.width as usize);
        let places = (0..3).flat_map(|c| (0..h).flat_map(move |y| (0..w).map(move |x| (c, y, x))));
        places.map(|(c, y, x)| tables[c][bytes(y, x, c) as usize]).collect()
    }

    #[test]
    fn bytes_and_crops_give_the_values_to_the_bit() {
        let pixels = image();
        let lists: [&[&str]; 5] = [
            &["pad_crop(3)", "flip", "normalize"],
            &["flip", "random_crop(4)", "flip", "normalize(0.3, 0.7)"],
            &["pad_crop(2)", "center_crop(3)", "flip"],
            &["normalize"],
            &[],
        ];
        for ops in lists {
            let pipeline = pipeline(ops);
            assert!(pipeline.only_crops(), "{ops:?}");
            let (tables, out, mut scratch) = (pipeline.tables().unwrap(), pipeline.output(), Scratch::default());
            for id in 0..60 {
                let mut values = vec![f32::NAN; out.values()];
                pipeline.apply(&pixels, SPEC, id, 2, &mut scratch, &mut values).unwrap();
                let ImageSpec { height, width, channels } = SPEC;
                let (format, text, filename) = (Format::Raw, "", "");
                let example = Example {
                    encoded: &pixels,
                    format,
                    height,
                    width,
                    channels,
                    label: 0,
                    text,
                    filename,
                    boxes: Default::default(),
                    entry_points: &[],
                    labels: Default::default(),
                };
                let mut bytes = vec![0x55; out.values()];
                pipeline.run_bytes(&example, id, 2, &mut scratch, &mut bytes).unwrap();
                let row = out.width as usize;
                assert_eq!(planar(|y, x, c| bytes[(y * row + x) * 3 + c], out, &tables), values, "{ops:?}, {id}");
                let CropRect { top, left, mirrored } = pipeline.crop_rect(SPEC, id, 2);
                let seen = |y: usize, x: usize, c: usize| {
                    let x = if mirrored { row - 1 - x } else { x };
                    let (y, x) = (top + y as i32, left + x as i32);
                    let inside = (0..height as i32).contains(&y) && (0..width as i32).contains(&x);
                    if inside { pixels[((y * width as i32 + x) * 3) as usize + c] } else { 0 }
                };
                assert_eq!(planar(seen, out, &tables), values, "{ops:?}, {id}");
            }
        }
    }

    #[test]
    fn resized_pixels_are_rounded_and_other_lists_need_floats() {
        let pixels = image();
        let resized = pipeline(&["random_resized_crop(4)", "flip", "normalize"]);
        assert!(resized.tables().is_some() && !resized.only_crops());
        let (mut scratch, mut values, mut bytes) = (Scratch::default(), vec![0.0; 48], vec![0; 48]);
        let plain = pipeline(&["random_resized_crop(4)", "flip"]);
        plain.apply(&pixels, SPEC, 5, 0, &mut scratch, &mut values).unwrap();
        let (format, text, filename) = (Format::Raw, "", "");
        let example = Example {
            encoded: &pixels,
            format,
            height: 7,
            width: 5,
            channels: 3,
            label: 0,
            text,
            filename,
            boxes: Default::default(),
            entry_points: &[],
            labels: Default::default(),
        };
        resized.run_bytes(&example, 5, 0, &mut scratch, &mut bytes).unwrap();
        for (i, value) in values.iter().enumerate() {
            let byte = bytes[i % 16 * 3 + i / 16];
            assert!((f32::from(byte) - value).abs() <= 0.5, "{value} became {byte}");
        }
        assert!(pipeline(&["brightness(20)", "normalize"]).tables().is_none());
        assert!(pipeline(&["normalize", "random_erasing(0.5)"]).tables().is_none());
        assert!(!pipeline(&["random_crop(4)", "pad_crop(2)", "normalize"]).only_crops());
    }
}
