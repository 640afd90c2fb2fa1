//! A network with the shapes of its tensors, from which the mappings of ops export its layers. `plan` builds it.

use net::{Id, NetSpec, Node, Pool, PoolKind, Shape, same_padding};

/// A network whose layers fit together.
pub(crate) struct Network {
    /// The layers. There is at least one.
    pub net: NetSpec,
    /// Shapes of all tensors. The first one is the input.
    pub shapes: Vec<Shape>,
    /// For each tensor, true if it has the two dimensions (N, F) in the exported file. In trireme, a vector is an image
    /// of one pixel with four dimensions. Other programs distinguish them.
    pub(super) flat: Vec<bool>,
    /// For each layer, true if it reads vectors, not images.
    pub(super) reads_flat: Vec<bool>,
    /// For each tensor, true if no value is negative.
    pub(super) non_negative: Vec<bool>,
}

/// A conversion of a layer's input to the number of dimensions that the layer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// From (N, C, H, W) to (N, C * H * W).
    Flatten,
    /// From (N, C) to (N, C, 1, 1).
    Image,
}

/// A layer with the shapes of its inputs and its output.
pub(crate) struct Layer<'a> {
    pub network: &'a Network,
    /// Index of the layer. Its output is the tensor `index + 1`.
    pub index: usize,
    pub node: &'a Node,
    pub x: Vec<Shape>,
    pub y: Shape,
    /// True if the layer reads vectors (two dimensions), not images (four dimensions).
    pub flat: bool,
    /// The conversion of each input, or `None` if it already has the right number of dimensions.
    pub turns: Vec<Option<Turn>>,
    /// True if the network's scores depend on this layer. False if only auxiliary classifiers do.
    pub serving: bool,
}

impl Network {
    /// Returns all layers in execution order.
    pub fn layers(&self) -> impl Iterator<Item = Layer<'_>> {
        self.net.nodes.iter().zip(self.net.serving()).enumerate().map(|(index, (node, serving))| {
            let x = node.inputs.iter().map(|id| self.shapes[id.0]).collect();
            let flat = self.reads_flat[index];
            let turns = node.inputs.iter().map(|id| turn(self.flat[id.0], flat)).collect();
            Layer { network: self, index, node, x, y: self.shapes[index + 1], flat, turns, serving }
        })
    }

    /// Returns true for the layer that computes the network's output.
    pub fn is_last(&self, layer: &Layer<'_>) -> bool {
        layer.index + 1 == self.net.nodes.len()
    }

    pub fn output(&self) -> Shape {
        self.shapes[self.net.nodes.len()]
    }

    /// Returns true if the network's output is a vector (two dimensions), not an image of one pixel.
    pub fn ends_flat(&self) -> bool {
        self.flat[self.net.nodes.len()]
    }

    /// Returns how often layers read a tensor. A layer that reads it twice counts twice.
    pub fn readers(&self, id: Id) -> usize {
        self.net.nodes.iter().flat_map(|node| &node.inputs).filter(|input| **input == id).count()
    }

    /// Returns true if no value of a tensor is negative.
    pub fn is_non_negative(&self, id: Id) -> bool {
        self.non_negative[id.0]
    }
}

fn turn(flat: bool, wanted: bool) -> Option<Turn> {
    match (flat, wanted) {
        (false, true) => Some(Turn::Flatten),
        (true, false) => Some(Turn::Image),
        _ => None,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Padded {
    /// Height and width.
    pub window: [usize; 2],
    /// Vertical and horizontal step.
    pub stride: [usize; 2],
    /// Padding at top, left, bottom and right. Includes the cells that are needed if the number of windows is rounded
    /// up.
    pub pads: [usize; 4],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Windows {
    /// One window covers the whole plane.
    All,
    /// All windows have the same size.
    Equal(Padded),
    /// Numbers of bins along the height and the width. The bins differ in size.
    Bins([usize; 2]),
}

/// Computes the windows of `pool` for input shape `x` and output shape `y`.
///
/// # Errors
/// Fails if averages include the padding and the last window reaches beyond it.
pub(crate) fn windows(pool: &Pool, x: Shape, y: Shape) -> Result<Windows, String> {
    let Pool { kind, window, stride, pads, ceil: _, bins } = pool;
    let (from, to) = ([x.h, x.w], [y.h, y.w]);
    let Some(window) = window.filter(|_| bins.is_none()) else {
        return Ok(match bins {
            Some([1, 1]) | None => Windows::All,
            Some(_) if from[0].is_multiple_of(to[0]) && from[1].is_multiple_of(to[1]) => {
                let window = [from[0] / to[0], from[1] / to[1]];
                Windows::Equal(Padded { window, stride: window, pads: [0; 4] })
            }
            Some(bins) => Windows::Bins(*bins),
        });
    };
    let mut all = *pads;
    for axis in [0, 1] {
        let reach = (to[axis] - 1) * stride[axis] + window[axis];
        let beyond = reach.saturating_sub(from[axis] + pads[axis] + pads[axis + 2]);
        if beyond > 0 && *kind == PoolKind::AvgCountPad {
            return Err(
                "it counts its padding in averages, but its last window reaches beyond the padding (ceil = true)"
                    .into(),
            );
        }
        all[axis + 2] += beyond;
    }
    Ok(Windows::Equal(Padded { window, stride: *stride, pads: all }))
}

impl Padded {
    /// Returns true if this is TensorFlow's SAME padding for an input of shape `x`.
    pub fn is_same(&self, x: Shape) -> bool {
        self.pads == same_padding(x, self.window, self.stride)
    }

    /// Returns true if opposite sides have the same padding, and it is at most half the window.
    pub fn is_even(&self) -> bool {
        let [top, left, bottom, right] = self.pads;
        top == bottom && left == right && 2 * top <= self.window[0] && 2 * left <= self.window[1]
    }

    /// Returns true if there is no padding.
    pub fn is_bare(&self) -> bool {
        self.pads == [0; 4]
    }
}
