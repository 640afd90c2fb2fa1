//! The parameter-free shortcut of a residual block: every stride-th pixel, with zero channels before and after.

use net::Shortcut;

use super::copies;
use super::device::Reference;
use crate::{Error, PlanRequest, Planned};

pub(super) fn plan(op: &Shortcut, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    let (x, y, stride) = (r.x[0].shape, r.output()?, op.stride);
    let before = op.before(x);
    let pixel = move |c: usize, p: usize| {
        let (h, w) = (p / y.w * stride, p % y.w * stride);
        [(c * x.h + h) * x.w + w, (c + before) * y.plane() + p]
    };
    copies::plan(r, (0..x.c).flat_map(move |c| (0..y.plane()).map(move |p| pixel(c, p))))
}
