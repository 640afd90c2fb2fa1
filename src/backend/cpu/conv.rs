//! Convolutions: Winograd's where it is faster, else oneDNN's, with weights spread among zeros where it has no fast one for them as they
//! are.

use super::device::Cpu;
use super::format::Format;
use super::{affine, spread, winograd};
use crate::backend::op::Conv;
use crate::backend::{Error, PlanRequest, Planned};

/// Plans the op.
pub(super) fn plan(cpu: &Cpu, op: &Conv, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    if let Some(plan) = winograd::plan(cpu, r, op) {
        return plan;
    }
    let direct = affine::Plan::conv(cpu, r, op)?;
    // a smaller batch is computed as the largest is, whose weights lie in plain order where they are spread
    let may_spread = match r.formats.and_then(|formats| formats.first()) {
        Some(format) => matches!(format, Format::Plain(_)),
        None => direct.is_slow() && (op.groups > 1 || op.dilation != [1, 1]),
    };
    let spread = if may_spread { spread::plan(cpu, r, op)? } else { None };
    Ok(spread.unwrap_or_else(|| Box::new(direct)))
}
