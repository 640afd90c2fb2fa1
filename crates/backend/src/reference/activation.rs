//! Element-wise activations in f64, and ReLU, which other operations apply in their own pass.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use net::Activation;

use super::device::{HostBuf, Reference};
use crate::planned::elementwise;
use crate::{Error, Keeps, Pass, PlanRequest, Planned, TensorDesc};

pub(super) fn plan(op: &Activation, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    let (op, desc) = (*op, TensorDesc::plain(r.x[0].n, r.output()?));
    let forward = move |_: &Pass<'_, Reference>, x: &[&HostBuf], y: &mut HostBuf| {
        for (y, x) in y.0[..desc.elems()].iter_mut().zip(&x[0].0) {
            *y = value(op, f64::from(*x)) as f32;
        }
        Ok(())
    };
    elementwise(desc, Keeps::ALL, None, forward, move |_, g| {
        for (d, x) in g.dy.0[..desc.elems()].iter_mut().zip(&g.x[0].0) {
            *d = (f64::from(*d) * slope(op, f64::from(*x))) as f32;
        }
        Ok(())
    })
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn hard_sigmoid(x: f64) -> f64 {
    (x / 6.0 + 0.5).clamp(0.0, 1.0)
}

/// Returns distribution function and density of the normal distribution.
fn normal(x: f64) -> (f64, f64) {
    (0.5 * libm::erfc(-x * FRAC_1_SQRT_2), (-0.5 * x * x).exp() / (2.0 * PI).sqrt())
}

/// Returns GELU's tanh approximation of the distribution function, and its derivative.
fn tanh_normal(x: f64) -> (f64, f64) {
    let (k, c) = ((2.0 / PI).sqrt(), 0.044715);
    let t = (k * (x + c * x * x * x)).tanh();
    (0.5 * (1.0 + t), 0.5 * (1.0 - t * t) * k * (1.0 + 3.0 * c * x * x))
}

/// Returns f(x). `clamp` keeps NaN.
fn value(op: Activation, x: f64) -> f64 {
    match op {
        Activation::Identity => x,
        Activation::Relu => x.clamp(0.0, f64::INFINITY),
        Activation::Relu6 => x.clamp(0.0, 6.0),
        Activation::LeakyRelu(slope) => x * if x < 0.0 { slope.into() } else { 1.0 },
        Activation::Scale(factor) => x * f64::from(factor),
        Activation::Tanh => x.tanh(),
        Activation::Sigmoid => sigmoid(x),
        Activation::HardSigmoid => hard_sigmoid(x),
        Activation::HardSwish => x * hard_sigmoid(x),
        Activation::Silu => x * sigmoid(x),
        Activation::Gelu => x * normal(x).0,
        Activation::GeluTanh => x * tanh_normal(x).0,
    }
}

/// Returns df/dx. At corners and for NaN it has PyTorch's value.
fn slope(op: Activation, x: f64) -> f64 {
    let inside = |from: f64, to: f64| f64::from(u8::from(x > from && x < to));
    match op {
        Activation::Identity => 1.0,
        Activation::Relu => {
            if x <= 0.0 {
                0.0
            } else {
                1.0
            }
        }
        Activation::Relu6 => inside(0.0, 6.0),
        Activation::LeakyRelu(slope) => 1.0 + (f64::from(slope) - 1.0) * (1.0 - inside(0.0, f64::INFINITY)),
        Activation::Scale(factor) => factor.into(),
        Activation::Tanh => 1.0 - x.tanh() * x.tanh(),
        Activation::Sigmoid => sigmoid(x) * (1.0 - sigmoid(x)),
        Activation::HardSigmoid => inside(-3.0, 3.0) / 6.0,
        Activation::HardSwish => hard_sigmoid(x) + x * inside(-3.0, 3.0) / 6.0,
        Activation::Silu => sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x))),
        Activation::Gelu => normal(x).0 + x * normal(x).1,
        Activation::GeluTanh => tanh_normal(x).0 + x * tanh_normal(x).1,
    }
}

/// Returns max(v, 0), except that NaN stays NaN, so that a diverged network does not look healthy.
pub(super) fn relu(v: f32) -> f32 {
    if v <= 0.0 { 0.0 } else { v }
}

/// Sets the gradient to zero where ReLU's output is zero.
pub(super) fn mask(dy: &mut [f32], y: &[f32]) {
    for (d, y) in dy.iter_mut().zip(y) {
        if *y <= 0.0 {
            *d = 0.0;
        }
    }
}
