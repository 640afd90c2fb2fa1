//! Local response normalisation.

use crate::net_toml::keys::Keys;
use crate::{Lrn, Op};
use super::family::Family;

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
