//! What geometric transforms do to an image, before any pixel is read: a part resized, a window of the result, a mirror.

use crate::decode::{Need, Region};
use crate::spec::ImageSpec;
use crate::transform::crop_rect::CropRect;
use crate::transform::rectangle::Rectangle;
use crate::transform::resample::{Filter, Span};
use crate::transform::window::Window;

/// Which pixels of the stored image are shown, and where.
#[derive(Debug, Clone)]
pub(super) struct Geometry {
    pub channels: usize,
    /// Comes before all else.
    pub resize: Option<Resize>,
    /// The rows and columns shown, of the image as stored or as resized.
    pub window: Window,
    /// Outside of this, the window shows zeros.
    visible: Window,
    /// Mirrored left and right.
    pub flipped: bool,
    /// Mirrored top and bottom.
    pub upended: bool,
}

/// A part of the stored image and its new size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resize {
    pub region: Region,
    pub height: u32,
    pub width: u32,
    pub filter: Filter,
}

/// What there is to see in the window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// In the coordinates of [`Geometry::window`].
    pub window: Window,
    /// Rows of the output above it.
    pub above: usize,
    /// Columns of the output ahead of it: on its left, or, if flipped, on its right.
    pub ahead: usize,
}

impl Geometry {
    /// All of an image of shape `spec`.
    pub fn new(spec: ImageSpec) -> Self {
        let whole = Window::whole(spec.height, spec.width);
        Self {
            channels: spec.channels as usize,
            resize: None,
            window: whole,
            visible: whole,
            flipped: false,
            upended: false,
        }
    }

    /// The shape of the window.
    pub fn spec(&self) -> ImageSpec {
        ImageSpec::new(self.window.height() as u32, self.window.width() as u32, self.channels as u32)
    }

    /// The part of the window that is not padding; `None` if all of it is.
    pub fn seen(&self) -> Option<Seen> {
        let seen = self.window.intersect(self.visible);
        let ahead = if self.flipped { self.window.right - seen.right } else { seen.left - self.window.left };
        let above = if self.upended { self.window.bottom - seen.bottom } else { seen.top - self.window.top };
        (seen.top < seen.bottom && seen.left < seen.right).then_some(Seen {
            window: seen,
            above: above as usize,
            ahead: ahead as usize,
        })
    }

    /// Which part of the stored image the window shows; the first pixel where all of it is padding.
    pub fn need(&self) -> Need {
        let Window { top, left, bottom, right } = self.seen().map_or(Window::whole(1, 1), |seen| seen.window);
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

    /// Keeps a part of the window.
    pub fn crop(&mut self, part: Rectangle) {
        let Rectangle { top, left, height, width } = part;
        if self.upended {
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

    /// Resizes a part of the image to `height` x `width`; the window must be the whole stored image.
    pub fn resize(&mut self, part: Rectangle, height: u32, width: u32, filter: Filter) {
        let (top, left) = (part.top as usize, part.left as usize);
        let region = Region { top, left, bottom: top + part.height as usize, right: left + part.width as usize };
        self.resize = Some(Resize { region, height, width, filter });
        self.window = Window::whole(height, width);
        self.visible = self.window;
    }

    /// Moves the window; pixels that were outside of it become zero.
    pub fn shift(&mut self, down: i32, right: i32) {
        let down = i64::from(if self.upended { -down } else { down });
        let right = i64::from(if self.flipped { -right } else { right });
        self.visible = self.visible.intersect(self.window);
        self.window.top += down;
        self.window.bottom += down;
        self.window.left += right;
        self.window.right += right;
    }

    /// Where the window lies in the stored image, if nothing was resized or upended.
    pub fn crop_rect(&self) -> CropRect {
        CropRect { top: self.window.top as i32, left: self.window.left as i32, mirrored: self.flipped }
    }
}
