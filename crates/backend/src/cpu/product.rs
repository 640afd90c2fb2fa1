//! A pass of a convolution or linear layer, with its layouts, its sizes and its primitive. If the primitive needs
//! another layout than the arena, the pass also has a copy of the weights or of their gradient.

use std::ops::Range;
use std::rc::Rc;

use net::{Conv, Linear};

use super::buf::Scratch;
use super::layout::Md;
use super::number::Bf16;
use super::onednn::{Data, Engine, Layer, Primitive, Window, arg};
use super::sys::Direction;
use crate::{Error, TensorDesc};

/// A primitive and, if it needs another weight layout than the arena's, the copy of its weights.
pub(super) struct Product {
    primitive: Primitive,
    weight_copy: Option<WeightCopy>,
}

/// Workspace for weights in the primitive's layout, and the primitive that copies between this layout and the arena's.
struct WeightCopy {
    copy: Primitive,
    weights: Rc<Scratch>,
}

impl Product {
    /// Creates a pass with a primitive that uses the arena's weight layout.
    pub fn new(primitive: Primitive) -> Self {
        Self { primitive, weight_copy: None }
    }

    /// Adds a copy: of the weights before the pass, or of their gradient after it. `weights` must have room for the
    /// primitive's layout. It is borrowed only during a pass.
    pub fn with_weight_copy(self, copy: Primitive, weights: Rc<Scratch>) -> Self {
        Self { weight_copy: Some(WeightCopy { copy, weights }), ..self }
    }

    /// Returns true if oneDNN uses its plain loops (`ref`).
    pub fn is_slow(&self) -> bool {
        self.primitive.name().starts_with("ref")
    }

    /// Returns the primitive's name for tables.
    pub fn name(&self) -> String {
        format!("{}{}", self.primitive.name(), if self.weight_copy.is_some() { "+reorder" } else { "" })
    }

    /// Runs a pass that reads weights. `data` has the other arguments.
    pub fn run_from(&mut self, engine: &Engine, w: &[f32], data: Vec<(i32, Data<'_>)>) -> Result<(), Error> {
        let mut data = data;
        let mut own = self.weight_copy.as_ref().map(|d| d.weights.borrow());
        let w = match (&self.weight_copy, &mut own) {
            (Some(d), Some(own)) => {
                d.copy.run(engine, &mut [(arg::SRC, Data::Read(w)), (arg::DST, Data::Write(own.as_mut_slice()))])?;
                own.as_slice()
            }
            _ => w,
        };
        data.push((arg::WEIGHTS, Data::Read(w)));
        self.primitive.run(engine, &mut data)
    }

    /// Runs the pass that computes the weight gradient. `data` has the other arguments.
    pub fn run_into(&mut self, engine: &Engine, dw: &mut [f32], data: Vec<(i32, Data<'_>)>) -> Result<(), Error> {
        let mut data = data;
        let Some(d) = &self.weight_copy else {
            data.push((arg::DIFF_WEIGHTS, Data::Write(dw)));
            return self.primitive.run(engine, &mut data);
        };
        let mut own = d.weights.borrow();
        data.push((arg::DIFF_WEIGHTS, Data::Write(own.as_mut_slice())));
        self.primitive.run(engine, &mut data)?;
        drop(data);
        d.copy.run(engine, &mut [(arg::SRC, Data::Read(own.as_slice())), (arg::DST, Data::Write(dw))])
    }
}

/// Layouts and sizes of a layer.
pub(super) struct Geometry {
    pub x: Md,
    pub w_dims: Vec<usize>,
    pub bias: Option<usize>,
    /// Channels with a bias of 0.
    pub zero_bias: Range<usize>,
    pub y: Md,
    pub window: Option<Window>,
    pub relu: bool,
}

impl Geometry {
    /// Describes a linear layer. `inputs` are the dimensions of a sample, and `n` is the number of samples.
    pub fn linear(op: &Linear, x: Md, n: usize, inputs: &[usize]) -> Result<Self, Error> {
        let outputs = op.out_features;
        let (w_dims, bias) = ([&[outputs], inputs].concat(), op.bias.then_some(outputs));
        Ok(Self { x, w_dims, bias, zero_bias: 0..0, y: Md::plain(&[n, outputs])?, window: None, relu: op.relu })
    }

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
            zero_bias: op.zero_bias(),
            y: layout(y)?,
            window: Some(Window { stride: op.stride, dilation: op.dilation, pads: fitted_pads(op, x, y) }),
            relu: op.relu,
        })
    }

    /// Describes a pass. `w` is the layout for the weights or their gradient. `bf16` tells how factors are
    /// rounded to bf16. With `None` they stay f32.
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

/// Returns the layout of an image in channel blocks.
pub(super) fn activation(d: &TensorDesc) -> Result<Md, Error> {
    let md = Md::activation(&[d.n, d.shape.c, d.shape.h, d.shape.w], d.block)?;
    if d.bf16 { md.in_bf16() } else { Ok(md) }
}

/// Reduces the padding at the end, because oneDNN requires windows to use the padding completely. With a stride, some
/// of it may be unused.
fn fitted_pads(op: &Conv, x: &TensorDesc, y: &TensorDesc) -> [usize; 4] {
    let [top, left, ..] = op.pads;
    let used = |out: usize, axis: usize| (out - 1) * op.stride[axis] + op.extent()[axis];
    let bottom = used(y.shape.h, 0).saturating_sub(x.shape.h + top);
    let right = used(y.shape.w, 1).saturating_sub(x.shape.w + left);
    [top, left, bottom, right]
}
