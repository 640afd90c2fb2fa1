//! Dropout, of values and of whole samples.

use crate::net_toml::keys::Keys;
use crate::{DropPath, Dropout, Op};
use super::family::Family;

pub(super) const FAMILY: Family = Family {
    words: &["dropout", "drop_path"],
    plain: |word| if word == "dropout" { Dropout(0.0).into() } else { DropPath(0.0).into() },
    keys,
    cure: "it takes one input of any shape",
};

fn keys(op: &mut Op, keys: &mut Keys<'_>) {
    if let Op::Dropout(Dropout(rate)) | Op::DropPath(DropPath(rate)) = op {
        keys.rate("rate", rate);
    }
}
