//! The values that nodes produce, expressed with tensors in the network.

use std::rc::Rc;

use net::{Id, Shape};

use super::axes::{Axes, Layout, Size};
use super::function::Function;
use super::tensor::{Constant, Values};
use super::terms::Terms;

/// A value in the graph.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Constant(Rc<Constant>),
    /// The sizes along all axes. At least one is not a number.
    Sizes(Vec<Size>),
    /// An element of [`Value::Sizes`] that is not a number.
    Size(Size),
    /// A tensor of the network.
    Tensor(View),
    /// An element-wise function of a tensor. It becomes a layer when a node reads it as a tensor.
    Function(View, Rc<Function>),
    /// A tensor with cells around it. A convolution or pool includes them in its padding.
    Padded(View, Padding),
    /// Every n-th row and column of a tensor. If a Pad node then adds channels, the result is a shortcut layer.
    Strided(View, usize),
    /// A tensor, or a part of it. Its dimensions in the graph do not match any [`Layout`].
    Arranged(Id, Axes),
    /// Attention scores, which are products of queries and keys.
    Scores(Rc<Scores>),
    /// Norms along the axis with this index, which contains the channels of a head.
    Norms(Id, Axes, usize),
    /// A tensor reshaped to a vector (N * F). A Gather node restores the images.
    List(View),
    /// A step of a layer normalisation. The graph computes these steps with separate nodes.
    Moment(View, Moment),
    /// The result of an unsupported node.
    Missing,
}

impl Value {
    /// Returns the tensor if the value is a whole tensor of the network, perhaps with rearranged dimensions.
    pub fn tensor(&self) -> Option<Id> {
        match self {
            Self::Tensor(View { id, .. }) | Self::Arranged(id, _) => Some(*id),
            _ => None,
        }
    }

    /// Wraps a list of sizes. If all of them are known, the result is a constant, so that arithmetic with it can be folded.
    pub fn sizes(sizes: Vec<Size>) -> Self {
        match sizes.iter().map(|size| size.number()).collect::<Option<Vec<i64>>>() {
            Some(known) => Self::Constant(Rc::new(Constant { dims: vec![known.len()], values: Values::Ints(known) })),
            None => Self::Sizes(sizes),
        }
    }

    /// Returns the value for a single size.
    pub fn size(size: Size) -> Self {
        match size.number() {
            Some(known) => Self::Constant(Rc::new(Constant { dims: Vec::new(), values: Values::Ints(vec![known]) })),
            None => Self::Size(size),
        }
    }
}

/// A tensor in the network, and the order of its dimensions in the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub id: Id,
    pub layout: Layout,
}

/// Padding at top, left, bottom and right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Padding {
    pub cells: [usize; 4],
    pub fill: Fill,
}

/// The values of padding cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    Zeros,
    /// The cells mirror the image.
    Mirrored,
    /// -infinity or the lowest f32.
    Lowest,
}

impl Padding {
    pub const NONE: Self = Self { cells: [0; 4], fill: Fill::Zeros };

    /// Returns the shape of a tensor with this padding.
    pub fn around(&self, x: Shape) -> Shape {
        let [top, left, bottom, right] = self.cells;
        Shape { h: x.h + top + bottom, w: x.w + left + right, ..x }
    }
}

/// Attention scores: products of queries and keys, with a row for each query.
#[derive(Clone, Debug)]
pub(crate) struct Scores {
    pub queries: Part,
    pub keys: Part,
    /// The axes: images, windows and heads, then query positions and key positions.
    pub axes: Axes,
    pub factor: f64,
    /// True if queries and keys are divided by their norms.
    pub cosine: bool,
    pub terms: Terms,
    /// True after the softmax.
    pub is_softmax: bool,
    /// True if the last two axes are exchanged.
    pub transposed: bool,
}

/// Queries, keys or values: `heads * width` channels of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub id: Id,
    pub first_channel: usize,
    pub heads: usize,
    pub width: usize,
}

/// Parts of (x - mean(x)) / sqrt(mean((x - mean(x))²) + eps), with means over the channels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Moment {
    /// `mean(x)`
    Mean,
    /// `x - mean(x)`
    Centered,
    /// `(x - mean(x))²`
    Squared,
    /// `mean((x - mean(x))²)`
    Variance,
    /// `mean((x - mean(x))²) + eps`
    Shifted(f32),
    /// `sqrt(mean((x - mean(x))²) + eps)`
    Deviation(f32),
}
