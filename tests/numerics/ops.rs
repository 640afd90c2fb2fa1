//! Every recorded operation of `golden/ops.json`, on every backend and in every layout that the backend supports.

use std::collections::BTreeMap;

use backend::{Backend, CrossEntropy, Error, LossSums, TensorDesc};
use net::{
    Activation, Add, Attention, BlurPool, Concat, Conv, GroupNorm, LayerNorm, LayerScale, Linear, Lrn, Multiply, Norm,
    Op, Pool, PoolKind, PositionBias, Shape, Shortcut, SpaceToDepth,
};
use serde::Deserialize;

use support::numerics::{Case, Example, Formula, Outcome, assert_close, blend, golden, magnitude, on_every_backend};

#[derive(Deserialize)]
struct File {
    fill_example: Example,
    cases: Vec<Golden>,
}

#[derive(Deserialize)]
struct Golden {
    name: String,
    op: String,
    config: Config,
    x: Formula,
    residual: Option<Formula>,
    third: Option<Formula>,
    #[serde(default)]
    params: BTreeMap<String, Formula>,
    buffers: Option<Buffers>,
    dy: Option<Formula>,
    y: Vec<f64>,
    dx: Option<Vec<f64>>,
    dresidual: Option<Vec<f64>>,
    dthird: Option<Vec<f64>>,
    #[serde(default)]
    dparams: BTreeMap<String, Vec<f64>>,
    running_mean_after: Option<Vec<f64>>,
    running_var_after: Option<Vec<f64>>,
    float32_error: BTreeMap<String, f64>,
}

/// The names of all parameters, in PyTorch's order.
const PARAMETERS: &[&str] = &[
    "weight",
    "bias",
    "relative_position_bias_table",
    "logit_scale",
    "cpb_mlp.0.weight",
    "cpb_mlp.0.bias",
    "cpb_mlp.2.weight",
];

#[derive(Deserialize)]
struct Buffers {
    running_mean: Formula,
    running_var: Formula,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Config {
    kernel: [usize; 2],
    stride: serde_json::Value,
    pad: Pad,
    groups: usize,
    bn_groups: Option<usize>,
    bias: bool,
    relu: bool,
    residual: bool,
    mode: String,
    eps: f32,
    momentum: f32,
    ceil: bool,
    count_include_pad: bool,
    size: usize,
    alpha: f64,
    beta: f32,
    k: f32,
    channels_before: usize,
    channels_after: usize,
    slope: f32,
    dilation: Option<[usize; 2]>,
    heads: usize,
    window: Option<[usize; 2]>,
    shift: [usize; 2],
    grid: bool,
    crop: [usize; 2],
    scale: Option<f32>,
    cosine: bool,
    /// Hidden units of a continuous position bias. 0 stands for a table, `None` for no bias.
    hidden: Option<usize>,
    labels: Vec<u32>,
    label_smoothing: f32,
}

#[derive(Default, Deserialize)]
struct Pad {
    top: usize,
    bottom: usize,
    left: usize,
    right: usize,
}

impl Config {
    fn strides(&self) -> [usize; 2] {
        serde_json::from_value(self.stride.clone()).expect("[height, width]")
    }

    fn pads(&self) -> [usize; 4] {
        [self.pad.top, self.pad.left, self.pad.bottom, self.pad.right]
    }

    fn pool(&self, kind: PoolKind) -> Op {
        let (window, stride, pads) = (Some(self.kernel), self.strides(), self.pads());
        Op::Pool(Pool { kind, window, stride, pads, ceil: self.ceil, bins: None })
    }
}

impl Golden {
    /// Returns the operation. For `add_relu`, this is only the addition, because no operation fuses it with the ReLU.
    fn op(&self) -> Op {
        let c = &self.config;
        match self.op.as_str() {
            "conv" => {
                let weight = &self.params["weight"].shape;
                Op::Conv(Conv {
                    kernel: [weight[2], weight[3]],
                    stride: c.strides(),
                    pads: c.pads(),
                    dilation: c.dilation.unwrap_or([1, 1]),
                    groups: c.groups,
                    bias: c.bias,
                    relu: c.relu,
                    ..Conv::new(weight[0], 1)
                })
            }
            "linear" => {
                let linear = Linear::new(self.params["weight"].shape[0]);
                Op::Linear(Linear { bias: c.bias, relu: c.relu, ..linear })
            }
            "norm" => {
                let (eps, momentum) = (c.eps, c.momentum);
                Op::Norm(Norm { eps, momentum, residual: c.residual, relu: c.relu, ..Norm::new() })
            }
            "max_pool" => c.pool(PoolKind::Max),
            "avg_pool" if c.count_include_pad => c.pool(PoolKind::AvgCountPad),
            "avg_pool" => c.pool(PoolKind::Avg),
            "global_avg_pool" => Op::Pool(Pool::global()),
            "lrn" => {
                let alpha = (c.alpha / c.size as f64) as f32;
                Op::Lrn(Lrn { radius: c.size / 2, k: c.k, alpha, beta: c.beta })
            }
            "shortcut_a" => {
                let stride = c.stride.as_u64().expect("one number") as usize;
                let channels = self.x.shape[1] + c.channels_before + c.channels_after;
                Op::Shortcut(Shortcut { out_channels: channels, stride })
            }
            "add" => Op::from(Add),
            "concat" => Op::from(Concat),
            "multiply" => Op::from(Multiply),
            "layer_norm" => Op::from(LayerNorm { eps: c.eps }),
            "group_norm" => Op::from(GroupNorm { groups: c.groups, eps: c.eps }),
            "layer_scale" => Op::from(LayerScale(1.0)),
            "blur_pool" => Op::from(BlurPool { size: c.size, stride: c.strides()[0] }),
            "attention" => Op::from(Attention {
                window: c.window,
                shift: c.shift,
                grid: c.grid,
                crop: c.crop,
                scale: c.scale,
                cosine: c.cosine,
                position_bias: c.hidden.map(|hidden| match hidden {
                    0 => PositionBias::Table,
                    _ => PositionBias::Continuous(hidden),
                }),
                ..Attention::new(c.heads)
            }),
            "space_to_depth" => Op::from(SpaceToDepth(c.size)),
            "global_max_pool" => Op::Pool(Pool { kind: PoolKind::Max, ..Pool::global() }),
            "leaky_relu" => Op::Activation(Activation::LeakyRelu(c.slope)),
            other => {
                let function = Activation::ALL.into_iter().find(|function| Op::from(*function).kind() == other);
                Op::Activation(function.unwrap_or_else(|| panic!("{}: no operation called {other}", self.name)))
            }
        }
    }

    fn shape_of(&self, x: &Formula) -> Shape {
        match x.shape[..] {
            [_, f] => Shape::vector(f),
            [_, c, h, w] => Shape::image(c, h, w),
            _ => panic!("{}: shape {:?}", self.name, x.shape),
        }
    }

    fn shape(&self) -> Shape {
        self.shape_of(&self.x)
    }

    fn inputs(&self) -> impl Iterator<Item = &Formula> {
        [Some(&self.x), self.residual.as_ref(), self.third.as_ref()].into_iter().flatten()
    }

    fn case(&self) -> Case {
        let params = PARAMETERS.iter().filter_map(|p| self.params.get(*p)).map(Formula::fill).collect();
        let running =
            self.buffers.as_ref().map_or_else(Vec::new, |b| [b.running_mean.fill(), b.running_var.fill()].concat());
        Case {
            op: self.op(),
            n: self.x.shape[0],
            shape: self.shape(),
            others: self.inputs().skip(1).map(|x| self.shape_of(x)).collect(),
            x: self.inputs().map(Formula::fill).collect(),
            params,
            running,
            training: self.config.mode != "eval",
            dy: self.dy.as_ref().map(Formula::fill),
            first: false,
            bn_groups: self.config.bn_groups.unwrap_or(1),
            draws: (0, 0, 0, 0),
        }
    }

    /// Returns the tolerance: four times PyTorch's own float32 error, plus the effect of rounding the largest result to f32 a few times.
    fn tolerance(&self, of: &str, want: &[f64]) -> f64 {
        4.0 * self.float32_error.get(of).copied().unwrap_or(0.0) + 1e-6 * magnitude(want)
    }

    fn check(&self, backend: &str, how: &str, out: &Outcome) {
        let close = |of: &str, key: &str, got: &[f32], want: &[f64]| {
            assert_close(&format!("{} on {backend}{how}: {of}", self.name), got, want, self.tolerance(key, want));
        };
        close("y", "y", &out.y, &self.y);
        let wanted = [("dx", &self.dx), ("dresidual", &self.dresidual), ("dthird", &self.dthird)];
        for ((of, want), got) in wanted.iter().zip(&out.dx) {
            close(of, of, got, want.as_ref().expect("recorded"));
        }
        let fields = PARAMETERS.iter().filter(|field| self.params.contains_key(**field));
        for (field, got) in fields.zip(&out.dparams) {
            close(&format!("gradient of {field}"), &format!("d{field}"), got, &self.dparams[*field]);
        }
        if let (Some(mean), Some(var)) = (&self.running_mean_after, &self.running_var_after) {
            let (sums, count) = &out.statistics;
            let after = blend(&self.case().running, sums, *count as f64, f64::from(self.config.momentum));
            close("running statistics", "", &after, &[mean.as_slice(), var].concat());
        }
    }
}

fn check_all<B: Backend>(backend: &B, name: &str, blocks: &[usize], cases: &[Golden]) {
    for golden in cases {
        if golden.op == "softmax_cross_entropy" {
            check_cross_entropy(backend, name, golden);
            continue;
        }
        for &block in blocks {
            for split in [false, true] {
                let how = format!(" in blocks of {block}{}", if split { ", dy in two summands" } else { "" });
                let case = golden.case();
                let mut out = case.run(backend, block, split);
                if golden.op == "add" && golden.config.relu {
                    out = relu_after(backend, &case, out, block);
                }
                golden.check(name, &how, &out);
            }
        }
    }
}

/// Applies a ReLU to the sum and returns the outcome of both, as a graph would compute them.
fn relu_after<B: Backend>(backend: &B, case: &Case, sum: Outcome, block: usize) -> Outcome {
    let relu = Case { op: Op::Activation(Activation::Relu), x: vec![sum.y], others: Vec::new(), ..case.clone() }
        .run(backend, block, false);
    let back = Case { dy: Some(relu.dx[0].clone()), ..case.clone() }.run(backend, block, false);
    Outcome { y: relu.y, ..back }
}

/// Returns the sums of a loss, whether the device returns them at once or later.
pub fn take_loss<B: Backend>(
    backend: &B,
    desc: &TensorDesc,
    ask: CrossEntropy<'_>,
    x: &B::Buf,
    dx: Option<&mut B::Buf>,
) -> Result<LossSums, Error> {
    backend.cross_entropy(desc, ask, x, dx)?.map_or_else(|| backend.queue().expect("a queue").loss_sums(), Ok)
}

fn check_cross_entropy<B: Backend>(backend: &B, name: &str, golden: &Golden) {
    let what = format!("{} on {name}", golden.name);
    let (n, scores) = (golden.x.shape[0], golden.x.fill());
    let desc = TensorDesc::plain(n, golden.shape());
    let (labels, smoothing) = (golden.config.labels.as_slice(), golden.config.label_smoothing);
    let ask = CrossEntropy { labels, smoothing, scale: 1.0 / n as f32, weight: 1.0 };
    let mut x = backend.alloc(scores.len()).unwrap();
    let mut dx = backend.alloc(scores.len()).unwrap();
    backend.upload(&scores, &mut x).unwrap();
    let sums = take_loss(backend, &desc, ask, &x, Some(&mut dx)).unwrap_or_else(|e| panic!("{what}: {e}"));
    let tolerance = golden.tolerance("y", &golden.y);
    assert!(
        (sums.loss / n as f64 - golden.y[0]).abs() <= tolerance,
        "{what}: sum of losses {}, expected mean {:?}",
        sums.loss,
        golden.y
    );
    let want = golden.dx.as_ref().expect("recorded");
    let got = backend.download(&desc, &dx).unwrap();
    assert_close(&format!("{what}: dx"), &got, want, golden.tolerance("dx", want));
    let ahead = |row: usize| {
        let row = (&scores[row * desc.shape.c..][..desc.shape.c], labels[row] as usize);
        row.0.iter().filter(|v| **v > row.0[row.1]).count()
    };
    let hits = |k: usize| (0..n).filter(|&row| ahead(row) < k).count() as u64;
    let expected = LossSums { loss: sums.loss, top1: hits(1), top5: hits(5), count: n as u64 };
    assert_eq!(sums, expected, "{what}");
    assert_eq!(take_loss(backend, &desc, ask, &x, None).unwrap(), sums, "{what} without gradient");
}

#[test]
fn recorded_operations_agree_on_every_backend() {
    let file: File = golden("ops.json");
    file.fill_example.check(Formula::fill_n);
    assert!(file.cases.len() >= 109, "only {} cases", file.cases.len());
    on_every_backend!(check_all(&file.cases));
}

fn check_labels<B: Backend>(backend: &B, name: &str, _: &[usize]) {
    let desc = TensorDesc::plain(2, Shape::vector(3));
    let x = backend.alloc(6).unwrap();
    fn ask(labels: &[u32]) -> CrossEntropy<'_> {
        CrossEntropy { labels, smoothing: 0.0, scale: 1.0, weight: 1.0 }
    }
    let error = take_loss(backend, &desc, ask(&[0, 3]), &x, None).expect_err("label 3 of 3 classes");
    let Error::Size { expected, got, .. } = &error else { panic!("{name}: {error}") };
    assert!(expected.contains("below 3") && got.starts_with('3'), "{name}: {error}");
    // if scores are equal, only the first counts as the best
    for (labels, top1) in [([0, 0], 2), ([1, 2], 0)] {
        let sums = take_loss(backend, &desc, ask(&labels), &x, None).unwrap();
        assert_eq!((sums.top1, sums.top5, sums.count), (top1, 2, 2), "{name}: labels {labels:?}");
    }
}

#[test]
fn a_label_out_of_range_is_an_error_and_ties_count_once() {
    on_every_backend!(check_labels());
}

fn check_nan<B: Backend>(backend: &B, name: &str, blocks: &[usize]) {
    let ops = [
        Op::Pool(Pool::new(PoolKind::Avg, 2, 2)),
        Op::Pool(Pool::new(PoolKind::Max, 2, 2)),
        Op::Norm(Norm::new().relu()),
        Op::Conv(Conv::new(4, 3).pad(1)),
        Op::Linear(Linear::new(4)),
    ];
    for op in ops.into_iter().chain(Activation::ALL.map(Op::Activation)) {
        let mut case = Case { dy: None, ..Case::random(op, 2, Shape::image(3, 4, 4), 1) };
        case.x[0][7] = f32::NAN;
        for &block in blocks {
            let y = case.run(backend, block, false).y;
            assert!(y.iter().any(|v| v.is_nan()), "{:?} on {name} in blocks of {block} swallows NaN", case.op);
        }
    }
}

/// A NaN in the input reaches the output of every operation. The ReLU that oneDNN fuses into a convolution or linear layer
/// is an exception: max(NaN, 0) is 0 there. Layers that compute scores have no ReLU.
#[test]
fn a_nan_is_not_hidden() {
    on_every_backend!(check_nan());
}

/// Compares the gradient where ReLU's output is NaN with PyTorch's: ReLU passes it (2.15 on the CPU, in f32 and bf16),
/// and functions with two bounds do not.
fn check_nan_gradient<B: Backend>(backend: &B, name: &str, blocks: &[usize]) {
    let relu = Op::Norm(Norm::new().residual().relu());
    for (op, input, passes) in [
        (Op::Activation(Activation::Relu), 0, true),
        (relu, 1, true),
        (Op::Activation(Activation::Relu6), 0, false),
        (Op::Activation(Activation::HardSigmoid), 0, false),
    ] {
        let mut case = Case::random(op, 2, Shape::image(3, 4, 4), 1);
        let place = 7;
        case.x[input][place] = f32::NAN;
        let want = if passes { case.dy.as_ref().expect("a gradient")[place] } else { 0.0 };
        for &block in blocks {
            let got = case.run(backend, block, false).dx[input][place];
            assert_eq!(got, want, "{:?} on {name} in blocks of {block}", case.op);
        }
    }
}

#[test]
fn a_gradient_passes_a_relu_of_nan() {
    on_every_backend!(check_nan_gradient());
}
