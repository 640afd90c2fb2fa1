//! A learned factor for each channel.

use crate::net_toml::keys::Keys;
use crate::{LayerScale, Op};
use super::family::Family;

pub(super) const FAMILY: Family = Family {
    words: &["layer_scale"],
    plain: |_| LayerScale(1.0).into(),
    keys,
    cure: "it takes one input of any shape",
};

fn keys(op: &mut Op, keys: &mut Keys<'_>) {
    let Op::LayerScale(LayerScale(start)) = op else { return };
    keys.needed("start", start);
}
