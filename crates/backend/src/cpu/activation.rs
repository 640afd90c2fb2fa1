//! Element-wise functions. Each is a single pass over flat memory, so the layout does not matter.

use std::f32::consts::FRAC_1_SQRT_2;

use base::simd;
use net::Activation;

use super::buf::AlignedBuf;
use super::device::Cpu;
use super::flat::{UNIT, clear_padding};
use super::vector::exp;
use crate::planned::elementwise;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned};

/// Computes y = f(x) for slices of equal length. `a` is the function's parameter, for example the slope of leaky ReLU.
type Forward = fn(y: &mut [f32], x: &[f32], a: f32);
/// Overwrites dy with dx. `slope_input` is x or y from the forward pass.
type Backward = fn(dy: &mut [f32], slope_input: &[f32], a: f32);

/// The tensor from which the function's slope is computed. `Nothing` if the slope is the function's parameter.
#[derive(Clone, Copy, PartialEq)]
enum SlopeInput {
    X,
    Y,
    Nothing,
}

#[derive(Clone, Copy)]
struct Loops {
    forward: Forward,
    backward: Backward,
    slope_input: SlopeInput,
    a: f32,
}

/// Declares the loops of functions. The first expression computes y from x, the second computes dx from dy and x or y.
macro_rules! loops {
    ($($name:ident: |$x:ident, $a:ident| $value:expr, |$d:ident, $slope_input:ident: $which:ident| $slope:expr;)*) => {$(
        fn $name(a: f32) -> Loops {
            simd! {
                fn forward(y: &mut [f32], x: &[f32], a: f32) {
                    let $a = a;
                    let _ = $a;
                    for (y, &$x) in y.iter_mut().zip(x) {
                        *y = $value;
                    }
                }
            }
            simd! {
                fn backward(dy: &mut [f32], slope_input: &[f32], a: f32) {
                    let $a = a;
                    let _ = $a;
                    for (dy, &$slope_input) in dy.iter_mut().zip(slope_input) {
                        let $d = *dy;
                        *dy = $slope;
                    }
                }
            }
            Loops { forward, backward, slope_input: SlopeInput::$which, a }
        }
    )*};
}

loops! {
    relu: |x, a| if x > 0.0 || x.is_nan() { x } else { 0.0 }, |d, y: Y| if y <= 0.0 { 0.0 } else { d };
    relu6: |x, a| x.clamp(0.0, 6.0), |d, y: Y| if y > 0.0 && y < 6.0 { d } else { 0.0 };
    leaky_relu: |x, a| if x < 0.0 { a * x } else { x }, |d, x: X| if x > 0.0 { d } else { a * d };
    scale: |x, a| a * x, |d, none: Nothing| { let _ = none; a * d };
    tanh: |x, a| x.tanh(), |d, y: Y| d * (1.0 - y * y);
    sigmoid: |x, a| logistic(x), |d, y: Y| d * (y * (1.0 - y));
    hard_sigmoid: |x, a| ramp(x), |d, x: X| if x > -3.0 && x < 3.0 { d * (1.0 / 6.0) } else { 0.0 };
    hard_swish: |x, a| x * ramp(x), |d, x: X| d * (ramp(x) + if x > -3.0 && x < 3.0 { x * (1.0 / 6.0) } else { 0.0 });
    silu: |x, a| x * logistic(x), |d, x: X| { let s = logistic(x); d * (s * x.mul_add(1.0 - s, 1.0)) };
    gelu: |x, a| x * normal(x).0, |d, x: X| { let (below, density) = normal(x); d * x.mul_add(density, below) };
    gelu_tanh: |x, a| x * logistic(gelu_logit(x)), |d, x: X| {
        let x = x.clamp(-GELU_TANH_RANGE, GELU_TANH_RANGE);
        let s = logistic(gelu_logit(x));
        d * (s * (x * gelu_logit_slope(x)).mul_add(1.0 - s, 1.0))
    };
}

fn loops(op: Activation) -> Loops {
    match op {
        Activation::Identity => scale(1.0),
        Activation::Relu => relu(0.0),
        Activation::Relu6 => relu6(0.0),
        Activation::LeakyRelu(factor) => leaky_relu(factor),
        Activation::Scale(factor) => scale(factor),
        Activation::Tanh => tanh(0.0),
        Activation::Sigmoid => sigmoid(0.0),
        Activation::HardSigmoid => hard_sigmoid(0.0),
        Activation::HardSwish => hard_swish(0.0),
        Activation::Silu => silu(0.0),
        Activation::Gelu => gelu(0.0),
        Activation::GeluTanh => gelu_tanh(0.0),
    }
}

#[inline(always)]
fn logistic(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

#[inline(always)]
fn ramp(x: f32) -> f32 {
    x.mul_add(1.0 / 6.0, 0.5).clamp(0.0, 1.0)
}

/// For x above this bound, the approximation of GELU equals x, and below its negative it equals 0. The derivative is
/// computed from x clamped to this range, because x^3 would overflow.
const GELU_TANH_RANGE: f32 = 16.0;

/// Returns 2 u with u = sqrt(2 / pi) (x + 0.044715 x^3). The logistic function of 2 u is (1 + tanh(u)) / 2.
#[inline(always)]
fn gelu_logit(x: f32) -> f32 {
    1.595_769 * x * (0.044715 * x).mul_add(x, 1.0)
}

#[inline(always)]
fn gelu_logit_slope(x: f32) -> f32 {
    1.595_769 * (0.134_145 * x).mul_add(x, 1.0)
}

/// Returns the normal distribution function, accurate to 1e-7 (formula 7.1.26 of Abramowitz and Stegun, 1964), and its
/// density.
#[inline(always)]
fn normal(x: f32) -> (f32, f32) {
    let t = 1.0 / (0.327_591_1 * FRAC_1_SQRT_2).mul_add(x.abs(), 1.0);
    let bell = exp(-0.5 * x * x);
    let series = [1.061_405_4, -1.453_152_1, 1.421_413_7, -0.284_496_72, 0.254_829_6];
    let tail = 0.5 * t * series[1..].iter().fold(series[0], |sum: f32, c| sum.mul_add(t, *c)) * bell;
    (if x < 0.0 { tail } else { 1.0 - tail }, 0.398_942_3 * bell)
}

pub(super) fn plan(cpu: &Cpu, op: &Activation, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    let (threads, loops, desc) = (cpu.threads, loops(*op), r.x[0]);
    let mut zero = [0.0];
    (loops.forward)(&mut zero, &[0.0], loops.a);
    // If f(0) is not 0, the padding channels must be cleared afterwards.
    let moves_zero = zero != [0.0];
    let keeps = match loops.slope_input {
        SlopeInput::X => Keeps::INPUT,
        SlopeInput::Y => Keeps::OUTPUT,
        SlopeInput::Nothing => Keeps::NOTHING,
    };
    let forward = move |_: &Pass<'_, Cpu>, x: &[&AlignedBuf], y: &mut AlignedBuf| {
        let y = &mut y.as_mut_slice()[..desc.elems()];
        threads.split_both(y, x[0].as_slice(), UNIT, |y, x| (loops.forward)(y, x, loops.a));
        if moves_zero {
            clear_padding(threads, &desc, y);
        }
        Ok(())
    };
    elementwise(desc, keeps, None, forward, move |_, g: Gradients<'_, Cpu>| {
        let dy = &mut g.dy.as_mut_slice()[..desc.elems()];
        let slope_input = match loops.slope_input {
            SlopeInput::X => g.x[0].as_slice(),
            SlopeInput::Y => g.y.as_slice(),
            SlopeInput::Nothing if loops.a == 1.0 => return Ok(()),
            SlopeInput::Nothing => {
                threads.split(dy, UNIT, |_, dy| dy.iter_mut().for_each(|d| *d *= loops.a));
                return Ok(());
            }
        };
        threads.split_both(dy, slope_input, UNIT, |dy, slope_input| (loops.backward)(dy, slope_input, loops.a));
        Ok(())
    })
}
