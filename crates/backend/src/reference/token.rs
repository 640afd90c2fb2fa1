//! Selects a single token from a sequence.

use net::Token;

use super::copies;
use super::device::Reference;
use crate::{Error, PlanRequest, Planned};

pub(super) fn plan(op: &Token, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    let (token, x) = (op.0, r.x[0].shape);
    copies::plan(r, (0..x.c).map(move |c| [c * x.plane() + token, c]))
}
