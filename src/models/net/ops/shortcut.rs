//! The shortcut without parameters.

use super::family::Family;
use crate::models::net::keys::Keys;
use crate::nn::spec::{Op, Shortcut};

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
