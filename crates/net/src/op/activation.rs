//! Functions of one element.

use super::spec::{OpSpec, Reads};

/// y = f(x) of each element; NaN stays NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// x.
    Identity,
    /// max(x, 0).
    Relu,
    /// min(max(x, 0), 6) (Howard et al. 2017, arXiv 1704.04861).
    Relu6,
    /// x, or this factor times x below zero (Maas et al. 2013).
    LeakyRelu(f32),
    /// This factor times x.
    Scale(f32),
    /// tanh(x).
    Tanh,
    /// 1 / (1 + exp(-x)).
    Sigmoid,
    /// min(max(x / 6 + 1/2, 0), 1) (Howard et al. 2019, arXiv 1905.02244).
    HardSigmoid,
    /// x times its hard sigmoid (the same).
    HardSwish,
    /// x sigmoid(x) = x / (1 + exp(-x)), also called swish (Hendrycks and Gimpel 2016, arXiv 1606.08415).
    Silu,
    /// x times the normal distribution function of x (the same).
    Gelu,
    /// Its approximation x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) (the same).
    GeluTanh,
}

impl Activation {
    /// One of each, leaky ReLU with PyTorch's factor.
    pub const ALL: [Self; 12] = [
        Self::Identity,
        Self::Relu,
        Self::Relu6,
        Self::LeakyRelu(0.01),
        Self::Scale(0.17),
        Self::Tanh,
        Self::Sigmoid,
        Self::HardSigmoid,
        Self::HardSwish,
        Self::Silu,
        Self::Gelu,
        Self::GeluTanh,
    ];
}

impl OpSpec for Activation {
    fn kind(&self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Relu => "relu",
            Self::Relu6 => "relu6",
            Self::LeakyRelu(_) => "leaky_relu",
            Self::Scale(_) => "scale",
            Self::Tanh => "tanh",
            Self::Sigmoid => "sigmoid",
            Self::HardSigmoid => "hard_sigmoid",
            Self::HardSwish => "hard_swish",
            Self::Silu => "silu",
            Self::Gelu => "gelu",
            Self::GeluTanh => "gelu_tanh",
        }
    }

    fn reads(&self) -> Reads {
        Reads::Elements
    }
}
