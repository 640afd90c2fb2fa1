//! Fully connected layers.

use crate::net_toml::keys::Keys;
use crate::{Linear, Op};
use super::family::Family;

pub(super) const FAMILY: Family = Family {
    words: &["linear"],
    plain: |_| Linear::new(0).into(),
    keys,
    cure: "an avgpool before makes its input smaller",
};

fn keys(op: &mut Op, keys: &mut Keys<'_>) {
    let Op::Linear(Linear { out_features, bias, relu, init, bias_init }) = op else { return };
    keys.needed("features", out_features);
    keys.key("bias", bias);
    keys.key("relu", relu);
    keys.key("init", init);
    keys.key("bias_init", bias_init);
}
