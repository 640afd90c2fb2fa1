//! From an image to a vector.

use crate::Flatten;
use super::family::Family;

pub(super) const FAMILY: Family =
    Family { words: &["flatten"], plain: |_| Flatten.into(), keys: |_, _| {}, cure: "it takes one input of any shape" };
