//! The channels of a planar image.

/// The planes of an image of three channels.
pub(super) fn rgb(values: &mut [f32]) -> [&mut [f32]; 3] {
    let plane = values.len() / 3;
    let (red, rest) = values.split_at_mut(plane);
    let (green, blue) = rest.split_at_mut(plane);
    [red, green, blue]
}
