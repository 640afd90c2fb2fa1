//! Neighbouring pixels as channels.

use net::{PixelChannel, SpaceToDepth};

use super::copies;
use super::device::Reference;
use crate::{Error, PlanRequest, Planned};

pub(super) fn plan(op: &SpaceToDepth, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    let (op, x, y) = (*op, r.x[0].shape, r.output()?);
    let copied = move |i: usize| {
        let to = PixelChannel { channel: i / y.plane(), position: i % y.plane() };
        op.source(x, to).map(|from| [from.channel * x.plane() + from.position, i])
    };
    copies::plan(r, (0..y.elems()).filter_map(copied))
}
