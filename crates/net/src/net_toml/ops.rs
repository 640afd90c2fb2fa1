//! The name of each operation in a `net.toml`, and the keys of its nodes. Operations with the same keys form a
//! [`Family`]. Reading and writing use the same descriptions.

use super::keys::Keys;
use crate::{
    Activation, Add, BlurPool, Concat, Conv, DropPath, Dropout, Flatten, GroupNorm, LayerNorm, LayerScale, Linear, Lrn,
    Multiply, Norm, Op, OpSpec, Pool, PoolKind, Shape, Shortcut, same_pads,
};

/// Operations that have the same keys.
pub(super) struct Family {
    /// The values of `op` in a file, see [`OpSpec::kind`](crate::OpSpec::kind). `trireme models NAME` prints them.
    pub words: &'static [&'static str],
    /// Returns the operation with this name and default values.
    pub plain: fn(&str) -> Op,
    /// Connects the keys with the operation's fields.
    pub keys: fn(&mut Op, &mut Keys<'_>),
    /// Advice for a node that does not fit its inputs.
    pub cure: &'static str,
}

pub(super) const FAMILIES: &[Family] = &[
    ACTIVATION,
    BLUR,
    CONV,
    DROP,
    FLATTEN,
    GROUP_NORM,
    JOIN,
    LAYER_NORM,
    LAYER_SCALE,
    LINEAR,
    LRN,
    NORM,
    POOL,
    SHORTCUT,
];

pub(super) fn family(word: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.words.contains(&word))
}

pub(super) fn words() -> Vec<&'static str> {
    FAMILIES.iter().flat_map(|family| family.words).copied().collect()
}

const ACTIVATION: Family = Family {
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
    keys: activation_keys,
    cure: "it takes one input of any shape",
};

fn plain(word: &str) -> Op {
    let named = Activation::ALL.into_iter().find(|activation| activation.kind() == word);
    match named.unwrap_or(Activation::Identity) {
        Activation::Scale(_) => Activation::Scale(1.0).into(),
        activation => activation.into(),
    }
}

fn activation_keys(op: &mut Op, keys: &mut Keys<'_>) {
    match op {
        Op::Activation(Activation::LeakyRelu(slope)) => keys.key("slope", slope),
        Op::Activation(Activation::Scale(factor)) => keys.needed("factor", factor),
        _ => {}
    }
}

const BLUR: Family =
    Family { words: &["blur_pool"], plain: |_| BlurPool::new().into(), keys: blur_keys, cure: "try a smaller size" };

/// Maximum size and stride of the filter.
const LARGEST: usize = 63;

fn blur_keys(op: &mut Op, keys: &mut Keys<'_>) {
    let Op::BlurPool(BlurPool { size, stride }) = op else { return };
    keys.key("size", size);
    keys.key("stride", stride);
    keys.refuse("size", *size > LARGEST, "must be at most 63");
    keys.refuse("stride", *stride > LARGEST, "must be at most 63");
}

const CONV: Family = Family {
    words: &["conv"],
    plain: |_| Conv::new(0, 1).into(),
    keys: conv_keys,
    cure: "try a smaller kernel or dilation, a larger pad, or a smaller stride before it; groups must divide the \
           input and output channels",
};

fn conv_keys(op: &mut Op, keys: &mut Keys<'_>) {
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

const DROP: Family = Family {
    words: &["dropout", "drop_path"],
    plain: |word| if word == "dropout" { Dropout(0.0).into() } else { DropPath(0.0).into() },
    keys: drop_keys,
    cure: "it takes one input of any shape",
};

fn drop_keys(op: &mut Op, keys: &mut Keys<'_>) {
    if let Op::Dropout(Dropout(rate)) | Op::DropPath(DropPath(rate)) = op {
        keys.rate("rate", rate);
    }
}

const FLATTEN: Family =
    Family { words: &["flatten"], plain: |_| Flatten.into(), keys: |_, _| {}, cure: "it takes one input of any shape" };

const GROUP_NORM: Family = Family {
    words: &["group_norm"],
    plain: |_| GroupNorm::new(0).into(),
    keys: group_norm_keys,
    cure: "groups must divide the input channels",
};

fn group_norm_keys(op: &mut Op, keys: &mut Keys<'_>) {
    let Op::GroupNorm(GroupNorm { groups, eps }) = op else { return };
    keys.needed("groups", groups);
    keys.positive("eps", eps);
}

const JOIN: Family = Family {
    words: &["add", "concat", "multiply"],
    plain: |word| match word {
        "add" => Add.into(),
        "concat" => Concat.into(),
        _ => Multiply.into(),
    },
    keys: |_, _| {},
    cure: "write inputs = [\"one\", \"other\"]; if their shapes differ, add a shortcut or a conv with kernel = 1 \
           and the other's channels and stride",
};

const LAYER_NORM: Family = Family {
    words: &["layer_norm"],
    plain: |_| LayerNorm::new().into(),
    keys: layer_norm_keys,
    cure: "it takes one input of any shape",
};

fn layer_norm_keys(op: &mut Op, keys: &mut Keys<'_>) {
    let Op::LayerNorm(LayerNorm { eps }) = op else { return };
    keys.positive("eps", eps);
}

const LAYER_SCALE: Family = Family {
    words: &["layer_scale"],
    plain: |_| LayerScale(1.0).into(),
    keys: layer_scale_keys,
    cure: "it takes one input of any shape",
};

fn layer_scale_keys(op: &mut Op, keys: &mut Keys<'_>) {
    let Op::LayerScale(LayerScale(start)) = op else { return };
    keys.needed("start", start);
}

const LINEAR: Family = Family {
    words: &["linear"],
    plain: |_| Linear::new(0).into(),
    keys: linear_keys,
    cure: "an avgpool before it makes its input smaller",
};

fn linear_keys(op: &mut Op, keys: &mut Keys<'_>) {
    let Op::Linear(Linear { out_features, bias, relu, init, bias_init }) = op else { return };
    keys.needed("features", out_features);
    keys.key("bias", bias);
    keys.key("relu", relu);
    keys.key("init", init);
    keys.key("bias_init", bias_init);
}

const LRN: Family = Family {
    words: &["lrn"],
    plain: |_| Lrn { radius: 0, k: 1.0, alpha: 0.0, beta: 0.0 }.into(),
    keys: lrn_keys,
    cure: "it takes one image",
};

fn lrn_keys(op: &mut Op, keys: &mut Keys<'_>) {
    let Op::Lrn(Lrn { radius, k, alpha, beta }) = op else { return };
    keys.needed("radius", radius);
    keys.needed("k", k);
    keys.needed("alpha", alpha);
    keys.needed("beta", beta);
}

const NORM: Family = Family {
    words: &["norm"],
    plain: |_| Norm::new().into(),
    keys: norm_keys,
    cure: "with residual = true it needs inputs = [\"normalised\", \"added\"] with the same shape; if the branch \
           changes channels or stride, add a shortcut or a conv with kernel = 1 to the other input",
};

fn norm_keys(op: &mut Op, keys: &mut Keys<'_>) {
    let Op::Norm(Norm { eps, momentum, residual, relu, scale, gamma }) = op else { return };
    keys.positive("eps", eps);
    keys.key("momentum", momentum);
    keys.refuse(
        "momentum",
        !(0.0..=1.0).contains(&*momentum),
        "is the weight of the new statistics and must be in [0, 1]",
    );
    keys.key("residual", residual);
    keys.key("relu", relu);
    keys.key("scale", scale);
    keys.key("gamma", gamma);
}

const POOL: Family = Family {
    words: &["maxpool", "avgpool"],
    plain: |word| {
        let kind = if word == "maxpool" { PoolKind::Max } else { PoolKind::Avg };
        Pool { kind, ..Pool::global() }.into()
    },
    keys: pool_keys,
    cure: "try a smaller window or a larger pad, or remove window to pool the whole plane",
};

fn pool_keys(op: &mut Op, keys: &mut Keys<'_>) {
    let Op::Pool(Pool { kind, window, stride, pads, ceil, bins }) = op else { return };
    keys.key("window", window);
    keys.key("bins", bins);
    keys.refuse(
        "bins",
        window.is_some() && bins.is_some(),
        "cannot be combined with window: bins sets the number of windows, and their size follows from it",
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

/// Returns TensorFlow's SAME padding.
fn same(x: Shape, [down, across]: [usize; 2], stride: [usize; 2]) -> [usize; 4] {
    let ((top, bottom), (left, right)) = (same_pads(x.h, down, stride[0]), same_pads(x.w, across, stride[1]));
    [top, left, bottom, right]
}

const SHORTCUT: Family = Family {
    words: &["shortcut"],
    plain: |_| Shortcut { out_channels: 0, stride: 1 }.into(),
    keys: shortcut_keys,
    cure: "channels must be at least the number of input channels",
};

fn shortcut_keys(op: &mut Op, keys: &mut Keys<'_>) {
    let Op::Shortcut(Shortcut { out_channels, stride }) = op else { return };
    keys.needed("channels", out_channels);
    keys.key("stride", stride);
}
