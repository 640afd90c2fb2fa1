//! Fully connected layer: attributes and parameters.

use super::shape::Shape;
use super::spec::{Init, ParamSpec};
use super::spec::{OpSpec, Reads};
use super::stored::{KerasOrder, Stored, StoredTensor};

/// y = W x + b over all features of the input, in C, H, W order if it is an image.
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// Features that come out.
    pub out_features: usize,
    /// Whether a bias is added.
    pub bias: bool,
    /// Whether max(., 0) follows in the same pass.
    pub relu: bool,
    /// What the weight starts from.
    pub init: Init,
    /// What the bias starts from.
    pub bias_init: Init,
}

impl Linear {
    /// With a bias that starts at zero, PyTorch's default start of the weight, no ReLU.
    pub fn new(out_features: usize) -> Self {
        Self { out_features, bias: true, relu: false, init: Init::UniformFanIn, bias_init: Init::Constant(0.0) }
    }

    /// ReLU in the same pass.
    pub fn relu(mut self) -> Self {
        self.relu = true;
        self
    }

    /// What the weight starts from.
    pub fn init(mut self, init: Init) -> Self {
        self.init = init;
        self
    }

    /// What the bias starts from.
    pub fn bias(self, start: f32) -> Self {
        self.bias_from(Init::Constant(start))
    }

    /// Adds a bias that starts like this.
    pub fn bias_from(mut self, init: Init) -> Self {
        self.bias = true;
        self.bias_init = init;
        self
    }
}

/// In files.
const STORED: Stored = Stored {
    kind: "linear",
    tensors: &[
        StoredTensor::parameter("weight", "kernel", KerasOrder::Matrix),
        StoredTensor::parameter("bias", "bias", KerasOrder::Vector),
    ],
};

impl OpSpec for Linear {
    fn kind(&self) -> &'static str {
        "linear"
    }

    fn reads(&self) -> Reads {
        Reads::Features
    }

    fn output(&self, _x: &[Shape]) -> Result<Shape, String> {
        Ok(Shape::vector(self.out_features))
    }

    fn params(&self, x: Shape) -> Vec<ParamSpec> {
        let mut params = vec![ParamSpec::new("weight", vec![self.out_features, x.elems()], self.init)];
        if self.bias {
            params.push(params[0].bias(self.bias_init));
        }
        params
    }

    fn macs(&self, x: Shape) -> u64 {
        (self.out_features * x.elems()) as u64
    }

    fn stored() -> Option<&'static Stored> {
        Some(&STORED)
    }
}
