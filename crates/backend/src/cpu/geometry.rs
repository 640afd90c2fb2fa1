//! Layouts and sizes of a convolution or linear layer, before any primitive is made.

use net::{Conv, Linear};

use super::bf16::Bf16;
use super::direction::Direction;
use super::layout::Md;
use super::onednn::{Layer, Window};
use crate::{Error, TensorDesc};

/// Of one layer.
pub(super) struct Geometry {
    pub x: Md,
    pub w_dims: Vec<usize>,
    pub bias: Option<usize>,
    pub y: Md,
    pub window: Option<Window>,
    pub relu: bool,
}

impl Geometry {
    /// Of a linear layer; `inputs` are the sizes of one of n samples.
    pub fn linear(op: &Linear, x: Md, n: usize, inputs: &[usize]) -> Result<Self, Error> {
        let outputs = op.out_features;
        let (w_dims, bias) = ([&[outputs], inputs].concat(), op.bias.then_some(outputs));
        Ok(Self { x, w_dims, bias, y: Md::plain(&[n, outputs])?, window: None, relu: op.relu })
    }

    /// Of a convolution.
    pub fn new(
        op: &Conv,
        x: &TensorDesc,
        y: &TensorDesc,
        layout: fn(&TensorDesc) -> Result<Md, Error>,
    ) -> Result<Self, Error> {
        let (i, o, [kh, kw]) = (x.shape.c / op.groups, op.out_channels / op.groups, op.kernel);
        Ok(Self {
            x: layout(x)?,
            w_dims: if op.groups == 1 { vec![o, i, kh, kw] } else { vec![op.groups, o, i, kh, kw] },
            bias: op.bias.then_some(op.out_channels),
            y: layout(y)?,
            window: Some(Window { stride: op.stride, dilation: op.dilation, pads: fitted_pads(op, x, y) }),
            relu: op.relu,
        })
    }

    /// One pass of the layer, with weights (or their gradient) that lie so, and its factors in bf16 if they shall be.
    pub fn layer<'a>(&self, op: &'a str, pass: Direction, w: Md, bf16: Option<Bf16>) -> Result<Layer<'a>, Error> {
        let factor = |md| Bf16::factor(bf16, md);
        let (x, w, y) = match pass {
            Direction::Forward => (factor(self.x)?, factor(w)?, self.y),
            Direction::BackwardData => (self.x, factor(w)?, factor(self.y)?),
            Direction::BackwardWeights => (factor(self.x)?, w, factor(self.y)?),
        };
        let bias = self.bias.map(|n| Md::plain(&[n])).transpose()?;
        Ok(Layer { op, x, w, bias, y, window: self.window, relu: self.relu })
    }
}

/// An image in channel blocks.
pub(super) fn activation(d: &TensorDesc) -> Result<Md, Error> {
    let md = Md::activation(&[d.n, d.shape.c, d.shape.h, d.shape.w], d.block)?;
    if d.bf16 { md.in_bf16() } else { Ok(md) }
}

/// oneDNN wants pads that the windows use up exactly: what a stride leaves over at the end is cut off.
fn fitted_pads(op: &Conv, x: &TensorDesc, y: &TensorDesc) -> [usize; 4] {
    let [top, left, ..] = op.pads;
    let used = |out: usize, axis: usize| (out - 1) * op.stride[axis] + op.extent()[axis];
    let bottom = used(y.shape.h, 0).saturating_sub(x.shape.h + top);
    let right = used(y.shape.w, 1).saturating_sub(x.shape.w + left);
    [top, left, bottom, right]
}
