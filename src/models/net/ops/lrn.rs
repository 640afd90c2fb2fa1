//! Local response normalisation.

use super::family::Family;
use crate::models::net::keys::Keys;
use crate::nn::spec::{Lrn, Op};

pub(super) const FAMILY: Family = Family {
    words: &["lrn"],
    plain: |_| Lrn { radius: 0, k: 1.0, alpha: 0.0, beta: 0.0 }.into(),
    keys,
    cure: "it takes one image",
};

fn keys(op: &mut Op, keys: &mut Keys<'_>) {
    let Op::Lrn(Lrn { radius, k, alpha, beta }) = op else { return };
    keys.needed("radius", radius);
    keys.needed("k", k);
    keys.needed("alpha", alpha);
    keys.needed("beta", beta);
}
