//! The crop of an image that a device has.

/// Where a crop lies in its image, and whether it is mirrored. Its size is that of the pipeline's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CropRect {
    /// Row of the image that becomes the first; pixels outside of the image are zero.
    pub top: i32,
    /// Leftmost column of the image in the crop.
    pub left: i32,
    /// Whether the crop's columns run from right to left.
    pub mirrored: bool,
}
