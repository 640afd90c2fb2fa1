//! An image on its way through the transforms. Geometric transforms at the start of a list do not read pixels. The
//! first transform that changes values converts the stored values to planes in a single pass. The planes are floats, or
//! bytes where torchvision works on bytes. Stored values that are not bytes always become floats.

use std::time::Instant;

use crate::channels;
use crate::decode::{Decoded, Decoder, ExifOrientation, Need};
use crate::format::example::{BoundingBox, Boxes};
use crate::memory::Limits;
use crate::spec::{Dtype, ImageSpec};
use crate::transform::bytes::{self, ByteImage, Grid, Planes, Sampling, nearest};
use crate::transform::call::Size;
use crate::transform::geometry::{self, CropRect, Geometry, PlanarShape, Rectangle};
use crate::transform::paint::{self, IDENTITY, MOST_CHANNELS, Scale, paint_resized, paint_stored};
use crate::transform::paint_values::paint_values;
use crate::transform::resample::{Filter, Resampler};

/// An image: either stored values (H, W, C) and their visible part, or byte or float planes (C, H, W).
///
/// The bytes are loaded late. Geometric transforms need only sizes, and only the pixels that remain after them are
/// decoded.
#[derive(Debug)]
pub struct Canvas<'a> {
    geometry: Geometry,
    decoded: Decoded<'a>,
    values: &'a mut [f32],
    form: Form,
    work: &'a mut Work,
    boxes: Boxes<'a>,
    turn: ExifOrientation,
}

/// The form in which the image currently exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The pixels are in `decoded`. `geometry` says which of them are visible, and where.
    Stored,
    /// The pixels are bytes in `work.bytes`.
    Bytes,
    /// The pixels are floats in `values`.
    Floats,
}

impl<'a> Canvas<'a> {
    /// Creates the canvas of a whole image of shape `spec`. Its pixels are loaded later with [`Canvas::load`]. `values`
    /// must have room for the floats of the largest shape that occurs.
    pub(super) fn new(spec: ImageSpec, values: &'a mut [f32], work: &'a mut Work) -> Self {
        let decoded = Decoded { bytes: &[], dtype: Dtype::U8, columns: 0, origin: (0, 0), reduction: 1 };
        let (boxes, turn) = (Boxes::default(), ExifOrientation::default());
        Self { geometry: Geometry::new(spec), decoded, values, form: Form::Stored, work, boxes, turn }
    }

    /// Sets the bounding boxes of the objects in the stored image, and how EXIF turns that image.
    pub(super) fn set_boxes(&mut self, boxes: Boxes<'a>, turn: ExifOrientation) {
        (self.boxes, self.turn) = (boxes, turn);
    }

    /// Returns the bounding boxes of the objects in the whole image. Only the first transform of a list may call this,
    /// because later ones may have cropped the image.
    pub(super) fn boxes(&self) -> impl Iterator<Item = BoundingBox> + use<'a> {
        let turn = self.turn;
        self.boxes.iter().map(move |found| turn.turn_box(found))
    }

    /// Returns the part of the stored image that is visible, at least one pixel.
    pub(super) fn need(&self) -> Need {
        self.geometry.need()
    }

    /// Sets the stored values. They must include the part that [`Canvas::need`] returned.
    pub(super) fn load(&mut self, decoded: Decoded<'a>) {
        self.decoded = decoded;
    }

    pub fn spec(&self) -> ImageSpec {
        self.geometry.spec()
    }

    /// Crops to a part, which must be inside the image.
    pub(super) fn crop(&mut self, part: Rectangle) {
        match self.form {
            Form::Stored => {}
            Form::Bytes => self.work.bytes.crop(part),
            Form::Floats => geometry::crop(self.values, self.shape(), part),
        }
        self.geometry.crop(part);
    }

    /// Resizes a part with antialiasing. Only the first transform of a list may do this.
    pub(super) fn resize(&mut self, part: Rectangle, size: Size, filter: Filter) {
        self.geometry.resize(part, size.height, size.width, filter);
    }

    /// Replaces the image by a window of the same size that starts `down` rows and `right` columns after the image's
    /// top left corner. Pixels outside the image are zero. This is equal to padding followed by a crop.
    pub fn shift(&mut self, down: i32, right: i32) {
        let (rows, columns) = (down as isize, right as isize);
        match (self.form, self.shape()) {
            (Form::Stored, _) => self.geometry.shift(down, right),
            (Form::Bytes, shape) => geometry::shift(self.work.bytes.pixels(), shape, rows, columns),
            (Form::Floats, shape) => geometry::shift(&mut self.values[..shape.values()], shape, rows, columns),
        }
    }

    pub fn flip_horizontally(&mut self) {
        match (self.form, self.shape()) {
            (Form::Stored, _) => self.geometry.flipped = !self.geometry.flipped,
            (Form::Bytes, shape) => geometry::flip_horizontally(self.work.bytes.pixels(), shape),
            (Form::Floats, shape) => geometry::flip_horizontally(&mut self.values[..shape.values()], shape),
        }
    }

    pub fn flip_vertically(&mut self) {
        match (self.form, self.shape()) {
            (Form::Stored, _) => self.geometry.flipped_vertically = !self.geometry.flipped_vertically,
            (Form::Bytes, shape) => geometry::flip_vertically(self.work.bytes.pixels(), shape),
            (Form::Floats, shape) => geometry::flip_vertically(&mut self.values[..shape.values()], shape),
        }
    }

    /// Returns the position of the visible window in the stored image. Valid only while the image is in its stored form
    /// and was not resized or mirrored top to bottom.
    pub(super) fn crop_rect(&self, picture: u32) -> CropRect {
        self.geometry.crop_rect(picture)
    }

    /// Writes the image as interleaved stored values. Must be called before the image becomes floats. Bytes of a resized
    /// image are rounded. Other values must not be resized.
    pub(super) fn bytes(&mut self, out: &mut [u8]) {
        debug_assert!(self.is_bytes() || (self.form == Form::Stored && self.geometry.resize.is_none()));
        match (self.form, self.geometry.resize) {
            (Form::Stored, None) => return paint::copy(&self.geometry, &self.decoded, out),
            (Form::Stored, Some(_)) => self.paint(&IDENTITY),
            _ => {}
        }
        let PlanarShape { channels, height, width } = self.shape();
        let plane = (height * width).max(1);
        if self.form == Form::Bytes {
            for (channel, bytes) in self.work.bytes.planes().enumerate() {
                out.iter_mut().skip(channel).step_by(channels).zip(bytes).for_each(|(out, byte)| *out = *byte);
            }
            return;
        }
        if channels == 3 {
            return channels::interleave_rounded(&self.values[..3 * plane], out.as_chunks_mut().0);
        }
        for (channel, values) in self.values.chunks_exact(plane).take(channels).enumerate() {
            let bytes = out.iter_mut().skip(channel).step_by(channels);
            bytes.zip(values).for_each(|(out, value)| *out = channels::rounded(*value));
        }
    }

    /// Returns the image as planes of bytes. Floats are rounded and clamped to 0 to 255.
    pub(super) fn byte_image(&mut self) -> &mut ByteImage {
        self.make_bytes();
        &mut self.work.bytes
    }

    /// Works like [`Canvas::byte_image`], and also returns the buffer for floats, with unspecified contents.
    pub(super) fn byte_image_and_floats(&mut self) -> (&mut ByteImage, &mut [f32]) {
        self.make_bytes();
        (&mut self.work.bytes, self.values)
    }

    fn make_bytes(&mut self) {
        let shape = self.shape();
        match (self.form, self.geometry.resize) {
            (Form::Bytes, _) => return,
            (Form::Stored, None) if self.is_bytes() => {
                paint::planes(&self.geometry, &self.decoded, self.work.bytes.start(shape))
            }
            _ => {
                self.floats();
                let bytes = self.work.bytes.start(shape);
                bytes.iter_mut().zip(&*self.values).for_each(|(byte, value)| *byte = nearest(*value));
            }
        }
        self.form = Form::Bytes;
    }

    /// Returns true if the stored values are bytes.
    pub(super) fn is_bytes(&self) -> bool {
        self.decoded.dtype == Dtype::U8
    }

    /// Samples every pixel at its source position in `grid`. Pixels from outside the image are zero.
    pub(super) fn warp(&mut self, grid: &Grid, sampling: Sampling) {
        match self.is_bytes() {
            true => bytes::warp(self.byte_image(), grid, sampling),
            false => self.change_planes(|planes| bytes::warp(planes, grid, sampling)),
        }
    }

    /// Blurs with a kernel of `side` x `side`.
    pub(super) fn blur(&mut self, side: usize, sigma: f64) {
        match self.is_bytes() {
            true => bytes::blur(self.byte_image(), side, sigma),
            false => self.change_planes(|planes| bytes::blur(planes, side, sigma)),
        }
    }

    /// Works like [`Canvas::shift`], but mirrors the image at its borders instead of filling with zeros.
    pub(super) fn shift_reflected(&mut self, down: i32, right: i32) {
        match self.is_bytes() {
            true => bytes::shift_reflected(self.byte_image(), down, right),
            false => self.change_planes(|planes| bytes::shift_reflected(planes, down, right)),
        }
    }

    /// Changes the image as planes of floats, for operations that cannot work in place.
    fn change_planes(&mut self, change: impl FnOnce(&mut Planes<f32>)) {
        let shape = self.shape();
        self.floats();
        let (values, planes) = (&mut self.values[..shape.values()], &mut self.work.planes);
        planes.start(shape).copy_from_slice(values);
        change(planes);
        values.copy_from_slice(planes.pixels());
    }

    /// Returns the image as planar floats, channel by channel. The first call converts the stored values. Bytes become
    /// floats from 0 to 255.
    pub fn floats(&mut self) -> &mut [f32] {
        match self.form {
            Form::Stored if !self.is_bytes() => self.map_values(|_| |value| value),
            Form::Stored => self.paint(&IDENTITY),
            Form::Bytes => {
                let bytes = self.work.bytes.pixels();
                self.values.iter_mut().zip(bytes).for_each(|(value, byte)| *value = f32::from(*byte));
                self.form = Form::Floats;
            }
            Form::Floats => {}
        }
        let n = self.spec().values();
        &mut self.values[..n]
    }

    /// Maps each value: with the tables of `scales` if the image is still bytes, otherwise with `of(channel)`. `scales`
    /// has an entry per channel, or a single entry for all channels.
    pub(super) fn map<F: Fn(f32) -> f32>(&mut self, scales: &[Scale], of: impl Fn(usize) -> F) {
        let plane = self.shape().plane().max(1);
        match self.form {
            Form::Stored if self.is_bytes() => self.paint(scales),
            Form::Bytes => {
                let planes = self.values.chunks_exact_mut(plane).zip(self.work.bytes.planes());
                for (channel, (values, bytes)) in planes.enumerate() {
                    let table = &scales[channel % scales.len()].table;
                    values.iter_mut().zip(bytes).for_each(|(value, byte)| *value = table[usize::from(*byte)]);
                }
                self.form = Form::Floats;
            }
            _ => self.map_values(of),
        }
    }

    /// Maps each value with `of(channel)`. Stored values that are not bytes are converted in the same pass.
    pub(super) fn map_values<F: Fn(f32) -> f32>(&mut self, of: impl Fn(usize) -> F) {
        if self.form == Form::Stored && !self.is_bytes() {
            let work = (&mut self.work.resampler, &mut self.work.line);
            paint_values(&self.geometry, &self.decoded, of, work, self.values);
            self.form = Form::Floats;
            return;
        }
        let plane = self.shape().plane().max(1);
        for (channel, values) in self.floats().chunks_exact_mut(plane).enumerate() {
            let function = of(channel);
            values.iter_mut().for_each(|value| *value = function(*value));
        }
    }

    /// Fills a rectangle of each channel with the values from `next`, row by row.
    pub(super) fn fill(&mut self, rectangle: Rectangle, mut next: impl FnMut() -> f32) {
        let Rectangle { top, left, height, width } = rectangle;
        let spec = self.spec();
        for plane in self.floats().chunks_exact_mut(spec.pixels().max(1)) {
            for row in plane.chunks_exact_mut(spec.width as usize).skip(top as usize).take(height as usize) {
                row[left as usize..][..width as usize].fill_with(&mut next);
            }
        }
    }

    /// Converts bytes to floats. A single pass resizes, crops, mirrors, applies the scales, and changes the layout from
    /// interleaved to planar.
    fn paint(&mut self, scales: &[Scale]) {
        let Self { geometry, decoded, values, work, .. } = self;
        match geometry.resize {
            Some(_) if geometry.channels > MOST_CHANNELS => {
                let of = |channel: usize| {
                    let Scale { factor, offset, .. } = scales[channel % scales.len()];
                    move |value| value * factor + offset
                };
                paint_values(geometry, decoded, of, (&mut work.resampler, &mut work.line), values);
            }
            Some(resize) => paint_resized(geometry, resize, decoded, scales, &mut work.resampler, values),
            None => paint_stored(geometry, decoded, scales, values),
        }
        self.form = Form::Floats;
    }

    pub(super) fn shape(&self) -> PlanarShape {
        let (height, width) = (self.geometry.window.height(), self.geometry.window.width());
        PlanarShape { channels: self.geometry.channels, height, width }
    }
}

/// Working memory of a canvas, reused for all images.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub resampler: Resampler,
    /// The image, while it is stored as byte planes.
    pub bytes: ByteImage,
    /// A row of an image as floats: interleaved, followed by its planes.
    pub line: Vec<f32>,
    /// Used by transforms that cannot change floats in place.
    planes: Planes<f32>,
}

/// A thread's working memory, reused for all images.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(super) decoder: Decoder,
    pub(super) pixels: Vec<u8>,
    /// An image's selected bands.
    pub(super) selected: Vec<u8>,
    pub(super) floats: Vec<f32>,
    pub(super) work: Work,
    pub(super) clock: Clock,
}

/// Records when an image was decoded, if requested.
#[derive(Debug, Default)]
pub(super) struct Clock {
    wanted: bool,
    decoded: Option<Instant>,
}

impl Clock {
    /// Records that the image is decoded.
    pub fn decoded(&mut self) {
        if self.wanted {
            self.decoded = Some(Instant::now());
        }
    }
}

impl Scratch {
    /// Creates memory for images that are decoded within these limits.
    pub fn new(limits: Limits) -> Self {
        Self { decoder: Decoder::new(limits), ..Self::default() }
    }

    /// Sets whether to record the time at which the next image is decoded.
    pub(crate) fn time_decoding(&mut self, wanted: bool) {
        self.clock = Clock { wanted, decoded: None };
    }

    /// Returns the time at which the last image was decoded.
    pub(crate) fn decoded(&self) -> Option<Instant> {
        self.clock.decoded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Draws;

    /// A reference implementation with plain loops over (H, W, C) floats.
    struct Oracle {
        spec: ImageSpec,
        at: Vec<f32>,
    }

    impl Oracle {
        fn new(bytes: &[u8], spec: ImageSpec) -> Self {
            let at = bytes.iter().map(|&b| f32::from(b)).collect();
            Self { spec, at }
        }

        fn remake(&mut self, h: u32, w: u32, from: impl Fn(i32, i32) -> (i32, i32)) {
            let old = self.spec;
            let mut at = Vec::new();
            for y in 0..h as i32 {
                for x in 0..w as i32 {
                    let (fy, fx) = from(y, x);
                    let inside = (0..old.height as i32).contains(&fy) && (0..old.width as i32).contains(&fx);
                    for c in 0..old.channels as i32 {
                        let i = (fy * old.width as i32 + fx) * old.channels as i32 + c;
                        at.push(if inside { self.at[i as usize] } else { 0.0 });
                    }
                }
            }
            self.at = at;
            self.spec = ImageSpec::new(h, w, old.channels);
        }

        fn planar(&self) -> Vec<f32> {
            let c = self.spec.channels as usize;
            (0..c).flat_map(|k| self.at.iter().skip(k).step_by(c).copied()).collect()
        }
    }

    /// Compares random chains of crop, shift and both mirrors with plain loops. At a random point of the chain, the
    /// stored image becomes bytes or floats.
    #[test]
    fn lazy_views_bytes_and_floats_equal_plain_loops() {
        for case in 0..2000u64 {
            let mut d = Draws::new(5, case, 0, 0);
            let spec = ImageSpec::new(1 + d.below(9), 1 + d.below(9), 1 + d.below(4));
            let bytes: Vec<u8> = (0..spec.values()).map(|_| d.next_u32() as u8).collect();
            let mut values = vec![f32::NAN; spec.values()];
            let mut work = Work::default();
            let mut canvas = Canvas::new(spec, &mut values, &mut work);
            canvas.load(Decoded {
                bytes: &bytes,
                dtype: Dtype::U8,
                columns: spec.width as usize,
                origin: (0, 0),
                reduction: 1,
            });
            let mut oracle = Oracle::new(&bytes, spec);
            for _ in 0..5 {
                let now = canvas.spec();
                assert_eq!(now, oracle.spec);
                match d.below(6) {
                    0 => {
                        let (h, w) = (1 + d.below(now.height), 1 + d.below(now.width));
                        let top = d.below(now.height - h + 1);
                        let left = d.below(now.width - w + 1);
                        canvas.crop(Rectangle { top, left, height: h, width: w });
                        oracle.remake(h, w, |y, x| (y + top as i32, x + left as i32));
                    }
                    1 => {
                        let (dy, dx) = (d.below(9) as i32 - 4, d.below(9) as i32 - 4);
                        canvas.shift(dy, dx);
                        oracle.remake(now.height, now.width, |y, x| (y + dy, x + dx));
                    }
                    2 => {
                        canvas.flip_horizontally();
                        let last = now.width as i32 - 1;
                        oracle.remake(now.height, now.width, |y, x| (y, last - x));
                    }
                    3 => {
                        canvas.flip_vertically();
                        let last = now.height as i32 - 1;
                        oracle.remake(now.height, now.width, |y, x| (last - y, x));
                    }
                    4 => {
                        canvas.byte_image();
                    }
                    _ => {
                        canvas.floats();
                    }
                }
            }
            assert_eq!(canvas.floats(), oracle.planar(), "case {case}");
        }
    }
}
