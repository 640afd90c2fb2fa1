//! Blurred down-sampling.

use crate::net_toml::keys::Keys;
use crate::{BlurPool, Op};
use super::family::Family;

pub(super) const FAMILY: Family =
    Family { words: &["blur_pool"], plain: |_| BlurPool::new().into(), keys, cure: "try a smaller size" };

/// Largest filter.
const LARGEST: usize = 63;

fn keys(op: &mut Op, keys: &mut Keys<'_>) {
    let Op::BlurPool(BlurPool { size, stride }) = op else { return };
    keys.key("size", size);
    keys.key("stride", stride);
    keys.refuse("size", *size > LARGEST, "must be 63 at most");
    keys.refuse("stride", *stride > LARGEST, "must be 63 at most");
}
