//! Layer normalisation over channels.

use super::family::Family;
use crate::models::net::keys::Keys;
use crate::nn::spec::{LayerNorm, Op};

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
