//! Fully connected layer: attributes and parameters.

use super::list::MOST_ELEMENTS;
use super::shape::Shape;
use super::spec::{Init, KerasOrder, OpSpec, ParamSpec, Reads, StoredTensor, product};
use super::toml_keys::{Keys, OpFormat};

/// y = W x + b over all input features. The features of an image are in C, H, W order.
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    pub out_features: usize,
    pub bias: bool,
    /// True if max(x, 0) follows in the same pass.
    pub relu: bool,
    pub init: Init,
    pub bias_init: Init,
}

impl Linear {
    /// Creates a layer without ReLU. The bias is initialised to zero, and the weight with PyTorch's default.
    pub fn new(out_features: usize) -> Self {
        Self { out_features, bias: true, relu: false, init: Init::UniformFanIn, bias_init: Init::Constant(0.0) }
    }

    /// Applies ReLU in the same pass.
    pub fn relu(mut self) -> Self {
        self.relu = true;
        self
    }

    pub fn init(mut self, init: Init) -> Self {
        self.init = init;
        self
    }

    /// Adds a bias that is initialised to `start`.
    pub fn bias(self, start: f32) -> Self {
        self.bias_from(Init::Constant(start))
    }

    /// Adds a bias with this initialisation.
    pub fn bias_from(mut self, init: Init) -> Self {
        self.bias = true;
        self.bias_init = init;
        self
    }
}

impl OpSpec for Linear {
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
        product(&[self.out_features, x.c, x.h, x.w])
    }
}

impl OpFormat for Linear {
    const WORDS: &'static [&'static str] = &["linear"];
    const TENSORS: &'static [StoredTensor] = &[
        StoredTensor::parameter("weight", "kernel", KerasOrder::Matrix),
        StoredTensor::parameter("bias", "bias", KerasOrder::Vector),
    ];

    fn cure(&self, inputs: &[Shape]) -> &'static str {
        match *inputs {
            [x] if (self.out_features as u128).saturating_mul(x.elems() as u128) > MOST_ELEMENTS => {
                "put an avgpool before this layer or use fewer features"
            }
            _ => "",
        }
    }

    fn plain(_: &str) -> Self {
        Self::new(0)
    }

    fn keys(&mut self, keys: &mut Keys<'_>) {
        let Self { out_features, bias, relu, init, bias_init } = self;
        keys.needed("features", out_features);
        keys.key("bias", bias);
        keys.key("relu", relu);
        keys.key("init", init);
        keys.key("bias_init", bias_init);
    }
}
