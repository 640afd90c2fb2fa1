//! Pooling: over windows, over so many stretches, or over the whole plane.

use crate::net_toml::keys::Keys;
use crate::{Op, Pool, PoolKind, Shape, same_pads};
use super::family::Family;

pub(super) const FAMILY: Family = Family {
    words: &["maxpool", "avgpool"],
    plain: |word| {
        let kind = if word == "maxpool" { PoolKind::Max } else { PoolKind::Avg };
        Pool { kind, ..Pool::global() }.into()
    },
    keys,
    cure: "try a smaller window, more pad, or leave window out for the whole plane",
};

fn keys(op: &mut Op, keys: &mut Keys<'_>) {
    let Op::Pool(Pool { kind, window, stride, pads, ceil, bins }) = op else { return };
    keys.key("window", window);
    keys.key("bins", bins);
    keys.refuse(
        "bins",
        window.is_some() && bins.is_some(),
        "and window exclude each other: bins are as many windows, of any size",
    );
    if window.is_some() {
        keys.needed("stride", stride);
    }
    let (input, span, step) = (keys.input(), window.unwrap_or([1, 1]), *stride);
    keys.pads(pads, || same(input, span, step));
    keys.key("ceil", ceil);
    let bare = window.is_none();
    keys.refuse("pad", bare && *pads != [0; 4], "needs a window");
    keys.refuse("ceil", bare && *ceil, "needs a window");
    if *kind != PoolKind::Max {
        let mut counts = *kind == PoolKind::AvgCountPad;
        keys.key("count_pad", &mut counts);
        *kind = if counts { PoolKind::AvgCountPad } else { PoolKind::Avg };
    }
}

/// TensorFlow's padding.
fn same(x: Shape, [down, across]: [usize; 2], stride: [usize; 2]) -> [usize; 4] {
    let ((top, bottom), (left, right)) = (same_pads(x.h, down, stride[0]), same_pads(x.w, across, stride[1]));
    [top, left, bottom, right]
}
