//! What every op declares for any device: its kind, shapes, cost, and the parameters it owns with their first values.

use super::shape::Shape;
use super::stored::Stored;

/// An op's attributes, without sizes of the input. Shapes are of one sample.
pub trait OpSpec {
    /// Lower-case name of the kind, as printed in tables.
    fn kind(&self) -> &'static str;

    /// How it reads its inputs.
    fn reads(&self) -> Reads;

    /// Number of inputs; none where it is any from one on.
    fn arity(&self) -> Option<usize> {
        Some(1)
    }

    /// Shape of the output for [`OpSpec::arity`] inputs; the error says what does not fit.
    fn output(&self, x: &[Shape]) -> Result<Shape, String> {
        Ok(x[0])
    }

    /// The parameters that it owns, in PyTorch's order.
    fn params(&self, _x: Shape) -> Vec<ParamSpec> {
        Vec::new()
    }

    /// Multiply-adds of one sample's forward pass; only convolutions and linear layers count, as is usual.
    fn macs(&self, _x: Shape) -> u64 {
        0
    }

    /// Whether the output is the input's memory under another shape: such an op is not run.
    fn renames(&self) -> bool {
        false
    }

    /// For an op with a running mean and variance of each channel: the weight of the new statistics in the running ones.
    fn statistics_momentum(&self) -> Option<f32> {
        None
    }

    /// Starts the op so that the residual branch that it ends is zero; nothing for an op that ends none.
    fn start_branch_at_zero(&mut self) {}

    /// How files store its tensors; none without tensors.
    fn stored() -> Option<&'static Stored>
    where
        Self: Sized,
    {
        None
    }
}

/// How an op reads its inputs: decides which memory orders it can take, and what a flattened image means to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Channel by channel: a flattened image is not one.
    Channels,
    /// Element by element: with one input, the output's elements are in the input's order.
    Elements,
    /// All elements as features, (C, H, W) if they were an image.
    Features,
}

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
    /// Normal with this standard deviation.
    Normal(f32),
    /// Uniform with variance 2 / fan, fan = elements that feed one output (PyTorch's `kaiming_uniform_`).
    HeUniformFanIn,
    /// As UniformFanIn, but the first filters pass on one channel each, as many as there are channels (Zagoruyko and Komodakis 2017,
    /// arXiv 1706.00388, section 3).
    Dirac,
    /// Uniform in +- this bound.
    Uniform(f32),
}

/// One parameter of an op: its field name, plain shape (PyTorch's layout) and start.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamSpec {
    /// `weight`, `bias` or `layer_scale`.
    pub field: &'static str,
    /// OIHW for a convolution, (O, I) for a linear layer, (C) for the rest.
    pub shape: Vec<usize>,
    /// How it starts.
    pub init: Init,
}

impl ParamSpec {
    pub(super) fn new(field: &'static str, shape: Vec<usize>, init: Init) -> Self {
        Self { field, shape, init }
    }

    /// The weights of a normalisation, which start as the identity.
    pub(super) fn scale_and_shift(channels: usize) -> Vec<Self> {
        let of = |field, start| Self::new(field, vec![channels], Init::Constant(start));
        vec![of("weight", 1.0), of("bias", 0.0)]
    }

    /// The bias that goes with this weight, (O, I) or OIHW.
    pub(super) fn bias(&self, init: Init) -> Self {
        let fan_in: usize = self.shape.iter().skip(1).product();
        let init = if init == Init::UniformFanIn { Init::Uniform(1.0 / (fan_in as f32).sqrt()) } else { init };
        Self::new("bias", vec![self.shape[0]], init)
    }

    /// Number of elements of the plain tensor.
    pub fn elems(&self) -> usize {
        self.shape.iter().product()
    }
}
