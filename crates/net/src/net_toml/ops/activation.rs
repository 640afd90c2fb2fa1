//! Functions of one element.

use crate::net_toml::keys::Keys;
use crate::{Activation, Op, OpSpec};
use super::family::Family;

pub(super) const FAMILY: Family = Family {
    words: &[
        "relu",
        "relu6",
        "leaky_relu",
        "sigmoid",
        "hard_sigmoid",
        "hard_swish",
        "silu",
        "gelu",
        "gelu_tanh",
        "tanh",
        "scale",
        "identity",
    ],
    plain,
    keys,
    cure: "it takes one input of any shape",
};

fn plain(word: &str) -> Op {
    let named = Activation::ALL.into_iter().find(|activation| activation.kind() == word);
    match named.unwrap_or(Activation::Identity) {
        Activation::Scale(_) => Activation::Scale(1.0).into(),
        activation => activation.into(),
    }
}

fn keys(op: &mut Op, keys: &mut Keys<'_>) {
    match op {
        Op::Activation(Activation::LeakyRelu(slope)) => keys.key("slope", slope),
        Op::Activation(Activation::Scale(factor)) => keys.needed("factor", factor),
        _ => {}
    }
}
