//! Each op as PyTorch's code. An op without a line here is refused by name.

use net::{Activation, BlurPool, Conv, GroupNorm, LayerNorm, Linear, Lrn, Norm, Op, Pool, PoolKind, Shape, Shortcut};

use super::super::network::{Layer, Padded, Turn, Windows, windows};

/// A layer in Python.
pub(super) struct Code {
    /// Its module, of a layer with weights.
    pub module: Option<String>,
    /// A parameter of its own, which has no module.
    pub parameter: Option<String>,
    /// Its output, in terms of the variables of its inputs.
    pub value: String,
}

/// A variable in the form that a layer reads, or that the network ends in.
pub(super) fn turned(turn: Option<Turn>, variable: String) -> String {
    match turn {
        None => variable,
        Some(Turn::Flatten) => format!("torch.flatten({variable}, 1)"),
        Some(Turn::Image) => format!("{variable}[:, :, None, None]"),
    }
}

/// The code of a layer whose module is at `path`, with its inputs in the variables `v`.
///
/// # Errors
/// Why PyTorch has no form for it.
pub(super) fn code(layer: &Layer<'_>, path: &str, v: &[String]) -> Result<Code, String> {
    let plain = |value: String| Ok(Code { module: None, parameter: None, value });
    let (x, a) = (&layer.x, &v[0]);
    match &layer.node.op {
        Op::Conv(conv) => Ok(convolution(conv, path, x[0], a)),
        Op::Linear(linear) => Ok(full(linear, path, layer, a)),
        Op::Norm(norm) => Ok(normalization(norm, path, layer, v)),
        Op::Pool(pool) => plain(pooling(pool, x[0], layer.y, a)?),
        Op::Lrn(Lrn { radius, k, alpha, beta }) => {
            let size = 2 * radius + 1;
            let alpha = f64::from(*alpha) * size as f64;
            plain(format!("F.local_response_norm({a}, {size}, alpha={alpha}, beta={beta}, k={k})"))
        }
        Op::Activation(activation) => plain(function(*activation, a)),
        Op::Concat(_) => plain(format!("torch.cat(({}), 1)", v.join(", ") + if v.len() == 1 { "," } else { "" })),
        Op::Multiply(_) => plain(format!("{a} * {}", v[1])),
        Op::LayerNorm(norm) => Ok(layer_normalization(norm, path, layer, a)),
        Op::GroupNorm(GroupNorm { groups, eps }) => {
            let module = format!("nn.GroupNorm({groups}, {}, eps={eps})", x[0].c);
            Ok(Code { module: Some(module), parameter: None, value: format!("{path}({a})") })
        }
        Op::LayerScale(_) => {
            let parameter = format!("nn.Parameter(torch.ones({}, 1, 1))", x[0].c);
            let own = format!("{path}.layer_scale");
            let own = if layer.flat { format!("torch.flatten({own})") } else { own };
            Ok(Code { module: None, parameter: Some(parameter), value: format!("{a} * {own}") })
        }
        Op::DropPath(path) => {
            let ones = if layer.flat { "1" } else { "1, 1, 1" };
            plain(format!("{a} * F.dropout({a}.new_ones(len({a}), {ones}), {}, self.training)", path.0))
        }
        Op::BlurPool(blur) => plain(blurred(blur, x[0], a)),
        Op::Dropout(dropout) => plain(format!("F.dropout({a}, {}, self.training)", dropout.0)),
        Op::Add(_) => plain(format!("{a} + {}", v[1])),
        Op::Flatten(_) => plain(format!("torch.flatten({a}, 1)")),
        Op::Shortcut(shortcut) => plain(strided(shortcut, x[0], a)),
        #[allow(unreachable_patterns)]
        _ => Err("its kind of layer has no line in crates/formats/src/interop/export/torch/ops.rs".into()),
    }
}

fn function(activation: Activation, a: &str) -> String {
    match activation {
        Activation::Identity => a.to_string(),
        Activation::Relu => format!("F.relu({a})"),
        Activation::Relu6 => format!("F.relu6({a})"),
        Activation::LeakyRelu(slope) => format!("F.leaky_relu({a}, {slope})"),
        Activation::Tanh => format!("torch.tanh({a})"),
        Activation::Sigmoid => format!("torch.sigmoid({a})"),
        Activation::HardSigmoid => format!("F.hardsigmoid({a})"),
        Activation::HardSwish => format!("F.hardswish({a})"),
        Activation::Silu => format!("F.silu({a})"),
        Activation::Gelu => format!("F.gelu({a})"),
        Activation::Scale(factor) => format!("{factor} * {a}"),
        Activation::GeluTanh => format!("F.gelu({a}, approximate=\"tanh\")"),
    }
}

fn layer_normalization(norm: &LayerNorm, path: &str, layer: &Layer<'_>, a: &str) -> Code {
    let module = format!("nn.LayerNorm({}, eps={})", layer.x[0].c, norm.eps);
    let value = match layer.flat {
        true => format!("{path}({a})"),
        false => over_channels(path, a),
    };
    Code { module: Some(module), parameter: None, value }
}

/// A module whose features are the last dimension, of images.
fn over_channels(path: &str, a: &str) -> String {
    format!("{path}({a}.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)")
}

/// A convolution of each channel with the outer product of the weights.
fn blurred(blur: &BlurPool, x: Shape, a: &str) -> String {
    let pad = (blur.stride + blur.size).saturating_sub(2) / 2;
    let weights: Vec<String> = blur.weights().iter().map(|weight| format!("{weight:?}")).collect();
    let row = format!("{a}.new_tensor([{}])", weights.join(", "));
    let (c, k) = (x.c, blur.size);
    format!(
        "F.conv2d(F.pad({a}, ({pad},) * 4, mode=\"reflect\"), torch.outer({row}, {row}).expand({c}, 1, {k}, {k}), stride={}, groups={c})",
        blur.stride
    )
}

fn relu(value: String, relu: bool) -> String {
    if relu { format!("F.relu({value})") } else { value }
}

/// A number that is the same in both directions, or both.
fn pair([a, b]: [usize; 2]) -> String {
    if a == b { a.to_string() } else { format!("({a}, {b})") }
}

fn convolution(conv: &Conv, path: &str, x: Shape, a: &str) -> Code {
    let Conv { out_channels, kernel, stride, pads, dilation, groups, bias, relu: after, linear, init: _, bias_init: _ } =
        conv;
    if *linear {
        let bias = if *bias { "" } else { ", bias=False" };
        let module = format!("nn.Linear({}, {out_channels}{bias})", x.c);
        return Code { module: Some(module), parameter: None, value: relu(over_channels(path, a), *after) };
    }
    let [top, left, bottom, right] = *pads;
    let even = top == bottom && left == right;
    let mut module = format!("nn.Conv2d({}, {out_channels}, {}", x.c, pair(*kernel));
    if *stride != [1, 1] {
        module += &format!(", stride={}", pair(*stride));
    }
    if even && *pads != [0; 4] {
        module += &format!(", padding={}", pair([top, left]));
    }
    if *dilation != [1, 1] {
        module += &format!(", dilation={}", pair(*dilation));
    }
    if *groups != 1 {
        module += &format!(", groups={groups}");
    }
    if !bias {
        module += ", bias=False";
    }
    let input = if even { a.to_string() } else { format!("F.pad({a}, ({left}, {right}, {top}, {bottom}))") };
    Code { module: Some(module + ")"), parameter: None, value: relu(format!("{path}({input})"), *after) }
}

fn full(linear: &Linear, path: &str, layer: &Layer<'_>, a: &str) -> Code {
    let Linear { out_features, bias, relu: after, init: _, bias_init: _ } = linear;
    let bias = if *bias { "" } else { ", bias=False" };
    let module = format!("nn.Linear({}, {out_features}{bias})", layer.x[0].elems());
    Code { module: Some(module), parameter: None, value: relu(format!("{path}({a})"), *after) }
}

fn normalization(norm: &Norm, path: &str, layer: &Layer<'_>, v: &[String]) -> Code {
    let Norm { eps, momentum, residual, relu: after, scale: _, gamma: _ } = norm;
    let kind = if layer.flat { "1d" } else { "2d" };
    let module = format!("nn.BatchNorm{kind}({}, eps={eps}, momentum={momentum})", layer.x[0].c);
    let value = format!("{path}({})", v[0]);
    let value = if *residual { format!("{value} + {}", v[1]) } else { value };
    Code { module: Some(module), parameter: None, value: relu(value, *after) }
}

fn pooling(pool: &Pool, x: Shape, y: Shape, a: &str) -> Result<String, String> {
    let max = pool.kind == PoolKind::Max;
    let Padded { window, stride, pads } = match windows(pool, x, y)? {
        Windows::All if max => return Ok(format!("F.adaptive_max_pool2d({a}, 1)")),
        Windows::All => return Ok(format!("F.adaptive_avg_pool2d({a}, 1)")),
        Windows::Bins(bins) if max => return Ok(format!("F.adaptive_max_pool2d({a}, {})", pair(bins))),
        Windows::Bins(bins) => return Ok(format!("F.adaptive_avg_pool2d({a}, {})", pair(bins))),
        Windows::Equal(padded) => padded,
    };
    let padded = Padded { window, stride, pads };
    let [top, left, bottom, right] = pads;
    let sizes = format!("{}, {}", pair(window), pair(stride));
    let name = if max { "max_pool2d" } else { "avg_pool2d" };
    if padded.is_bare() {
        return Ok(format!("F.{name}({a}, {sizes})"));
    }
    let around = format!("({left}, {right}, {top}, {bottom})");
    Ok(match pool.kind {
        PoolKind::Max if padded.is_even() => format!("F.max_pool2d({a}, {sizes}, {})", pair([top, left])),
        PoolKind::Max => format!("F.max_pool2d(F.pad({a}, {around}, value=float(\"-inf\")), {sizes})"),
        PoolKind::AvgCountPad => format!("F.avg_pool2d(F.pad({a}, {around}), {sizes})"),
        PoolKind::Avg if padded.is_even() => {
            format!("F.avg_pool2d({a}, {sizes}, {}, count_include_pad=False)", pair([top, left]))
        }
        // the mean over the cells inside: the sum over their share of the window
        PoolKind::Avg => {
            let of = |value: &str| format!("F.avg_pool2d(F.pad({value}, {around}), {sizes})");
            format!("{} / {}", of(a), of(&format!("torch.ones_like({a})")))
        }
    })
}

fn strided(shortcut: &Shortcut, x: Shape, a: &str) -> String {
    let (before, stride) = (shortcut.before(x), shortcut.stride);
    let after = shortcut.out_channels - x.c - before;
    format!("F.pad({a}[:, :, ::{stride}, ::{stride}], (0, 0, 0, 0, {before}, {after}))")
}
