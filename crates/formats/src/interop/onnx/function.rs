//! Element-wise functions that exporters write as several nodes, for example `x * sigmoid(x)` for SiLU, or a product
//! with an error function for GELU. The nodes are evaluated at a few points, and the results are compared with
//! trireme's activations.

use std::rc::Rc;

use net::Activation;

/// A function of one number.
#[derive(Debug)]
pub(crate) struct Function {
    /// Name of the node that computes it.
    pub name: String,
    pub form: Form,
    /// Number of nodes in the expression.
    size: usize,
}

/// The function `outer * activation(inner * x)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ScaledActivation {
    pub inner: f32,
    pub activation: Activation,
    pub outer: f32,
}

#[derive(Clone, Debug)]
pub(crate) enum Form {
    /// The variable x.
    Argument,
    Number(f64),
    Unary(Unary, Rc<Function>),
    Binary(Binary, Rc<Function>, Rc<Function>),
}

/// An ONNX operator with one operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Unary {
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

/// An ONNX operator with two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Pow,
    Min,
    Max,
}

/// Largest number of nodes in an expression. All known activations have fewer.
const LARGEST: usize = 64;

/// Points at which functions are compared, in units of 1/16.
const POINTS: std::ops::RangeInclusive<i32> = -144..=144;

/// Exponents of powers of two at which functions are also compared, with both signs.
const FAR: std::ops::RangeInclusive<i32> = 4..=24;

/// Functions are also compared just below and above each of their constants, because a constant may be a bound. These
/// points are a constant times each of these factors.
const SIDES: [f64; 2] = [0.99, 1.01];

/// Largest relative difference of equal functions. Exporters round their constants to f32.
const TOLERANCE: f64 = 1e-5;

/// Additional tolerance for values that nearly cancel, relative to the larger of |f(x)| and |f(-x)|.
const ROUNDING: f64 = 5e-7;

impl Function {
    pub fn new(name: &str, form: Form) -> Self {
        let size = match &form {
            Form::Argument | Form::Number(_) => 1,
            Form::Unary(_, f) => 1 + f.size,
            Form::Binary(_, f, g) => 1 + f.size + g.size,
        };
        Self { name: name.into(), form, size }
    }

    /// Returns the function x.
    pub fn argument() -> Rc<Self> {
        Rc::new(Self::new("", Form::Argument))
    }

    /// Returns true if the function is a constant.
    pub fn is_number(&self) -> bool {
        matches!(self.form, Form::Number(_))
    }

    /// Returns the node's name and operator for messages.
    pub fn made_by(&self) -> String {
        let op = match &self.form {
            Form::Argument | Form::Number(_) => return format!("node {}", self.name),
            Form::Unary(of, _) => of.operator(),
            Form::Binary(of, ..) => of.operator(),
        };
        format!("node {} ({op})", self.name)
    }

    /// Returns true if the expression is small enough to be an activation.
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

    /// Returns the activation that computes this function, or `None` if no activation does.
    pub fn activation(&self) -> Option<Activation> {
        if !self.is_small() {
            return None;
        }
        let points = self.points();
        let slope = self.at(-1.0) / -1.0;
        let candidates = Activation::ALL.into_iter().map(|activation| match activation {
            Activation::LeakyRelu(_) => Activation::LeakyRelu(slope as f32),
            Activation::Scale(_) => Activation::Scale(self.at(1.0) as f32),
            other => other,
        });
        candidates.into_iter().find(|activation| points.iter().all(|x| self.is_near(*activation, *x)))
    }

    /// Finds an activation f and a factor k such that this function equals f(k x) or f(k x) / k. This covers hard
    /// sigmoids with other slopes than trireme's.
    pub fn scaled_activation(&self) -> Option<ScaledActivation> {
        let mut slopes = Vec::new();
        self.slopes(&mut slopes);
        slopes.into_iter().filter(|slope| *slope > 0.0 && slope.is_finite()).find_map(|slope| {
            // trireme's and PyTorch's hard sigmoid has slope 1/6
            let inner = 6.0 * slope;
            [1.0, 1.0 / inner].into_iter().find_map(|outer| {
                let number = |value| Rc::new(Self::new("", Form::Number(value)));
                let narrowed =
                    self.of(&Rc::new(Self::new("", Form::Binary(Binary::Div, Self::argument(), number(inner)))));
                let whole = Self::new("", Form::Binary(Binary::Div, Rc::new(narrowed), number(outer)));
                let activation = whole.activation()?;
                Some(ScaledActivation { inner: inner as f32, activation, outer: outer as f32 })
            })
        })
    }

    /// Returns a and b if the expression is a x + b in any form.
    pub fn affine(&self) -> Option<[f64; 2]> {
        Some(match &self.form {
            Form::Argument => [1.0, 0.0],
            Form::Number(number) => [0.0, *number],
            Form::Unary(Unary::Negative, f) => f.affine()?.map(|number| -number),
            Form::Unary(..) => return None,
            Form::Binary(of, f, g) => match (of, f.affine()?, g.affine()?) {
                (Binary::Add, [a, b], [c, d]) => [a + c, b + d],
                (Binary::Sub, [a, b], [c, d]) => [a - c, b - d],
                (Binary::Mul, [a, b], [0.0, factor]) | (Binary::Mul, [0.0, factor], [a, b]) => [a * factor, b * factor],
                (Binary::Div, [a, b], [0.0, divisor]) => [a / divisor, b / divisor],
                _ => return None,
            },
        })
    }

    /// Substitutes `argument` for x.
    fn of(&self, argument: &Rc<Self>) -> Self {
        let form = match &self.form {
            Form::Argument => return Self::new(&argument.name, argument.form.clone()),
            Form::Number(number) => Form::Number(*number),
            Form::Unary(of, f) => Form::Unary(*of, Rc::new(f.of(argument))),
            Form::Binary(of, f, g) => Form::Binary(*of, Rc::new(f.of(argument)), Rc::new(g.of(argument))),
        };
        Self::new(&self.name, form)
    }

    /// Appends the slopes of all hard sigmoids in the function.
    fn slopes(&self, all: &mut Vec<f64>) {
        match &self.form {
            Form::Argument | Form::Number(_) => {}
            Form::Unary(of, f) => {
                if let Unary::HardSigmoid(alpha, _) = of {
                    all.push(*alpha);
                }
                f.slopes(all);
            }
            Form::Binary(_, f, g) => [f, g].iter().for_each(|part| part.slopes(all)),
        }
    }

    /// Returns true if the function and the activation have nearly the same value at `x`.
    fn is_near(&self, activation: Activation, x: f64) -> bool {
        let [y, opposite] = [x, -x].map(|x| self.at(x));
        if !y.is_finite() {
            // Far from zero, parts of a formula may overflow although the activation does not, for example exp(x) in a
            // tanh.
            return x.abs() >= 2f64.powi(*FAR.start());
        }
        let size = if opposite.is_finite() { y.abs().max(opposite.abs()) } else { y.abs() };
        (value(activation, x) - y).abs() <= TOLERANCE * y.abs() + ROUNDING * size
    }

    /// Returns the points for comparison: around zero, far from zero, and on both sides of the function's own
    /// constants.
    fn points(&self) -> Vec<f64> {
        let mut constants = Vec::new();
        self.constants(&mut constants);
        let sides = constants.iter().flat_map(|constant| SIDES.map(|side| constant * side));
        // exporters write a missing bound as the largest f32
        let far = FAR.map(|power| 2f64.powi(power)).chain(sides).filter(|x| x.abs() <= f64::from(f32::MAX));
        POINTS.map(|i| f64::from(i) / 16.0).chain(far.flat_map(|x| [x, -x])).collect()
    }

    /// Appends the constants in the expression.
    fn constants(&self, all: &mut Vec<f64>) {
        match &self.form {
            Form::Argument => {}
            Form::Number(number) => all.push(*number),
            Form::Unary(of, f) => {
                if let Unary::Clip(least, most) = of {
                    all.extend([least, most]);
                }
                f.constants(all);
            }
            Form::Binary(_, f, g) => [f, g].iter().for_each(|part| part.constants(all)),
        }
    }
}

impl Unary {
    fn operator(self) -> &'static str {
        match self {
            Self::Relu => "Relu",
            Self::LeakyRelu(_) => "LeakyRelu",
            Self::Sigmoid => "Sigmoid",
            Self::HardSigmoid(..) => "HardSigmoid",
            Self::HardSwish => "HardSwish",
            Self::Tanh => "Tanh",
            Self::Erf => "Erf",
            Self::Clip(..) => "Clip",
            Self::Gelu | Self::GeluTanh => "Gelu",
            Self::Negative => "Neg",
            Self::Exp => "Exp",
            Self::Sqrt => "Sqrt",
            Self::Softplus => "Softplus",
        }
    }

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
            // exp(x) would overflow
            Self::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        }
    }
}

impl Binary {
    fn operator(self) -> &'static str {
        match self {
            Self::Add => "Add",
            Self::Sub => "Sub",
            Self::Mul => "Mul",
            Self::Div => "Div",
            Self::Pow => "Pow",
            Self::Min => "Min",
            Self::Max => "Max",
        }
    }

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

/// Evaluates an activation by its definition.
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
    fn activations_of_several_nodes_are_recognised() {
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
    fn functions_that_differ_anywhere_are_not_confused() {
        let x = rc(Form::Argument);
        let number = |n| rc(Form::Number(n));
        let clip = |least, most| rc(Form::Unary(Unary::Clip(least, most), x.clone()));
        for most in [8.0, 10.0, 20.0, 150.0, 5e3, 3e6, 1e9] {
            assert_eq!(clip(0.0, most).activation(), None, "{most}");
            assert_eq!(clip(-most, most).activation(), None, "{most}");
        }
        let shifted = rc(Form::Unary(Unary::Clip(0.0, f64::INFINITY), binary(Binary::Add, &x, &number(300.0))));
        assert_eq!(binary(Binary::Sub, &shifted, &number(300.0)).activation(), None);
        let relu = rc(Form::Unary(Unary::Relu, x.clone()));
        assert_eq!(binary(Binary::Mul, &relu, &number(1e-6)).activation(), None);
        assert_eq!(binary(Binary::Mul, &relu, &number(1.001)).activation(), None);
        let slope = 1e-5f32;
        let leaky = rc(Form::Unary(Unary::LeakyRelu(f64::from(slope)), x.clone()));
        assert_eq!(leaky.activation(), Some(Activation::LeakyRelu(slope)));
        assert_eq!(clip(0.0, f64::from(f32::MAX)).activation(), Some(Activation::Relu));
        assert_eq!(clip(0.0, 6.0).activation(), Some(Activation::Relu6));
    }

    /// At some of the points, exp(x) overflows.
    #[test]
    fn formulas_that_overflow_are_recognised() {
        let x = rc(Form::Argument);
        let number = |n| rc(Form::Number(n));
        let [up, down] =
            [x.clone(), rc(Form::Unary(Unary::Negative, x.clone()))].map(|of| rc(Form::Unary(Unary::Exp, of)));
        let sigmoid = binary(Binary::Div, &number(1.0), &binary(Binary::Add, &down, &number(1.0)));
        assert_eq!(sigmoid.activation(), Some(Activation::Sigmoid));
        assert_eq!(binary(Binary::Mul, &x, &sigmoid).activation(), Some(Activation::Silu));
        let tanh = binary(Binary::Div, &binary(Binary::Sub, &up, &down), &binary(Binary::Add, &up, &down));
        assert_eq!(tanh.activation(), Some(Activation::Tanh));
    }

    #[test]
    fn hard_sigmoid_and_hard_swish_are_recognised() {
        let sixth = f64::from(1.0f32 / 6.0);
        let hard = rc(Form::Unary(Unary::HardSigmoid(sixth, 0.5), rc(Form::Argument)));
        assert_eq!(hard.activation(), Some(Activation::HardSigmoid));
        let swish = binary(Binary::Mul, &rc(Form::Argument), &hard);
        assert_eq!(swish.activation(), Some(Activation::HardSwish));
        let all =
            [(Unary::Gelu, Activation::Gelu), (Unary::GeluTanh, Activation::GeluTanh), (Unary::Tanh, Activation::Tanh)];
        for (unary, activation) in all {
            assert_eq!(rc(Form::Unary(unary, rc(Form::Argument))).activation(), Some(activation));
        }
    }
}
