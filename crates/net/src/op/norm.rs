//! Batch normalisation: attributes and parameters.

use super::shape::Shape;
use super::spec::{Init, KerasOrder, OpSpec, ParamSpec, StoredTensor};
use super::toml_keys::{Keys, OpFormat};

/// y = gamma (x - mean) / sqrt(var + eps) + beta, then + residual, then ReLU, in one pass (Ioffe and Szegedy 2015).
#[derive(Clone, Debug, PartialEq)]
pub struct Norm {
    /// Added to the variance before the root.
    pub eps: f32,
    /// Weight of the new statistics in the running statistics, as in PyTorch.
    pub momentum: f32,
    /// True if a second input is added before ReLU.
    pub residual: bool,
    /// True if max(x, 0) follows in the same pass.
    pub relu: bool,
    /// True if gamma is a parameter. If not, it is always 1.
    pub scale: bool,
    /// Initial value of gamma for all channels.
    pub gamma: f32,
}

impl Norm {
    /// Creates the operation with PyTorch's defaults: eps 1e-5, momentum 0.1, gamma 1, beta 0.
    pub fn new() -> Self {
        Self { eps: 1e-5, momentum: 0.1, residual: false, relu: false, scale: true, gamma: 1.0 }
    }

    /// Splits a list with a value for each parameter into the value for gamma, if gamma is a parameter, and the value
    /// for beta.
    pub fn gamma_beta<T: Copy>(&self, each: &[T]) -> (Option<T>, T) {
        if self.scale { (Some(each[0]), each[1]) } else { (None, each[0]) }
    }

    /// Applies ReLU in the same pass.
    pub fn relu(mut self) -> Self {
        self.relu = true;
        self
    }

    /// Adds a second input, which is summed with the result before ReLU.
    pub fn residual(mut self) -> Self {
        self.residual = true;
        self
    }
}

impl Default for Norm {
    fn default() -> Self {
        Self::new()
    }
}

impl OpSpec for Norm {
    fn arity(&self) -> Option<usize> {
        Some(1 + usize::from(self.residual))
    }

    fn output(&self, x: &[Shape]) -> Result<Shape, String> {
        Shape::alike(x)
    }

    fn params(&self, x: Shape) -> Vec<ParamSpec> {
        let gamma = self.scale.then(|| ParamSpec::new("weight", vec![x.c], Init::Constant(self.gamma)));
        gamma.into_iter().chain([ParamSpec::new("bias", vec![x.c], Init::Constant(0.0))]).collect()
    }

    fn statistics_momentum(&self) -> Option<f32> {
        Some(self.momentum)
    }
}

impl OpFormat for Norm {
    const WORDS: &'static [&'static str] = &["norm"];
    const TENSORS: &'static [StoredTensor] = &[
        StoredTensor::parameter("weight", "gamma", KerasOrder::Vector),
        StoredTensor::parameter("bias", "beta", KerasOrder::Vector),
        StoredTensor::running("running_mean", "moving_mean"),
        StoredTensor::running("running_var", "moving_variance"),
    ];
    const CURE: &'static str = "with residual = true it needs inputs = [\"normalised\", \"added\"] with the same shape; if the branch \
                                changes channels or stride, add a shortcut or a conv with kernel = 1 to the other input";

    fn plain(_: &str) -> Self {
        Self::new()
    }

    fn keys(&mut self, keys: &mut Keys<'_>) {
        let Self { eps, momentum, residual, relu, scale, gamma } = self;
        keys.positive("eps", eps);
        keys.key("momentum", momentum);
        keys.refuse(
            "momentum",
            !(0.0..=1.0).contains(&*momentum),
            &format!("is the weight of the new statistics and must be in [0, 1], got {momentum}"),
        );
        keys.key("residual", residual);
        keys.key("relu", relu);
        keys.key("scale", scale);
        keys.key("gamma", gamma);
    }
}
