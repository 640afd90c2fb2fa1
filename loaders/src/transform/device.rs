//! Lists that a device can finish: geometry and what keeps bytes, then at most `normalize`. The loader gives it bytes, or crop rectangles
//! of images that the device has, and the tables from byte to float. The results are the same bit for bit, except that resized pixels
//! are rounded.

use crate::error::Error;
use crate::spec::{ImageSpec, Images};
use crate::transform::canvas::{Canvas, Work};
use crate::transform::geometry::CropRect;
use crate::transform::paint::IDENTITY;
use crate::transform::pipeline::Pipeline;

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
