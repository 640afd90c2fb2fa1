//! Kernel size, stride, dilation and padding of convolutions and pools.

use net::{Shape, same_pads};

use super::graph::Node;

/// The shape and the step of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub kernel: [usize; 2],
    pub stride: [usize; 2],
    pub dilation: [usize; 2],
}

/// Largest size of a kernel, stride, dilation or padding.
const MOST: i64 = 1 << 12;

/// Returns the N numbers of an attribute, which must be between `least` and [`MOST`]. If the node does not have the
/// attribute, each number is `default`.
fn numbers<const N: usize>(node: &Node<'_>, name: &str, default: usize, least: i64) -> Result<[usize; N], String> {
    let Some(list) = node.ints(name) else { return Ok([default; N]) };
    let inside = list.iter().all(|n| (least..=MOST).contains(n));
    let numbers: Vec<usize> = list.iter().map(|n| *n as usize).collect();
    let numbers = numbers.try_into().ok().filter(|_| inside);
    numbers.ok_or_else(|| format!("its {name} must be {N} numbers from {least} to {MOST}, got {list:?}"))
}

impl Sizes {
    /// Reads the sizes of a convolution. `kernel` comes from the shape of its weight.
    pub fn of(node: &Node<'_>, kernel: [usize; 2]) -> Result<Self, String> {
        let own = if node.has("kernel_shape") { numbers(node, "kernel_shape", 1, 1)? } else { kernel };
        if kernel != own {
            return Err(format!("its kernel_shape is {own:?}, but its weight has a kernel of {kernel:?}"));
        }
        Self::moves(node, own)
    }

    pub fn of_pool(node: &Node<'_>) -> Result<Self, String> {
        if !node.has("kernel_shape") {
            return Err("it has no kernel_shape".into());
        }
        Self::moves(node, numbers(node, "kernel_shape", 1, 1)?)
    }

    fn moves(node: &Node<'_>, kernel: [usize; 2]) -> Result<Self, String> {
        let sides = kernel.iter().all(|n| (1..=MOST as usize).contains(n));
        if !sides {
            return Err(format!("height and width of its kernel must be from 1 to {MOST}, got {kernel:?}"));
        }
        Ok(Self { kernel, stride: numbers(node, "strides", 1, 1)?, dilation: numbers(node, "dilations", 1, 1)? })
    }
}

/// Returns the padding at top, left, bottom and right. `x` is the shape of the input with the padding of earlier Pad
/// nodes.
pub(crate) fn pads(node: &Node<'_>, x: Shape, sizes: &Sizes) -> Result<[usize; 4], String> {
    let extent = |axis: usize| (sizes.kernel[axis] - 1) * sizes.dilation[axis] + 1;
    let same = |axis: usize, size: usize| same_pads(size, extent(axis), sizes.stride[axis]);
    let ((top, bottom), (left, right)) = (same(0, x.h), same(1, x.w));
    match node.text("auto_pad") {
        "" | "NOTSET" => numbers(node, "pads", 0, 0),
        "VALID" => Ok([0; 4]),
        "SAME_UPPER" => Ok([top, left, bottom, right]),
        "SAME_LOWER" => Ok([bottom, right, top, left]),
        other => Err(format!("its auto_pad is \"{other}\", expected NOTSET, VALID, SAME_UPPER or SAME_LOWER")),
    }
}
