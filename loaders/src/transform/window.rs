//! A window of an image.

/// Rows and columns of the image, ends excluded; may reach outside of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub top: i64,
    pub left: i64,
    pub bottom: i64,
    pub right: i64,
}

impl Window {
    /// All of an image.
    pub fn whole(height: u32, width: u32) -> Self {
        Self { top: 0, left: 0, bottom: i64::from(height), right: i64::from(width) }
    }

    /// What two windows have in common; a side may be negative if that is nothing.
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
