//! What a name in a graph stands for while the network is built.

use std::rc::Rc;

use net::{Id, Shape};

use super::function::Function;
use super::tensor::{Constant, Values};

/// A value of the graph.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// Numbers that the file holds.
    Constant(Rc<Constant>),
    /// Sizes of a tensor: the number of images, which no file knows, is none.
    Sizes(Vec<Option<i64>>),
    /// One size.
    Size(Option<i64>),
    /// A tensor of the network.
    Tensor(View),
    /// A function of each element of a tensor, which becomes a layer when somebody reads it.
    Function(View, Rc<Function>),
    /// A tensor with cells around it, for the convolution or pool that reads it.
    Padded(View, Padding),
    /// Every so many-th row and column of a tensor, for the channels that are added to it.
    Strided(View, usize),
    /// A tensor whose channels are joined in groups, for the normalisation that reads it.
    Grouped(View, Groups),
    /// A tensor reshaped to one dimension (N * F). A Gather splits it into images again.
    List(View),
    /// A tensor reshaped to (N, blocks, C / blocks, H, W), as in a channel shuffle.
    Blocks(View, Blocks),
    /// A part of a layer normalisation that exporters write as its formula.
    Moment(View, Moment),
    /// What a node that is not supported would have made.
    Missing,
}

impl Value {
    /// Wraps a list of sizes. If all of them are known, the result is a constant, so that arithmetic with it can be folded.
    pub fn sizes(sizes: Vec<Option<i64>>) -> Self {
        match sizes.iter().copied().collect::<Option<Vec<i64>>>() {
            Some(known) => Self::Constant(Rc::new(Constant { dims: vec![known.len()], values: Values::Ints(known) })),
            None => Self::Sizes(sizes),
        }
    }

    /// Wraps a single size.
    pub fn size(size: Option<i64>) -> Self {
        match size {
            Some(known) => Self::Constant(Rc::new(Constant { dims: Vec::new(), values: Values::Ints(vec![known]) })),
            None => Self::Size(None),
        }
    }
}

/// A tensor of the network, and how the graph has its dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub id: Id,
    pub layout: Layout,
}

/// Order of dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// (N, C, H, W).
    Image,
    /// (N, H, W, C).
    Last,
    /// (N, F).
    Flat,
    /// (N, F), flattened from (N, H, W, C) images of this shape. Our layers flatten (C, H, W), so the features must be reordered.
    FlatLast(Shape),
}

/// Cells at top, left, bottom, right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Padding {
    pub cells: [usize; 4],
    /// Mirrored cells, else zeros.
    pub mirrored: bool,
}

impl Padding {
    pub const NONE: Self = Self { cells: [0; 4], mirrored: false };

    /// The shape of a tensor with these cells around it.
    pub fn around(&self, x: Shape) -> Shape {
        let [top, left, bottom, right] = self.cells;
        Shape { h: x.h + top + bottom, w: x.w + left + right, ..x }
    }
}

/// Parts of (x - mean) / sqrt(mean((x - mean)^2) + eps), with means over channels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Moment {
    /// mean(x).
    Mean,
    /// x - mean(x).
    Centered,
    /// Its square.
    Squared,
    /// The mean of that.
    Variance,
    /// With eps added.
    Shifted(f32),
    /// The root of that.
    Deviation(f32),
}

/// Channels split into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    pub count: usize,
    /// True after the two channel dimensions were transposed.
    pub exchanged: bool,
}

/// Groups of channels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Groups {
    pub count: usize,
    /// What was added to the variance, if the groups are normalised already.
    pub normed: Option<f32>,
}

impl Layout {
    /// Returns the number of dimensions.
    pub fn rank(self) -> i64 {
        if matches!(self, Self::Flat | Self::FlatLast(_)) { 2 } else { 4 }
    }

    /// Returns the sizes of all dimensions except the batch dimension, for a tensor of shape `x`.
    pub fn dims(self, x: Shape) -> Vec<usize> {
        match self {
            Self::Image => vec![x.c, x.h, x.w],
            Self::Last => vec![x.h, x.w, x.c],
            Self::Flat | Self::FlatLast(_) => vec![x.elems()],
        }
    }

    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Image => "images (N, C, H, W)",
            Self::Last => "images (N, H, W, C)",
            Self::Flat => "vectors (N, F)",
            Self::FlatLast(_) => "vectors (N, F) flattened from images (N, H, W, C)",
        }
    }
}
