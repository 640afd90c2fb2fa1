//! Normalisation over groups of channels.

use crate::net_toml::keys::Keys;
use crate::{GroupNorm, Op};
use super::family::Family;

pub(super) const FAMILY: Family = Family {
    words: &["group_norm"],
    plain: |_| GroupNorm::new(0).into(),
    keys,
    cure: "groups must divide the channels that come in",
};

fn keys(op: &mut Op, keys: &mut Keys<'_>) {
    let Op::GroupNorm(GroupNorm { groups, eps }) = op else { return };
    keys.needed("groups", groups);
    keys.positive("eps", eps);
}
