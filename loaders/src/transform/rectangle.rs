//! A rectangle of an image.

/// `height` rows from `top` on, `width` columns from `left` on; inside the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rectangle {
    pub top: u32,
    pub left: u32,
    pub height: u32,
    pub width: u32,
}
