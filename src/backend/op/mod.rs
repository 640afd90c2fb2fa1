//! What a layer computes: its attributes, the shape that comes out, the parameters it owns, and its multiply-adds. No memory,
//! no device: each backend plans its own way to run an [`Op`].
//!
//! A new layer is one file here, one variant of [`Op`], and one file in each backend.

mod conv;
pub(super) mod draws;
mod linear;
mod lrn;
mod norm;
mod pool;
mod shape;
mod shortcut;

pub use conv::{Conv, same_pads};
pub use draws::DrawKey;
pub use linear::Linear;
pub use lrn::Lrn;
pub use norm::Norm;
pub use pool::{Pool, PoolKind, Window};
pub use shape::Shape;
pub use shortcut::Shortcut;

/// How a parameter starts. Every draw is a function of (seed, parameter, element).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Every element has this value.
    Constant(f32),
    /// Normal with this standard deviation, redrawn outside two of them (TensorFlow's `truncated_normal`).
    TruncatedNormal(f32),
    /// Normal with variance 2 / fan, fan = elements that feed one output (He et al. 2015, arXiv 1502.01852, eq. 10).
    HeNormalFanIn,
    /// Normal with variance 2 / fan, fan = outputs that one element feeds.
    HeNormalFanOut,
    /// Uniform in +-sqrt(3 / fan_in) (Caffe's "xavier").
    Xavier,
    /// Uniform in +-1/sqrt(fan_in) (the default of PyTorch's `Conv2d` and `Linear`); for a bias, fan_in is its weight's.
    UniformFanIn,
    /// Uniform in +- this bound.
    Uniform(f32),
}

/// One parameter of an op: its field name, plain shape (PyTorch's layout) and start.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamSpec {
    /// `weight` or `bias`.
    pub field: &'static str,
    /// OIHW for a convolution, (O, I) for a linear layer, (C) for the rest.
    pub shape: Vec<usize>,
    /// How it starts.
    pub init: Init,
}

impl ParamSpec {
    fn new(field: &'static str, shape: Vec<usize>, init: Init) -> Self {
        Self { field, shape, init }
    }

    /// The bias that goes with this weight, (O, I) or OIHW.
    fn bias(&self, init: Init) -> Self {
        let fan_in: usize = self.shape.iter().skip(1).product();
        let init = if init == Init::UniformFanIn { Init::Uniform(1.0 / (fan_in as f32).sqrt()) } else { init };
        Self::new("bias", vec![self.shape[0]], init)
    }

    /// Number of elements of the plain tensor.
    pub fn elems(&self) -> usize {
        self.shape.iter().product()
    }
}

/// A layer's computation with all attributes, without sizes of the input.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Two-dimensional convolution, optional bias and ReLU.
    Conv(Conv),
    /// Fully connected, optional bias and ReLU.
    Linear(Linear),
    /// Batch normalisation, optional residual input (the second) and ReLU.
    Norm(Norm),
    /// Max or average pooling.
    Pool(Pool),
    /// Local response normalisation across channels.
    Lrn(Lrn),
    /// max(x, 0).
    Relu,
    /// Hyperbolic tangent.
    Tanh,
    /// Inverted dropout with this probability of zero; the identity in evaluation.
    Dropout(f32),
    /// Sum of two tensors of one shape.
    Add,
    /// Parameter-free shortcut "A" of He et al. 2015.
    Shortcut(Shortcut),
    /// (N, C, H, W) to (N, C*H*W): no work, the next layer reads the same memory.
    Flatten,
}

impl Op {
    /// Lower-case name of the kind, as printed in tables.
    pub fn kind(&self) -> &'static str {
        match self {
            Op::Conv(_) => "conv",
            Op::Linear(_) => "linear",
            Op::Norm(_) => "norm",
            Op::Pool(p) => p.kind.name(),
            Op::Lrn(_) => "lrn",
            Op::Relu => "relu",
            Op::Tanh => "tanh",
            Op::Dropout(_) => "dropout",
            Op::Add => "add",
            Op::Shortcut(_) => "shortcut",
            Op::Flatten => "flatten",
        }
    }

    /// Number of inputs it takes.
    pub fn arity(&self) -> usize {
        match self {
            Op::Add => 2,
            Op::Norm(n) if n.residual => 2,
            _ => 1,
        }
    }

    /// Shape that comes out for these inputs; the error says what does not fit.
    pub fn output(&self, x: &[Shape]) -> Result<Shape, String> {
        if x.len() != self.arity() {
            return Err(format!("{} takes {} input(s), got {}", self.kind(), self.arity(), x.len()));
        }
        match self {
            Op::Conv(c) => c.output(x[0]),
            Op::Linear(l) => Ok(Shape::vector(l.out_features)),
            Op::Pool(p) => p.output(x[0]),
            Op::Shortcut(s) => s.output(x[0]),
            Op::Add | Op::Norm(Norm { residual: true, .. }) if x[0] != x[1] => {
                Err(format!("both inputs must have one shape, got {} and {}", x[0], x[1]))
            }
            Op::Flatten => Ok(Shape::vector(x[0].elems())),
            Op::Norm(_) | Op::Lrn(_) | Op::Relu | Op::Tanh | Op::Dropout(_) | Op::Add => Ok(x[0]),
        }
    }

    /// The parameters that it owns, in PyTorch's order.
    pub fn params(&self, x: Shape) -> Vec<ParamSpec> {
        match self {
            Op::Conv(c) => c.params(x),
            Op::Linear(l) => l.params(x),
            Op::Norm(n) => n.params(x),
            _ => Vec::new(),
        }
    }

    /// Multiply-adds of one sample's forward pass; only convolutions and linear layers count, as is usual.
    pub fn macs(&self, x: Shape) -> u64 {
        match self {
            Op::Conv(c) => c.macs(x),
            Op::Linear(l) => (l.out_features * x.elems()) as u64,
            _ => 0,
        }
    }
}
