//! The shortcut without parameters.

use crate::net_toml::keys::Keys;
use crate::{Op, Shortcut};
use super::family::Family;

pub(super) const FAMILY: Family = Family {
    words: &["shortcut"],
    plain: |_| Shortcut { out_channels: 0, stride: 1 }.into(),
    keys,
    cure: "it takes as many channels as come in, or more",
};

fn keys(op: &mut Op, keys: &mut Keys<'_>) {
    let Op::Shortcut(Shortcut { out_channels, stride }) = op else { return };
    keys.needed("channels", out_channels);
    keys.key("stride", stride);
}
