//! The shape of a crop of a given size.

use crate::spec::ImageSpec;
use crate::transform::op::{Sizes, Varied, various_sizes};
use crate::transform::size::Size;

/// The shape of a crop, which must fit inside.
pub(super) fn cropped(size: Size, input: ImageSpec) -> Result<ImageSpec, String> {
    let Size { height, width } = size;
    if height > input.height || width > input.width {
        return Err(format!("a crop of {height}x{width} does not fit into an image of {input}"));
    }
    Ok(ImageSpec::new(height, width, input.channels))
}

/// The shape of a crop of images of which only the short side is known.
pub(super) fn cropped_of_varied(size: Size, input: Varied) -> Result<Sizes, String> {
    let Size { height, width } = size;
    match input.short_side {
        Some(side) if height.max(width) <= side => Ok(Sizes::Equal(ImageSpec::new(height, width, input.channels))),
        Some(side) => Err(format!("a crop of {height}x{width} does not fit into images whose short side is {side}")),
        None => Err(various_sizes()),
    }
}
