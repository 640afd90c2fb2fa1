//! The declarations that every operation makes for all devices: its shapes, cost, parameters and their initialisation.

use std::ops::Range;

use super::shape::Shape;

/// Returns the product of the sizes, or `u64::MAX` if it is larger. Sizes from a file may have any product.
pub(super) fn product(sizes: &[usize]) -> u64 {
    sizes.iter().fold(1, |product: u64, &n| product.saturating_mul(n as u64))
}

/// An operation's attributes, without input sizes. Shapes are for one sample.
pub trait OpSpec {
    fn reads(&self) -> Reads {
        Reads::Channels
    }

    /// Returns the number of inputs, or `None` if any number from one is allowed.
    fn arity(&self) -> Option<usize> {
        Some(1)
    }

    /// Returns the output's shape for [`OpSpec::arity`] inputs. The error describes the mismatch.
    fn output(&self, x: &[Shape]) -> Result<Shape, String> {
        Ok(x[0])
    }

    /// Returns the operation's parameters, in PyTorch's order.
    fn params(&self, _x: Shape) -> Vec<ParamSpec> {
        Vec::new()
    }

    /// Returns the multiply-adds in the forward pass for a sample. As is usual, only convolutions, linear layers and
    /// the matrix products in attention count.
    fn macs(&self, _x: Shape) -> u64 {
        0
    }

    /// Returns true if the output is the input's memory with another shape. Such an operation is not run.
    fn renames(&self) -> bool {
        false
    }

    /// For an operation with running mean and variance per channel, returns the weight of the new statistics in the
    /// running statistics.
    fn statistics_momentum(&self) -> Option<f32> {
        None
    }
}

/// How an operation reads its inputs. This decides which memory orders it accepts, and how it sees a flattened image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Channel by channel. A flattened image has no channels.
    Channels,
    /// Element by element. With one input, the output's elements are in the input's order.
    Elements,
    /// All elements as features, in (C, H, W) order if they were an image.
    Features,
}

/// How a parameter is initialised. Every draw is a function of (seed, parameter, element).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    Constant(f32),
    /// Normal with this standard deviation. Values beyond two deviations are drawn again (TensorFlow's
    /// `truncated_normal`).
    TruncatedNormal(f32),
    /// Normal with variance 2 / fan, where fan is the number of inputs of an output (He et al. 2015, arXiv 1502.01852,
    /// eq. 10).
    HeNormalFanIn,
    /// Normal with variance 2 / fan, where fan is the number of outputs that an input contributes to.
    HeNormalFanOut,
    /// Uniform in +-sqrt(3 / fan_in), where fan_in is the number of inputs of an output (Caffe's "xavier").
    Xavier,
    /// Uniform in +-1/sqrt(fan_in), PyTorch's default for `Conv2d` and `Linear`. A bias uses its weight's fan_in.
    UniformFanIn,
    /// Normal with this standard deviation.
    Normal(f32),
    /// Uniform with variance 2 / fan, where fan is the number of inputs of an output (PyTorch's `kaiming_uniform_`).
    HeUniformFanIn,
    /// Like UniformFanIn, except that the first filters copy one input channel each, one filter per channel (Zagoruyko
    /// and Komodakis 2017, arXiv 1706.00388, section 3).
    Dirac,
    /// Uniform between minus this value and this value.
    Uniform(f32),
    /// Position vectors for a plane with this number of columns: sin(f c), cos(f c), sin(f r) and cos(f r) for row
    /// r and column c. The number of frequencies f, from 1 down to 1/10,000, is a quarter of the number of channels
    /// (Beyer et al. 2022, arXiv 2205.01580, section 2, as in Big Vision's `posemb_sincos_2d`).
    SinCos(usize),
}

/// A parameter of an operation: its field name, shape in PyTorch's layout, and initialisation.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamSpec {
    /// Its name within the layer, such as `weight` or `bias`.
    pub field: &'static str,
    /// OIHW for a convolution, (O, I) for a linear layer, (positions, C) for a position embedding, otherwise (C).
    pub shape: Vec<usize>,
    pub init: Init,
    /// Elements that are always 0. They are not trained.
    pub zeros: Range<usize>,
}

impl ParamSpec {
    pub fn new(field: &'static str, shape: Vec<usize>, init: Init) -> Self {
        Self { field, shape, init, zeros: 0..0 }
    }

    /// Returns weight and bias of a normalisation, initialised to the identity.
    pub(super) fn scale_and_shift(channels: usize) -> Vec<Self> {
        let of = |field, start| Self::new(field, vec![channels], Init::Constant(start));
        vec![of("weight", 1.0), of("bias", 0.0)]
    }

    /// Returns the bias for this weight. The weight's layout is (O, I) or OIHW. With [`Init::UniformFanIn`], the bias
    /// uses the weight's fan_in.
    pub(super) fn bias(&self, init: Init) -> Self {
        let fan_in: usize = self.shape.iter().skip(1).product();
        let init = if init == Init::UniformFanIn { Init::Uniform(1.0 / (fan_in as f32).sqrt()) } else { init };
        Self::new("bias", vec![self.shape[0]], init)
    }

    /// Returns the number of elements without padding.
    pub fn elems(&self) -> usize {
        self.shape.iter().product()
    }
}

// How files store a layer's tensors: their names in PyTorch and Keras, and the element order in Keras.

/// A kind of layer with tensors.
#[derive(Debug, PartialEq, Eq)]
pub struct Stored {
    pub kind: &'static str,
    /// Its tensors. PyTorch and Keras have the same order.
    pub tensors: &'static [StoredTensor],
}

#[derive(Debug, PartialEq, Eq)]
pub struct StoredTensor {
    /// PyTorch's name. Parameters have this name in memory.
    pub torch: &'static str,
    pub keras: &'static str,
    /// Keras's element order.
    pub order: KerasOrder,
    /// True for a running statistic, which has no gradient.
    pub running: bool,
}

/// How Keras orders a tensor's dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KerasOrder {
    /// A single dimension, the same in both programs.
    Vector,
    /// Two dimensions, the same in both programs.
    Rows,
    /// (out, in/groups, kh, kw) in PyTorch, (kh, kw, in/groups, out) in Keras.
    Filters,
    /// (out, in) in PyTorch, (in, out) in Keras. After a flatten the inputs are ordered (C, H, W) in PyTorch and (H, W,
    /// C) in Keras.
    Matrix,
}

impl Stored {
    /// Returns the tensor with this name in PyTorch, and its index.
    pub fn by_torch(&self, name: &str) -> Option<(usize, &StoredTensor)> {
        self.tensors.iter().enumerate().find(|(_, tensor)| tensor.torch == name)
    }

    /// Returns the tensor with this name in Keras.
    pub fn by_keras(&self, name: &str) -> Option<&StoredTensor> {
        self.tensors.iter().find(|tensor| tensor.keras == name)
    }

    /// Returns true if a tensor's order depends on the image that was flattened before the layer.
    pub fn depends_on_flatten(&self) -> bool {
        self.tensors.iter().any(|tensor| tensor.order == KerasOrder::Matrix)
    }
}

impl StoredTensor {
    pub const fn parameter(torch: &'static str, keras: &'static str, order: KerasOrder) -> Self {
        Self { torch, keras, order, running: false }
    }

    pub const fn running(torch: &'static str, keras: &'static str) -> Self {
        Self { torch, keras, order: KerasOrder::Vector, running: true }
    }
}
