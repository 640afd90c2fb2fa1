//! Convolutions: Winograd's where it is faster, else oneDNN's, of merged groups where it has no fast one of small groups.

use super::device::Cpu;
use super::format::Format;
use super::{affine, merged, winograd};
use crate::backend::op::Conv;
use crate::backend::{Error, PlanRequest, Planned};

/// Plans the op.
pub(super) fn plan(cpu: &Cpu, op: &Conv, r: &PlanRequest<'_, Cpu>) -> Result<Box<dyn Planned<Cpu>>, Error> {
    if let Some(plan) = winograd::plan(cpu, r, op) {
        return plan;
    }
    let direct = affine::Plan::conv(cpu, r, op)?;
    // a smaller batch is computed as the largest is, whose weights lie in plain order where groups are merged
    let may_merge = match r.formats.and_then(|formats| formats.first()) {
        Some(format) => matches!(format, Format::Plain(_)),
        None => direct.is_slow(),
    };
    let by_merging = if op.groups > 1 && may_merge { merged::plan(cpu, r, op)? } else { None };
    Ok(by_merging.unwrap_or_else(|| Box::new(direct)))
}
