//! Batch normalisation.

use crate::net_toml::keys::Keys;
use crate::{Norm, Op};
use super::family::Family;

pub(super) const FAMILY: Family = Family {
    words: &["norm"],
    plain: |_| Norm::new().into(),
    keys,
    cure: "with residual = true it takes inputs = [\"what is normalised\", \"what is added\"], both of one shape: where the branch changes \
           channels or stride, so must the other, by a conv of kernel 1 or a shortcut",
};

fn keys(op: &mut Op, keys: &mut Keys<'_>) {
    let Op::Norm(Norm { eps, momentum, residual, relu, scale, gamma }) = op else { return };
    keys.positive("eps", eps);
    keys.key("momentum", momentum);
    keys.refuse(
        "momentum",
        !(0.0..=1.0).contains(&*momentum),
        "must be in [0, 1]: it is the weight of the new statistics",
    );
    keys.key("residual", residual);
    keys.key("relu", relu);
    keys.key("scale", scale);
    keys.key("gamma", gamma);
}
