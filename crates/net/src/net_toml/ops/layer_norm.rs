//! Layer normalisation over channels.

use crate::net_toml::keys::Keys;
use crate::{LayerNorm, Op};
use super::family::Family;

pub(super) const FAMILY: Family = Family {
    words: &["layer_norm"],
    plain: |_| LayerNorm::new().into(),
    keys,
    cure: "it takes one input of any shape",
};

fn keys(op: &mut Op, keys: &mut Keys<'_>) {
    let Op::LayerNorm(LayerNorm { eps }) = op else { return };
    keys.positive("eps", eps);
}
