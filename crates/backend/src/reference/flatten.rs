//! Flattens an image to a vector, as a copy.

use net::{Activation, Flatten};

use super::activation;
use super::device::Reference;
use crate::{Error, PlanRequest, Planned};

pub(super) fn plan(_: &Flatten, r: &PlanRequest<'_, Reference>) -> Result<Box<dyn Planned<Reference>>, Error> {
    activation::plan(&Activation::Identity, r)
}
