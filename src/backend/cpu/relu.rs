//! ReLU.

use super::activation;
use super::device::Cpu;
use super::flat::mask_run;
use crate::backend::op::Relu;
use crate::backend::{Error, PlanRequest, Planned};
use crate::simd::simd;

simd! {
    fn relu_run(y: &mut [f32], x: &[f32]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = if *x > 0.0 || x.is_nan() { *x } else { 0.0 };
        }
    }
}

/// Plans the op.
pub(super) fn plan(cpu: &Cpu, _: &Relu, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    activation::plan(cpu, relu_run, |dy, _, y| mask_run(dy, y), r)
}
