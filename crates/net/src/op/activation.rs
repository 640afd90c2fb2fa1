//! Element-wise activations.

use super::spec::{OpSpec, Reads};
use super::toml_keys::{Keys, OpFormat};

/// y = f(x) for each element. NaN stays NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    Identity,
    Relu,
    /// min(max(x, 0), 6) (Howard et al. 2017, arXiv 1704.04861).
    Relu6,
    /// x if x >= 0, otherwise this factor times x (Maas et al. 2013).
    LeakyRelu(f32),
    Scale(f32),
    Tanh,
    Sigmoid,
    /// min(max(x / 6 + 1/2, 0), 1) (Howard et al. 2019, arXiv 1905.02244).
    HardSigmoid,
    /// x times its hard sigmoid (Howard et al. 2019, arXiv 1905.02244).
    HardSwish,
    /// x sigmoid(x) = x / (1 + exp(-x)), also called swish (Hendrycks and Gimpel 2016, arXiv 1606.08415).
    Silu,
    /// x times the normal distribution function of x (Hendrycks and Gimpel 2016, arXiv 1606.08415).
    Gelu,
    /// GELU's approximation x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel 2016).
    GeluTanh,
}

impl Activation {
    /// All activations, with example values for their parameters. Leaky ReLU has PyTorch's default.
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
    fn reads(&self) -> Reads {
        Reads::Elements
    }
}

impl OpFormat for Activation {
    const WORDS: &'static [&'static str] = &[
        "relu",
        "relu6",
        "leaky_relu",
        "sigmoid",
        "hard_sigmoid",
        "hard_swish",
        "silu",
        "gelu",
        "gelu_tanh",
        "tanh",
        "scale",
        "identity",
    ];

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

    fn plain(word: &str) -> Self {
        let named = Self::ALL.into_iter().find(|activation| activation.kind() == word);
        match named.unwrap_or(Self::Identity) {
            Self::Scale(_) => Self::Scale(1.0),
            activation => activation,
        }
    }

    fn keys(&mut self, keys: &mut Keys<'_>) {
        match self {
            Self::LeakyRelu(slope) => keys.key("slope", slope),
            Self::Scale(factor) => keys.needed("factor", factor),
            _ => {}
        }
    }
}
