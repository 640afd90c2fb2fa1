//! Geometric changes, in two forms: a [`Geometry`] collects them before any pixel is read, and functions apply them to
//! images that are stored as planes.

use crate::decode::{Need, Region};
use crate::spec::ImageSpec;
use crate::transform::resample::{Filter, Span};

/// The pixels of the stored image that are visible, and their positions in the output.
#[derive(Debug, Clone)]
pub(super) struct Geometry {
    pub channels: usize,
    /// How the image is resized before everything else, if at all.
    pub resize: Option<Resize>,
    /// The visible rows and columns, in coordinates of the stored image, or of the resized image if there is a
    /// `resize`.
    pub window: Window,
    /// The window shows zeros outside this area.
    visible: Window,
    /// True if left and right are mirrored.
    pub flipped: bool,
    /// True if top and bottom are mirrored.
    pub flipped_vertically: bool,
}

/// A part of the stored image, and the size that it is resized to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resize {
    pub region: Region,
    pub height: u32,
    pub width: u32,
    pub filter: Filter,
}

/// The part of the window that is not padding.
#[derive(Debug, Clone, Copy)]
pub(super) struct VisiblePart {
    /// In the coordinates of [`Geometry::window`].
    pub window: Window,
    /// Number of padding rows above this part in the output.
    pub above: usize,
    /// Number of padding columns to the left of this part in the output. If flipped, these are on the right in the
    /// stored image.
    pub ahead: usize,
}

impl Geometry {
    /// Creates the geometry that shows a whole image of shape `spec` without changes.
    pub fn new(spec: ImageSpec) -> Self {
        let whole = Window::whole(spec.height, spec.width);
        Self {
            channels: spec.channels as usize,
            resize: None,
            window: whole,
            visible: whole,
            flipped: false,
            flipped_vertically: false,
        }
    }

    /// Returns the shape of the window.
    pub fn spec(&self) -> ImageSpec {
        ImageSpec::new(self.window.height() as u32, self.window.width() as u32, self.channels as u32)
    }

    /// Returns the part of the window that is not padding, or `None` if everything is padding.
    pub fn visible_part(&self) -> Option<VisiblePart> {
        let seen = self.window.intersect(self.visible);
        let ahead = if self.flipped { self.window.right - seen.right } else { seen.left - self.window.left };
        let above = if self.flipped_vertically { self.window.bottom - seen.bottom } else { seen.top - self.window.top };
        (seen.top < seen.bottom && seen.left < seen.right).then_some(VisiblePart {
            window: seen,
            above: above as usize,
            ahead: ahead as usize,
        })
    }

    /// Returns a geometry with a single row that shows the same values, because a long row is copied faster than short
    /// rows. Returns `None` if the window is not made up of complete rows. The stored image has `columns` columns.
    pub fn as_one_row(&self, columns: usize) -> Option<Self> {
        let Window { top, left, bottom, right } = self.window;
        let is_plain = self.resize.is_none() && !self.flipped && !self.flipped_vertically;
        let is_complete = left == 0 && right == columns as i64 && self.window.intersect(self.visible) == self.window;
        let row = Window { top, left, bottom: top + 1, right: (bottom - top) * right };
        (is_plain && is_complete && top < bottom).then(|| Self { window: row, visible: row, ..self.clone() })
    }

    /// Returns the part of the stored image that must be decoded. If the whole window is padding, this is the first
    /// pixel.
    pub fn need(&self) -> Need {
        let Window { top, left, bottom, right } = self.visible_part().map_or(Window::whole(1, 1), |seen| seen.window);
        let [top, left, bottom, right] = [top, left, bottom, right].map(|at| at as usize);
        let Some(Resize { region, height, width, filter }) = self.resize else {
            return Need { region: Region { top, left, bottom, right }, shrink: 1.0 };
        };
        let rows = Span::reduced(region.top, region.bottom, 1, filter);
        let columns = Span::reduced(region.left, region.right, 1, filter);
        let (top, bottom) = rows.support(height as usize, top, bottom);
        let (left, right) = columns.support(width as usize, left, right);
        let shrink = (rows.length / f64::from(height)).min(columns.length / f64::from(width));
        Need { region: Region { top, left, bottom, right }, shrink }
    }

    /// Reduces the window to a part of it.
    pub fn crop(&mut self, part: Rectangle) {
        let Rectangle { top, left, height, width } = part;
        if self.flipped_vertically {
            self.window.bottom -= i64::from(top);
            self.window.top = self.window.bottom - i64::from(height);
        } else {
            self.window.top += i64::from(top);
            self.window.bottom = self.window.top + i64::from(height);
        }
        if self.flipped {
            self.window.right -= i64::from(left);
            self.window.left = self.window.right - i64::from(width);
        } else {
            self.window.left += i64::from(left);
            self.window.right = self.window.left + i64::from(width);
        }
    }

    /// Resizes a part of the image to `height` x `width`. The window must still be the whole stored image.
    pub fn resize(&mut self, part: Rectangle, height: u32, width: u32, filter: Filter) {
        let (top, left) = (part.top as usize, part.left as usize);
        let region = Region { top, left, bottom: top + part.height as usize, right: left + part.width as usize };
        self.resize = Some(Resize { region, height, width, filter });
        self.window = Window::whole(height, width);
        self.visible = self.window;
    }

    /// Moves the window by `down` rows and `right` columns of the output. Pixels that were outside the old window
    /// become zero.
    pub fn shift(&mut self, down: i32, right: i32) {
        let down = i64::from(if self.flipped_vertically { -down } else { down });
        let right = i64::from(if self.flipped { -right } else { right });
        self.visible = self.visible.intersect(self.window);
        self.window.top += down;
        self.window.bottom += down;
        self.window.left += right;
        self.window.right += right;
    }

    /// Returns the position of the window in the stored image. Valid only if the image was not resized or mirrored top
    /// to bottom.
    pub fn crop_rect(&self, picture: u32) -> CropRect {
        let Window { top, left, .. } = self.window;
        CropRect { picture, top: top as i32, left: left as i32, mirrored: u32::from(self.flipped) }
    }
}

/// The shape of an image that is stored as planes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PlanarShape {
    pub channels: usize,
    pub height: usize,
    pub width: usize,
}

impl PlanarShape {
    /// Returns the number of values in a plane.
    pub fn plane(self) -> usize {
        self.height * self.width
    }

    /// Returns the number of values in all planes.
    pub fn values(self) -> usize {
        self.channels * self.plane()
    }
}

/// Splits an image with three channels into its planes.
pub(super) fn rgb<T>(values: &mut [T]) -> [&mut [T]; 3] {
    let plane = values.len() / 3;
    let (red, rest) = values.split_at_mut(plane);
    let (green, blue) = rest.split_at_mut(plane);
    [red, green, blue]
}

/// Crops each plane to `part`. The result is at the start of `values`, without gaps.
pub(super) fn crop<T: Copy>(values: &mut [T], shape: PlanarShape, part: Rectangle) {
    let [top, left, height, width] = [part.top, part.left, part.height, part.width].map(|n| n as usize);
    // Rows only move towards the front, so no row is overwritten before it is read.
    let mut to = 0;
    for channel in 0..shape.channels {
        for row in top..top + height {
            let from = (channel * shape.height + row) * shape.width + left;
            values.copy_within(from..from + width, to);
            to += width;
        }
    }
}

/// Replaces each plane by a window of the same size that starts `down` rows and `right` columns after the plane's top
/// left corner. Pixels outside the image are zero.
pub(super) fn shift<T: Copy + Default>(values: &mut [T], shape: PlanarShape, down: isize, right: isize) {
    let PlanarShape { height, width, .. } = shape;
    let (h, w) = (height as isize, width as isize);
    // The columns of the source that remain, and the column of the target where they begin.
    let kept = right.clamp(0, w) as usize..(w + right).clamp(0, w) as usize;
    let begin = (-right).clamp(0, w) as usize;
    for plane in values.chunks_exact_mut((height * width).max(1)) {
        for i in 0..height {
            let row = if down >= 0 { i } else { height - 1 - i };
            let (to, from) = (row * width, row as isize + down);
            if kept.is_empty() || !(0..h).contains(&from) {
                plane[to..to + width].fill(T::default());
                continue;
            }
            let from = from as usize * width;
            plane.copy_within(from + kept.start..from + kept.end, to + begin);
            plane[to..to + begin].fill(T::default());
            plane[to + begin + kept.len()..to + width].fill(T::default());
        }
    }
}

pub(super) fn flip_horizontally<T>(values: &mut [T], shape: PlanarShape) {
    values.chunks_exact_mut(shape.width.max(1)).for_each(<[T]>::reverse);
}

pub(super) fn flip_vertically<T>(values: &mut [T], shape: PlanarShape) {
    for plane in values.chunks_exact_mut(shape.plane().max(1)) {
        let mut rows = plane.chunks_exact_mut(shape.width);
        while let (Some(upper), Some(lower)) = (rows.next(), rows.next_back()) {
            upper.swap_with_slice(lower);
        }
    }
}

/// `height` rows starting at `top` and `width` columns starting at `left`, all inside the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rectangle {
    pub top: u32,
    pub left: u32,
    pub height: u32,
    pub width: u32,
}

/// A range of rows and columns. The ends are exclusive. It may extend beyond the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub top: i64,
    pub left: i64,
    pub bottom: i64,
    pub right: i64,
}

impl Window {
    pub fn whole(height: u32, width: u32) -> Self {
        Self { top: 0, left: 0, bottom: i64::from(height), right: i64::from(width) }
    }

    /// Intersects two windows. If they do not overlap, a side of the result is zero or negative.
    pub fn intersect(self, other: Self) -> Self {
        Self {
            top: self.top.max(other.top),
            left: self.left.max(other.left),
            bottom: self.bottom.min(other.bottom),
            right: self.right.min(other.right),
        }
    }

    pub fn height(&self) -> usize {
        (self.bottom - self.top) as usize
    }

    pub fn width(&self) -> usize {
        (self.right - self.left) as usize
    }
}

/// A crop of a picture, with the height and width of the pipeline's output. GPU kernels read this struct, so its memory
/// layout is fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct CropRect {
    /// The sample id, which identifies the picture to crop.
    pub picture: u32,
    /// Row of the picture that becomes the first row. Pixels outside the picture are zero.
    pub top: i32,
    /// Column of the picture that becomes the first column or, if mirrored, the last.
    pub left: i32,
    /// 1 if the columns run from right to left.
    pub mirrored: u32,
}
