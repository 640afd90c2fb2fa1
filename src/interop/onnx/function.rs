//! Functions of one element that exporters write as several nodes: x * sigmoid(x) for SiLU, a product with an error function for GELU.
//! Whatever the nodes are, they are computed at a few points and compared with the activations that there are.

use std::rc::Rc;

use crate::nn::spec::Activation;

/// A function of one number.
#[derive(Debug)]
pub(super) struct Function {
    /// Name of the node that makes it.
    pub name: String,
    pub form: Form,
    /// Number of its parts.
    size: usize,
}

/// How it is made.
#[derive(Clone, Debug)]
pub(super) enum Form {
    /// The number itself.
    Argument,
    Number(f64),
    Unary(Unary, Rc<Function>),
    Binary(Binary, Rc<Function>, Rc<Function>),
}

/// A function of one number that ONNX knows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Unary {
    Relu,
    LeakyRelu(f64),
    Sigmoid,
    HardSigmoid(f64, f64),
    HardSwish,
    Tanh,
    Erf,
    Clip(f64, f64),
    Gelu,
    GeluTanh,
    Negative,
    Exp,
    Sqrt,
    Softplus,
}

/// A function of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Pow,
    Min,
    Max,
}

/// Parts of which no function here has as many.
const LARGEST: usize = 64;

/// Points at which functions are compared, in steps of a sixteenth.
const POINTS: std::ops::RangeInclusive<i32> = -144..=144;

/// Largest difference of equal functions: exporters round their constants to f32.
const TOLERANCE: f64 = 1e-5;

impl Function {
    pub fn new(name: &str, form: Form) -> Self {
        let size = match &form {
            Form::Argument | Form::Number(_) => 1,
            Form::Unary(_, f) => 1 + f.size,
            Form::Binary(_, f, g) => 1 + f.size + g.size,
        };
        Self { name: name.into(), form, size }
    }

    /// The number itself.
    pub fn argument() -> Rc<Self> {
        Rc::new(Self::new("", Form::Argument))
    }

    /// Whether it is a number that does not depend on its argument.
    pub fn is_number(&self) -> bool {
        matches!(self.form, Form::Number(_))
    }

    /// Whether it is small enough to be one of the known ones.
    pub fn is_small(&self) -> bool {
        self.size <= LARGEST
    }

    fn at(&self, x: f64) -> f64 {
        match &self.form {
            Form::Argument => x,
            Form::Number(number) => *number,
            Form::Unary(function, f) => function.at(f.at(x)),
            Form::Binary(function, f, g) => function.at(f.at(x), g.at(x)),
        }
    }

    /// The activation that computes the same.
    pub fn activation(&self) -> Option<Activation> {
        if !self.is_small() {
            return None;
        }
        let values: Vec<(f64, f64)> = POINTS.map(|i| f64::from(i) / 16.0).map(|x| (x, self.at(x))).collect();
        let slope = self.at(-1.0) / -1.0;
        let candidates = Activation::ALL.into_iter().map(|activation| match activation {
            Activation::LeakyRelu(_) => Activation::LeakyRelu(slope as f32),
            Activation::Scale(_) => Activation::Scale(self.at(1.0) as f32),
            other => other,
        });
        let same = |activation: &Activation| {
            let near = |(x, y): &(f64, f64)| (value(*activation, *x) - y).abs() <= TOLERANCE * (1.0 + x.abs());
            values.iter().all(near)
        };
        candidates.into_iter().find(same)
    }
}

impl Unary {
    fn at(self, x: f64) -> f64 {
        match self {
            Self::Relu => x.max(0.0),
            Self::LeakyRelu(slope) => {
                if x < 0.0 {
                    slope * x
                } else {
                    x
                }
            }
            Self::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Self::HardSigmoid(alpha, beta) => (alpha * x + beta).clamp(0.0, 1.0),
            Self::HardSwish => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
            Self::Tanh => x.tanh(),
            Self::Erf => libm::erf(x),
            Self::Clip(least, most) => x.max(least).min(most),
            Self::Gelu => value(Activation::Gelu, x),
            Self::GeluTanh => value(Activation::GeluTanh, x),
            Self::Negative => -x,
            Self::Exp => x.exp(),
            Self::Sqrt => x.sqrt(),
            Self::Softplus => x.exp().ln_1p(),
        }
    }
}

impl Binary {
    fn at(self, x: f64, y: f64) -> f64 {
        match self {
            Self::Add => x + y,
            Self::Sub => x - y,
            Self::Mul => x * y,
            Self::Div => x / y,
            Self::Pow => x.powf(y),
            Self::Min => x.min(y),
            Self::Max => x.max(y),
        }
    }
}

/// An activation at a point, by its definition.
fn value(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Identity => x,
        Activation::Relu => x.max(0.0),
        Activation::Relu6 => x.clamp(0.0, 6.0),
        Activation::LeakyRelu(slope) => Unary::LeakyRelu(f64::from(slope)).at(x),
        Activation::Scale(factor) => f64::from(factor) * x,
        Activation::Tanh => x.tanh(),
        Activation::Sigmoid => Unary::Sigmoid.at(x),
        Activation::HardSigmoid => (x / 6.0 + 0.5).clamp(0.0, 1.0),
        Activation::HardSwish => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Gelu => 0.5 * x * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rc(form: Form) -> Rc<Function> {
        Rc::new(Function::new("", form))
    }

    fn binary(function: Binary, f: &Rc<Function>, g: &Rc<Function>) -> Rc<Function> {
        rc(Form::Binary(function, f.clone(), g.clone()))
    }

    #[test]
    fn functions_of_several_nodes_are_recognised() {
        let x = rc(Form::Argument);
        let number = |n| rc(Form::Number(n));
        let sigmoid = rc(Form::Unary(Unary::Sigmoid, x.clone()));
        assert_eq!(binary(Binary::Mul, &x, &sigmoid).activation(), Some(Activation::Silu));
        let erf = rc(Form::Unary(Unary::Erf, binary(Binary::Div, &x, &number(f64::from(2f32.sqrt())))));
        let share = binary(Binary::Add, &erf, &number(1.0));
        let gelu = binary(Binary::Mul, &binary(Binary::Mul, &x, &share), &number(0.5));
        assert_eq!(gelu.activation(), Some(Activation::Gelu));
        let relu6 = rc(Form::Unary(Unary::Clip(0.0, 6.0), binary(Binary::Add, &x, &number(3.0))));
        let swish = binary(Binary::Div, &binary(Binary::Mul, &x, &relu6), &number(6.0));
        assert_eq!(swish.activation(), Some(Activation::HardSwish));
        assert_eq!(rc(Form::Unary(Unary::Clip(0.0, f64::INFINITY), x.clone())).activation(), Some(Activation::Relu));
        assert_eq!(binary(Binary::Mul, &x, &number(0.25)).activation(), Some(Activation::Scale(0.25)));
        let leaky = rc(Form::Unary(Unary::LeakyRelu(f64::from(0.2f32)), x.clone()));
        assert_eq!(leaky.activation(), Some(Activation::LeakyRelu(0.2)));
        assert_eq!(binary(Binary::Mul, &x, &x).activation(), None);
        assert_eq!(rc(Form::Unary(Unary::Exp, x.clone())).activation(), None);
    }

    #[test]
    fn each_activation_is_itself() {
        let all =
            [(Unary::Gelu, Activation::Gelu), (Unary::GeluTanh, Activation::GeluTanh), (Unary::Tanh, Activation::Tanh)];
        for (unary, activation) in all {
            assert_eq!(rc(Form::Unary(unary, rc(Form::Argument))).activation(), Some(activation));
        }
    }
}
