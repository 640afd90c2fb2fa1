//! From an image to a vector: a copy.

use net::{Activation, Flatten};

use super::activation;
use super::device::Reference;
use crate::{Error, PlanRequest, Planned};

/// Plans the op.
pub(super) fn plan(_: &Flatten, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    activation::plan(&Activation::Identity, r)
}
