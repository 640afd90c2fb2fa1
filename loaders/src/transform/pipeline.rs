//! Runs a list of transforms. It accepts images of a fixed shape, or of any shape if its first transforms make the
//! sizes equal.

use std::ops::Range;
use std::sync::Arc;

use crate::decode::Exif;
use crate::error::Error;
use crate::fault::Fault;
use crate::format::example::Example;
use crate::format::manifest::Manifest;
use crate::memory;
use crate::mix::{BatchKey, Mix, MixSettings};
use crate::random::Draws;
use crate::spec::{Dtype, ImageSpec, Images};
use crate::transform::canvas::{Canvas, Scratch, Work};
use crate::transform::geometry::CropRect;
use crate::transform::list::TransformList;
use crate::transform::op::Transform;
use crate::transform::paint::IDENTITY;

/// A list of transforms that turns images into images of the same shape. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Pipeline {
    seed: u64,
    list: Arc<TransformList>,
    mix: Option<MixSettings>,
}

impl Pipeline {
    /// Parses `list` for images like `input`. `normalize` takes its mean and std from `manifest`.
    ///
    /// If the first transforms make the sizes of all images equal (`random_resized_crop`, or `resize` and a crop), the
    /// pipeline accepts images of any size, even if `input` has a fixed size. Otherwise `input` must have a fixed size,
    /// and each image must have it.
    pub fn new(list: &[String], input: impl Into<Images>, manifest: &Manifest, seed: u64) -> Result<Self, Error> {
        let input = input.into();
        let (expected, got) = (manifest.bands.channels, input.channels());
        if let Some(expected) = expected.filter(|&expected| manifest.bands.need_version() && expected != got) {
            return Err(Error::Channels { expected, got });
        }
        let any = Images::Varied { channels: input.channels() };
        let built = match TransformList::new(list, any, manifest) {
            Err(_) if input != any => TransformList::new(list, input, manifest)?,
            planned => planned?,
        };
        // The pixels, the floats, and the memory for decoding and resizing.
        let image = (built.work.max(built.output.values()) as u64).saturating_mul(4 * 4);
        memory::check("an image after these transforms", image, "smaller sizes in the list of transforms")?;
        Ok(Self { seed, list: Arc::new(built), mix: None })
    }

    /// Returns the same pipeline, but with images that are mixed within each batch.
    pub fn mixed(self, mix: MixSettings) -> Self {
        Self { mix: Some(mix), ..self }
    }

    /// Draws how a batch of `rows` images is mixed. Returns `None` if the batch is not mixed.
    pub fn mix(&self, epoch: u32, step: u64, worker: usize, rows: usize) -> Option<Mix> {
        let settings = self.mix.filter(|_| rows > 1)?;
        settings.draw(BatchKey { seed: self.seed, epoch, step, worker }, self.output())
    }

    /// Returns the images that the pipeline accepts.
    pub fn input(&self) -> Images {
        self.list.input
    }

    /// Returns the type of stored values that the pipeline accepts.
    pub fn dtype(&self) -> Dtype {
        self.list.dtype
    }

    /// Returns the shape of the resulting images.
    pub fn output(&self) -> ImageSpec {
        self.list.output
    }

    /// Returns [`Exif::Applied`] if images are turned as their EXIF orientation says.
    pub fn exif(&self) -> Exif {
        self.list.head.exif
    }

    /// Returns the transforms with all arguments, including a mean and deviation from the data set. The list builds the
    /// same pipeline without the data set, but with its `bands` (type, ranges, percentiles), which model.h5 also stores.
    pub fn ops(&self) -> Vec<String> {
        self.list.head.words().chain(self.list.transforms.iter().map(|transform| transform.text())).collect()
    }

    /// Decodes an example and transforms it into `out`, which has the shape (C, H, W) of `output()`. `id` and `epoch`
    /// are part of the key of the random draws.
    pub fn run(
        &self,
        example: &Example<'_>,
        id: u64,
        epoch: u32,
        scratch: &mut Scratch,
        out: &mut [f32],
    ) -> Result<(), Fault> {
        let n = self.output().values();
        if self.list.work == n {
            return self.paint(example, id, epoch, scratch, out);
        }
        let mut floats = std::mem::take(&mut scratch.floats);
        floats.resize(self.list.work, 0.0);
        let done = self.paint(example, id, epoch, scratch, &mut floats);
        out[..n].copy_from_slice(&floats[..n]);
        scratch.floats = floats;
        done
    }

    /// Transforms an image with interleaved bytes in row order.
    ///
    /// # Errors
    ///
    /// Returns an error if `input()` does not allow the shape `spec`, or if `pixels` does not have this shape.
    ///
    /// # Panics
    ///
    /// Panics if `out` is shorter than `output()`.
    pub fn apply(
        &self,
        pixels: &[u8],
        spec: ImageSpec,
        id: u64,
        epoch: u32,
        scratch: &mut Scratch,
        out: &mut [f32],
    ) -> Result<(), Fault> {
        self.run(&Example::from_raw(pixels, spec), id, epoch, scratch, out)
    }

    /// Works like [`Pipeline::run`], but stops before the first transform that is not geometric and does not keep
    /// bytes. The result is stored values with the shape (H, W, C) of `output()`. The caller must convert them as
    /// [`Pipeline::conversion`] says. Resized bytes are rounded.
    pub fn run_bytes(
        &self,
        example: &Example<'_>,
        id: u64,
        epoch: u32,
        scratch: &mut Scratch,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let mut floats = std::mem::take(&mut scratch.floats);
        let bytes = self.list.geometric..self.list.bytes;
        if !bytes.is_empty() || self.list.geometry().iter().any(|transform| transform.resizes()) {
            floats.resize(floats.len().max(self.list.work), 0.0);
        }
        let done = self.with_canvas(example, id, epoch, scratch, &mut floats, |canvas| {
            self.apply_range(canvas, bytes, id, epoch);
            canvas.bytes(&mut out[..self.output().values() * self.dtype().bytes()]);
        });
        scratch.floats = floats;
        done
    }

    fn paint(
        &self,
        example: &Example<'_>,
        id: u64,
        epoch: u32,
        scratch: &mut Scratch,
        values: &mut [f32],
    ) -> Result<(), Fault> {
        self.with_canvas(example, id, epoch, scratch, values, |canvas| {
            self.apply_range(canvas, self.list.geometric..self.list.transforms.len(), id, epoch);
            // If all transforms are geometric, the image is still bytes.
            canvas.floats();
        })
    }

    /// Applies the geometric transforms, decodes the pixels that are still needed, and passes the image to `finish`.
    fn with_canvas(
        &self,
        example: &Example<'_>,
        id: u64,
        epoch: u32,
        scratch: &mut Scratch,
        values: &mut [f32],
        finish: impl FnOnce(&mut Canvas<'_>),
    ) -> Result<(), Fault> {
        let Scratch { decoder, pixels, selected, work, clock, .. } = scratch;
        decoder.exif(self.list.head.exif);
        let stored = decoder.open(example)?;
        let TransformList { dtype, selection, .. } = &*self.list;
        if example.dtype != *dtype {
            return Err(Fault::Dtype { expected: *dtype, got: example.dtype });
        }
        let spec = stored.accept(self.input())?;
        let seen = ImageSpec { channels: selection.as_ref().map_or(spec.channels, |bands| bands.len() as u32), ..spec };
        let mut canvas = Canvas::new(seen, values, work);
        canvas.set_boxes(example.boxes, stored.turn());
        self.apply_range(&mut canvas, 0..self.list.geometric, id, epoch);
        let need = if self.list.head.fast_decode { canvas.need() } else { canvas.need().in_full() };
        let decoded = decoder.decode(stored, example, need, spec.channels, pixels)?;
        canvas.load(match selection {
            Some(bands) => decoded.select(bands, spec.channels as usize, selected),
            None => decoded,
        });
        clock.decoded();
        finish(&mut canvas);
        Ok(())
    }

    fn apply_range(&self, canvas: &mut Canvas<'_>, range: Range<usize>, id: u64, epoch: u32) {
        for index in range {
            let mut draws = Draws::new(self.seed, id, epoch, index as u16);
            self.list.transforms[index].apply(canvas, &mut draws);
        }
    }
}

// Lists that a device can finish: they consist of geometric transforms and transforms that keep bytes, and may end with
// `normalize`. The loader sends the device stored values, or crop rectangles of images that the device already has, and
// how to convert the values to floats. The results are bit-identical to the host's, except that resized bytes are
// rounded.

/// How a device converts stored values to floats.
#[derive(Debug, Clone, PartialEq)]
pub enum Conversion {
    /// A table per channel. Byte b becomes entry b.
    Tables(Vec<[f32; 256]>),
    /// Mean and deviation per channel. Value x becomes (x - mean) / deviation in f32.
    Normalize(Vec<[f32; 2]>),
}

impl Pipeline {
    /// Returns the table from byte to float for each channel. Returns `None` unless images are bytes and the list consists of geometric
    /// transforms and transforms that keep bytes, with or without a `normalize` at its end.
    pub fn tables(&self) -> Option<Vec<[f32; 256]>> {
        if self.dtype() != Dtype::U8 {
            return None;
        }
        let channels = self.output().channels as usize;
        match &self.list.transforms[self.list.bytes..] {
            [] => Some(vec![IDENTITY[0].table; channels]),
            [last] => last.tables(channels),
            _ => None,
        }
    }

    /// Returns how to convert the values from [`Pipeline::run_bytes`] to floats. Returns `None` if the list does more than
    /// that after its geometric transforms and transforms that keep bytes, or if it resizes values that are not bytes.
    pub fn conversion(&self) -> Option<Conversion> {
        let list = &self.list;
        if self.dtype() == Dtype::U8 {
            return self.tables().map(Conversion::Tables);
        }
        if list.geometry().iter().any(|transform| transform.resizes()) {
            return None;
        }
        let channels = self.output().channels as usize;
        let pairs = match &list.transforms[list.geometric..] {
            [] => Some(vec![[0.0, 1.0]; channels]),
            [last] => last.mean_and_deviation(channels),
            _ => None,
        };
        pairs.map(Conversion::Normalize)
    }

    /// Returns an error that names the transform which needs floats, if [`Pipeline::conversion`] returns `None`.
    pub fn check_bytes(&self) -> Result<(), Error> {
        if self.conversion().is_some() {
            return Ok(());
        }
        let transforms = &self.list.transforms;
        let (first, normalizes, makes, follows) = if self.dtype() == Dtype::U8 {
            let first = self.list.bytes;
            (
                first,
                transforms[first].tables(self.output().channels as usize).is_some(),
                "turns bytes into floats; if batches contain bytes, only normalize may do so, at the end of the list",
                "follows a transform that turns bytes into floats; if batches contain bytes, that must be the last transform",
            )
        } else {
            let keeps = |transform: &dyn Transform| transform.is_geometric() && !transform.resizes();
            let first = transforms.iter().take_while(|transform| keeps(transform.as_ref())).count();
            (
                first,
                transforms[first].mean_and_deviation(1).is_some(),
                "makes floats; if batches contain stored values, only normalize may do so, at the end of the list",
                "follows normalize; if batches contain stored values, that must be the last transform",
            )
        };
        let (index, problem) = if normalizes { (first + 1, follows) } else { (first, makes) };
        let text = transforms[index].text();
        Err(Error::Transform { index, text, problem: problem.into(), is_about_sizes: false })
    }

    /// Returns true if [`Pipeline::crop_rect`] and [`Pipeline::tables`] describe everything that the list does to
    /// images of a fixed shape. Then the list does not resize, mirror top and bottom, pad after another transform,
    /// change bytes or select bands.
    pub fn only_crops(&self) -> bool {
        let mut geometry = self.list.geometry().iter().enumerate();
        let simple = geometry.all(|(i, transform)| {
            !transform.resizes() && !transform.flips_vertically() && (i == 0 || !transform.pads())
        });
        let simple = simple && self.list.bytes == self.list.geometric && self.list.selection.is_none();
        simple && matches!(self.input(), Images::Fixed(_)) && self.tables().is_some()
    }

    /// Returns the crop of a picture of shape `spec` in `epoch`. `key` is the key of the sample's draws. Valid only if
    /// [`Pipeline::only_crops`] is true.
    pub fn crop_rect(&self, spec: ImageSpec, picture: u32, key: u64, epoch: u32) -> CropRect {
        let (mut values, mut work) = ([], Work::default());
        let mut canvas = Canvas::new(spec, &mut values, &mut work);
        self.apply_range(&mut canvas, 0..self.list.geometric, key, epoch);
        canvas.crop_rect(picture)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mentions::assert_mentions;

    fn pipeline(ops: &[&str], input: ImageSpec) -> Result<Pipeline, Error> {
        let manifest =
            serde_json::from_str(r#"{"version":1,"classes":["a"],"mean":[0.5],"std":[0.25],"splits":{}}"#).unwrap();
        let ops: Vec<_> = ops.iter().map(|op| op.to_string()).collect();
        Pipeline::new(&ops, input, &manifest, 7)
    }

    const GREY: ImageSpec = ImageSpec::new(6, 6, 1);

    #[test]
    fn shapes_follow_the_ops() {
        let p = pipeline(&["random_crop(5)", "flip", "center_crop(3)", "normalize"], GREY).unwrap();
        assert_eq!((p.input(), p.output()), (Images::Fixed(GREY), ImageSpec::new(3, 3, 1)));
        assert_eq!(p.ops(), ["random_crop(5)", "flip", "center_crop(3)", "normalize(0.5, 0.25)"]);
        let written = p.ops();
        let again: Vec<_> = written.iter().map(String::as_str).collect();
        assert_eq!(pipeline(&again, GREY).unwrap().ops(), written);
    }

    #[test]
    fn every_op_is_parsed_from_its_own_text() {
        let ops = [
            "inception_crop(5)",
            "cifar_distort",
            "color_jitter(0.4, 0.3, 1.5, 0.125)",
            "inception_distort",
            "lighting(0.1)",
            "normalize(0.5, 0.25)",
            "cutout(2)",
            "random_erasing(0.25, 0, 0.02, 0.33, 0.3, 3.3)",
        ];
        assert_eq!(pipeline(&ops, ImageSpec::new(6, 6, 3)).unwrap().ops(), ops);
    }

    /// Returns the problem with the transform at `wrong`. Panics unless the error names this transform.
    fn problem_at(wrong: usize, ops: &[&str], input: ImageSpec) -> String {
        match pipeline(ops, input).unwrap_err() {
            Error::Transform { index, text, problem, .. } if (index, &*text) == (wrong, ops[wrong]) => problem,
            other => panic!("not the error of transform {wrong}: {other}"),
        }
    }

    #[test]
    fn errors_say_which_op_and_what_to_write() {
        for (op, parts) in [
            ("normalise", &["\"normalize\""][..]),
            ("pad_corp(4)", &["\"pad_crop\""]),
            ("pad_crop", &["1 argument", "0", "pad_crop(padding)"]),
            ("pad_crop(1.5)", &["0 to 65535", "1.5"]),
            ("random_crop(7)", &["7x7", "6x6x1"]),
            ("center_crop(0)", &["1 to 65535", "0"]),
            ("contrast(1)", &["2 arguments", "1"]),
            ("contrast(2, 1)", &["0 <= lower <= upper", "2 and 1"]),
            ("brightness(-1)", &["at least 0", "-1"]),
            ("normalize(1)", &["0", "2", "1"]),
            ("normalize(0, 0)", &["std above 0"]),
            ("color_jitter(0.4)", &["4 arguments", "1"]),
            ("color_jitter(0, 0, -1, 0)", &["at least 0", "-1"]),
            ("color_jitter(0, 0, 0, 0.6)", &["hue", "0 to 0.5", "0.6"]),
            ("cutout(1)", &["2 to 65535", "1"]),
            ("inception_crop(5)", &["resizes", "first"]),
            ("inception_distort", &["3 channels", "1"]),
            ("lighting(0.1)", &["3 channels", "1"]),
            ("random_erasing(1.1)", &["0 to 1", "1.1"]),
            ("random_erasing(1, -1)", &["noise_deviation", "at least 0", "-1"]),
            ("random_erasing(1, 0, 0.5, 0.2, 1, 1)", &["0 < min_area <= max_area <= 1", "0.5 and 0.2"]),
            ("random_erasing(1, 0, 0.1, 0.2, 0, 1)", &["0 < min_aspect <= max_aspect", "0 and 1"]),
            ("standardize(1)", &["no argument", "1"]),
        ] {
            assert_mentions(&problem_at(1, &["flip", op], GREY), parts);
        }
        for op in ["color_jitter(0.4, 0.4, 0.4, 0.1)", "lighting(0.1)", "cifar_distort", "inception_distort", "invert"]
        {
            let problem = problem_at(1, &["normalize(0.5, 0.25)", op], ImageSpec::new(6, 6, 3));
            assert_mentions(&problem, &["0 to 255", "before normalize"]);
        }
        let problem = problem_at(0, &["normalize"], ImageSpec::new(2, 2, 3));
        assert_mentions(&problem, &["dataset.json", "1", "3"]);
    }

    fn apply(p: &Pipeline, pixels: &[u8], id: u64, epoch: u32) -> Vec<f32> {
        let mut out = vec![f32::NAN; p.output().values()];
        let Images::Fixed(spec) = p.input() else { panic!("images of any size") };
        p.apply(pixels, spec, id, epoch, &mut Scratch::default(), &mut out).unwrap();
        out
    }

    #[test]
    fn geometry_before_or_after_normalize_gives_the_same_result() {
        let spec = ImageSpec::new(6, 6, 1);
        let pixels: Vec<u8> = (0..36).map(|i| i * 7).collect();
        // `flip` is the second transform in both lists, so its draws are equal. The crop is not random.
        let before = pipeline(&["center_crop(3)", "flip", "normalize"], spec).unwrap();
        let after = pipeline(&["normalize", "flip", "center_crop(3)"], spec).unwrap();
        for id in 0..20 {
            // The margin 6 - 3 = 3 is odd, so the crop and the flip do not commute.
            let crop_first = apply(&before, &pixels, id, 0);
            let crop_last = apply(&after, &pixels, id, 0);
            let flipped = Draws::new(7, id, 0, 1).unit() < 0.5;
            assert_eq!(crop_first == crop_last, !flipped);
        }
        let even = ImageSpec::new(5, 5, 1);
        let before = pipeline(&["center_crop(3)", "flip", "normalize"], even).unwrap();
        let after = pipeline(&["normalize", "flip", "center_crop(3)"], even).unwrap();
        for id in 0..20 {
            assert_eq!(apply(&before, &pixels[..25], id, 0), apply(&after, &pixels[..25], id, 0));
        }
    }

    #[test]
    fn a_list_without_normalize_returns_0_to_255() {
        let pixels: Vec<u8> = (0..36).map(|i| i * 7).collect();
        let p = pipeline(&[], GREY).unwrap();
        let expected: Vec<f32> = pixels.iter().map(|&b| f32::from(b)).collect();
        assert_eq!(apply(&p, &pixels, 0, 0), expected);
    }

    #[test]
    fn draws_differ_by_sample_epoch_and_position() {
        let pixels: Vec<u8> = (0..36).collect();
        let p = pipeline(&["brightness(63)"], GREY).unwrap();
        let q = pipeline(&["center_crop(6)", "brightness(63)"], GREY).unwrap();
        let first = |p: &Pipeline, id, epoch| apply(p, &pixels, id, epoch)[0];
        let all = [first(&p, 0, 0), first(&p, 1, 0), first(&p, 0, 1), first(&q, 0, 0)];
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| a != b), "{all:?}");
        }
        assert_eq!(first(&p, 1, 0), first(&p, 1, 0));
    }
}

#[cfg(test)]
mod device_tests {
    use super::*;

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

    /// Converts bytes to planar floats with one table per channel, as a device does.
    fn planar(bytes: impl Fn(usize, usize, usize) -> u8, out: ImageSpec, tables: &[[f32; 256]]) -> Vec<f32> {
        let (h, w) = (out.height as usize, out.width as usize);
        let places = (0..3).flat_map(|c| (0..h).flat_map(move |y| (0..w).map(move |x| (c, y, x))));
        places.map(|(c, y, x)| tables[c][bytes(y, x, c) as usize]).collect()
    }

    #[test]
    fn bytes_with_tables_equal_float_values_bit_for_bit() {
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
                let ImageSpec { height, width, .. } = SPEC;
                let example = Example::from_raw(&pixels, SPEC);
                let mut bytes = vec![0x55; out.values()];
                pipeline.run_bytes(&example, id, 2, &mut scratch, &mut bytes).unwrap();
                let row = out.width as usize;
                assert_eq!(planar(|y, x, c| bytes[(y * row + x) * 3 + c], out, &tables), values, "{ops:?}, {id}");
                let CropRect { top, left, mirrored, .. } = pipeline.crop_rect(SPEC, 0, id, 2);
                let seen = |y: usize, x: usize, c: usize| {
                    let x = if mirrored == 1 { row - 1 - x } else { x };
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
        resized.run_bytes(&Example::from_raw(&pixels, SPEC), 5, 0, &mut scratch, &mut bytes).unwrap();
        for (i, value) in values.iter().enumerate() {
            let byte = bytes[i % 16 * 3 + i / 16];
            assert!((f32::from(byte) - value).abs() <= 0.5, "{value} became {byte}");
        }
        assert!(pipeline(&["brightness(20)", "normalize"]).tables().is_none());
        assert!(pipeline(&["normalize", "random_erasing(0.5)"]).tables().is_none());
        assert!(!pipeline(&["random_crop(4)", "pad_crop(2)", "normalize"]).only_crops());
    }
}
