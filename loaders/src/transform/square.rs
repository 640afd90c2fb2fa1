//! The shape of a square crop.

use crate::spec::ImageSpec;
use crate::transform::op::{Sizes, Varied, various_sizes};

/// The shape of a square crop of `size` pixels, which must fit inside.
pub(super) fn cropped(size: u32, input: ImageSpec) -> Result<ImageSpec, String> {
    if size > input.height || size > input.width {
        return Err(format!("a crop of {size}x{size} does not fit into an image of {input}"));
    }
    Ok(ImageSpec::new(size, size, input.channels))
}

/// The shape of a square crop of images of which only the short side is known.
pub(super) fn cropped_of_varied(size: u32, input: Varied) -> Result<Sizes, String> {
    match input.short_side {
        Some(side) if size <= side => Ok(Sizes::Equal(ImageSpec::new(size, size, input.channels))),
        Some(side) => Err(format!("a crop of {size}x{size} does not fit into images whose short side is {side}")),
        None => Err(various_sizes()),
    }
}
