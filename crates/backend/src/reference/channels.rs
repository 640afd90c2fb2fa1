//! Channel ranges and the channel shuffle.

use net::Channels;

use super::copies;
use super::device::Reference;
use crate::{Error, PlanRequest, Planned};

pub(super) fn plan(op: &Channels, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    let (op, plane) = (*op, r.x[0].shape.plane());
    let channels = 0..r.output()?.c;
    copies::plan(r, channels.flat_map(move |c| (0..plane).map(move |p| [op.source(c) * plane + p, c * plane + p])))
}
