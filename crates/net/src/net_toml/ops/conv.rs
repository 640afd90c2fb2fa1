//! Convolutions.

use crate::net_toml::keys::Keys;
use crate::{Conv, Op};
use super::family::Family;

pub(super) const FAMILY: Family = Family {
    words: &["conv"],
    plain: |_| Conv::new(0, 1).into(),
    keys,
    cure: "try a smaller kernel or dilation, more pad, or a smaller stride before; groups must divide the channels that come in and out",
};

fn keys(op: &mut Op, keys: &mut Keys<'_>) {
    let Op::Conv(conv) = op else { return };
    keys.needed("channels", &mut conv.out_channels);
    keys.needed("kernel", &mut conv.kernel);
    keys.key("stride", &mut conv.stride);
    keys.key("dilation", &mut conv.dilation);
    let same = conv.clone();
    let input = keys.input();
    let Conv { out_channels: _, kernel: _, stride: _, dilation: _, pads, groups, bias, relu, linear, init, bias_init } =
        conv;
    keys.pads(pads, || same.same(input).pads);
    keys.key("groups", groups);
    keys.key("bias", bias);
    keys.key("relu", relu);
    keys.key("linear", linear);
    keys.key("init", init);
    keys.key("bias_init", bias_init);
}
