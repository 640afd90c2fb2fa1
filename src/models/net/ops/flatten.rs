//! From an image to a vector.

use super::family::Family;
use crate::nn::spec::Flatten;

pub(super) const FAMILY: Family =
    Family { words: &["flatten"], plain: |_| Flatten.into(), keys: |_, _| {}, cure: "it takes one input of any shape" };
