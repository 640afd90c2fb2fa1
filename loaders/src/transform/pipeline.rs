//! A list of transforms made ready for images of one shape: shapes settled and memory planned before
//! the first image.

use std::sync::Arc;

use super::{Canvas, Context, Transform, parse};
use crate::dataset::Manifest;
use crate::decode::decode;
use crate::error::{Error, Fault};
use crate::example::Example;
use crate::random::{Draws, ORDER_OP};
use crate::spec::ImageSpec;

/// Transforms in order, from images of one shape to images of one shape. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Pipeline {
    seed: u64,
    input: ImageSpec,
    output: ImageSpec,
    ops: Arc<[Box<dyn Transform>]>,
    /// Floats of the largest shape that occurs once bytes have become floats.
    work: usize,
}

/// A thread's working memory, reused from image to image.
#[derive(Debug, Default)]
pub struct Scratch {
    pixels: Vec<u8>,
    floats: Vec<f32>,
}

impl Pipeline {
    /// Parses `ops` for images of shape `input`; `manifest` lends `normalize` its mean and std.
    pub fn new(ops: &[String], input: ImageSpec, manifest: &Manifest, seed: u64) -> Result<Self, Error> {
        let mut built = Vec::with_capacity(ops.len());
        let mut now = input;
        let mut work = None;
        for (index, text) in ops.iter().enumerate() {
            let context = Context { input: now, mean: &manifest.mean, std: &manifest.std };
            let made = if index < usize::from(ORDER_OP) {
                parse(text, context)
            } else {
                Err(format!("a list has at most {ORDER_OP} transforms"))
            };
            let made = made.and_then(|op| Ok((op.output(now)?, op)));
            let (output, op) = made.map_err(|problem| Error::Transform { index, text: text.clone(), problem })?;
            now = output;
            if work.is_some() || !op.is_geometric() {
                work = work.max(Some(now.values()));
            }
            built.push(op);
        }
        Ok(Self { seed, input, output: now, ops: built.into(), work: work.unwrap_or(0).max(now.values()) })
    }

    /// The shape of the images that go in.
    pub fn input(&self) -> ImageSpec {
        self.input
    }

    /// The shape of the images that come out.
    pub fn output(&self) -> ImageSpec {
        self.output
    }

    /// The transforms in full: numbers taken from a data set stand in them as arguments, so the list
    /// gives the same pipeline again without that data set.
    pub fn ops(&self) -> Vec<String> {
        self.ops.iter().map(|op| op.to_string()).collect()
    }

    /// Decodes an example and transforms it into `out` (C, H, W of `output()`); `id` and `epoch` key
    /// the random draws.
    pub fn run(
        &self,
        example: &Example<'_>,
        id: u64,
        epoch: u32,
        scratch: &mut Scratch,
        out: &mut [f32],
    ) -> Result<(), Fault> {
        let pixels = decode(example, self.input, &mut scratch.pixels)?;
        self.transform(pixels, id, epoch, &mut scratch.floats, out);
        Ok(())
    }

    /// Transforms an image given as rows of interleaved bytes.
    ///
    /// # Panics
    /// If `pixels` or `out` are shorter than `input()` or `output()` asks.
    pub fn apply(&self, pixels: &[u8], id: u64, epoch: u32, scratch: &mut Scratch, out: &mut [f32]) {
        self.transform(pixels, id, epoch, &mut scratch.floats, out);
    }

    fn transform(&self, pixels: &[u8], id: u64, epoch: u32, floats: &mut Vec<f32>, out: &mut [f32]) {
        let n = self.output.values();
        if self.work == n {
            self.paint(pixels, id, epoch, out);
        } else {
            floats.resize(self.work, 0.0);
            self.paint(pixels, id, epoch, floats);
            out[..n].copy_from_slice(&floats[..n]);
        }
    }

    fn paint(&self, pixels: &[u8], id: u64, epoch: u32, values: &mut [f32]) {
        let mut canvas = Canvas::new(pixels, self.input, values);
        for (index, op) in self.ops.iter().enumerate() {
            let mut draws = Draws::new(self.seed, id, epoch, index as u16);
            op.apply(&mut canvas, &mut draws);
        }
        // A list of nothing but geometry leaves bytes; a batch is floats.
        canvas.floats();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!((p.input(), p.output()), (GREY, ImageSpec::new(3, 3, 1)));
        assert_eq!(p.ops(), ["random_crop(5)", "flip", "center_crop(3)", "normalize(0.5, 0.25)"]);
        let again: Vec<_> = p.ops();
        let again: Vec<_> = again.iter().map(String::as_str).collect();
        assert_eq!(pipeline(&again, GREY).unwrap().ops(), p.ops());
    }

    #[test]
    fn errors_say_which_op_and_what_to_write() {
        for (op, part) in [
            ("normalise", "did you mean `normalize`?"),
            ("pad_corp(4)", "did you mean `pad_crop`?"),
            ("pad_crop", "expected 1 argument, got 0; write pad_crop(padding)"),
            ("pad_crop(1.5)", "expected a whole number"),
            ("random_crop(7)", "a crop of 7x7 does not fit into an image of 6x6x1"),
            ("center_crop(0)", "expected a whole number of pixels from 1"),
            ("contrast(1)", "expected 2 arguments, got 1"),
            ("contrast(2, 1)", "expected 0 <= lower <= upper"),
            ("brightness(-1)", "expected at least 0, got -1"),
            ("normalize(1)", "expected 0, 2 or 2 arguments, got 1"),
            ("normalize(0, 0)", "expected a std above 0, got 0"),
            ("standardize(1)", "expected no argument, got 1"),
        ] {
            let error = pipeline(&["flip", op], GREY).unwrap_err().to_string();
            assert!(error.starts_with(&format!("transform 1 `{op}`: ")), "{error}");
            assert!(error.contains(part), "{error}");
        }
        let error = pipeline(&["normalize"], ImageSpec::new(2, 2, 3)).unwrap_err();
        assert!(error.to_string().contains("the image has 3 channels"));
    }

    fn apply(p: &Pipeline, pixels: &[u8], id: u64, epoch: u32) -> Vec<f32> {
        let mut out = vec![f32::NAN; p.output().values()];
        p.apply(pixels, id, epoch, &mut Scratch::default(), &mut out);
        out
    }

    #[test]
    fn geometry_before_and_after_values_gives_the_same() {
        let spec = ImageSpec::new(6, 6, 1);
        let pixels: Vec<u8> = (0..36).map(|i| i * 7).collect();
        // `flip` stands second in both, so it draws the same; the crop is not random.
        let before = pipeline(&["center_crop(3)", "flip", "normalize"], spec).unwrap();
        let after = pipeline(&["normalize", "flip", "center_crop(3)"], spec).unwrap();
        for id in 0..20 {
            // On an odd margin the crop and the flip do not commute; here 6 - 3 = 3 is odd.
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
    fn a_list_without_values_ends_in_0_to_255() {
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
