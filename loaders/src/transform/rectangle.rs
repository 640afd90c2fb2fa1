//! A rectangle of an image, to be painted over.

use super::Canvas;

/// Rows `top` and `height - 1` more, columns `left` and `width - 1` more; inside the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rectangle {
    pub top: usize,
    pub left: usize,
    pub height: usize,
    pub width: usize,
}

impl Rectangle {
    /// Paints the values that `next` yields, channel after channel, row after row.
    pub fn paint(&self, image: &mut Canvas<'_>, mut next: impl FnMut() -> f32) {
        let spec = image.spec();
        let columns = spec.width as usize;
        for plane in image.floats().chunks_exact_mut(spec.pixels().max(1)) {
            for row in plane.chunks_exact_mut(columns).skip(self.top).take(self.height) {
                row[self.left..self.left + self.width].fill_with(&mut next);
            }
        }
    }
}
