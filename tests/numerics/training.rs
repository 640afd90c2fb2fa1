//! Helpers of the tests that train whole graphs, and small networks with all ways of joining branches.

use std::ops::Range;

use backend::{Backend, Input};
use engine::optim::{Optimizer, OptimizerSpec};
use engine::{Batch, Graph};
use net::{
    Activation, Add, Concat, Conv, DropPath, Dropout, Flatten, GroupNorm, Id, LayerNorm, LayerScale, Linear, Lrn,
    Multiply, NetSpec, Norm, Op, Pool, PoolKind, Shape, Shortcut,
};

use support::numerics::{assert_close, magnitude, noise};

/// Calls `$f(make, name)` for each backend. `make()` creates the backend.
macro_rules! everywhere {
    ($f:ident) => {
        $f(|| backend::reference::Reference, "reference");
        $f(|| support::numerics::cpu(1), "cpu, 1 thread");
        $f(|| support::numerics::cpu(2), "cpu, 2 threads");
        $f(|| support::numerics::cuda(backend::cuda::Precision::F32), "cuda");
    };
}
pub(crate) use everywhere;

pub struct Rows {
    elems: usize,
    pub images: Vec<f32>,
    pub labels: Vec<u32>,
    ids: Vec<u64>,
}

impl Rows {
    /// Creates `n` images of noise around `mean` with labels of `classes` classes.
    pub fn new(image: Shape, mean: f32, classes: usize, n: usize) -> Self {
        let images = noise(n * image.elems(), 1, 1.0).into_iter().map(|v| v + mean).collect();
        let labels = (0..n as u32).map(|i| i * 3 % classes as u32).collect();
        Self { elems: image.elems(), images, labels, ids: (500..500 + n as u64).collect() }
    }

    pub fn part(&self, rows: Range<usize>) -> Batch<'_> {
        let images = Input::Values(&self.images[rows.start * self.elems..rows.end * self.elems]);
        Batch { images, labels: &self.labels[rows.clone()], ids: &self.ids[rows], epoch: 3 }
    }

    pub fn all(&self) -> Batch<'_> {
        self.part(0..self.labels.len())
    }
}

pub fn gradients<B: Backend>(graph: &Graph<B>) -> Vec<Vec<f32>> {
    (0..graph.params().len()).map(|i| graph.gradient(i).unwrap()).collect()
}

pub fn named_gradients<B: Backend>(graph: &Graph<B>) -> Vec<(String, Vec<f32>)> {
    graph.params().iter().map(|p| p.name.clone()).zip(gradients(graph)).collect()
}

/// Returns the pooled statistics of the last batch, and the number of values per channel for each batch normalisation.
pub fn statistics<B: Backend>(graph: &Graph<B>) -> (Vec<f64>, Vec<f64>) {
    let (mut sums, mut counts) = (vec![0.0; graph.running().len()], vec![0.0; graph.norms().len()]);
    graph.pool_statistics(&mut sums, &mut counts);
    (sums, counts)
}

pub fn optimizer<B: Backend>(graph: &Graph<B>, spec: &OptimizerSpec) -> Optimizer<B> {
    spec.check().unwrap();
    Optimizer::new(graph, spec).unwrap()
}

/// Compares some elements of each gradient, at most about `most` of a parameter, with differences of the loss.
pub fn check_slopes<B: Backend>(
    graph: &mut Graph<B>,
    gradients: &[(String, Vec<f32>)],
    most: usize,
    loss: impl Fn(&mut Graph<B>) -> f64,
) {
    let step = 1.0 / 128.0;
    for (name, gradient) in gradients {
        let p = graph.params().iter().position(|p| p.name == *name).expect("a parameter");
        let start = graph.param(p).unwrap();
        for i in (0..start.len()).step_by(start.len().div_ceil(most)) {
            let mut side = |step: f32| {
                let mut moved = start.clone();
                moved[i] += step;
                graph.set_param(p, &moved).unwrap();
                (loss(graph), f64::from(moved[i]))
            };
            let ((above, to), (below, from)) = (side(step), side(-step));
            let slope = (above - below) / (to - from);
            assert_close(&format!("{name}[{i}]"), &gradient[i..=i], &[slope], 2e-3 * magnitude(gradient) + 2e-4);
        }
        graph.set_param(p, &start).unwrap();
    }
}

pub const IMAGE: Shape = Shape::image(3, 7, 6);
pub const CLASSES: usize = 5;

/// Returns a network with tensors that up to three layers of different sizes read, both kinds of aliased gradients, and
/// every operation with two inputs. With `smooth`, the network has no ReLU, so that the loss has no kinks.
pub fn branching(smooth: bool) -> NetSpec {
    let mut net = NetSpec::new("branching", IMAGE);
    let conv = |c| Op::Conv(Conv::new(c, 3).pad(1).bias(0.0));
    let strided = |c| Op::Conv(Conv::new(c, 3).pad(1).stride(2));
    let norm = Norm { relu: !smooth, ..Norm::new() };
    let x = net.add("c1", conv(6), net.image());
    let bent = net.add("bent", if smooth { Activation::Tanh } else { Activation::Relu }, x);
    let x = net.add("c2", conv(6), bent);
    let x = net.join("a1", Add, &[x, bent]);
    let n1 = net.add("n1", Op::Norm(norm.clone()), x);
    let x = net.add("c3", strided(12), n1);
    let shortcut = net.add("s1", Op::Shortcut(Shortcut { out_channels: 12, stride: 2 }), n1);
    let n2 = net.join("n2", Op::Norm(norm.residual()), &[x, shortcut]);
    let side = net.add("c4", strided(12), bent);
    let x = net.join("a2", Add, &[n2, side]);
    let twice = net.join("a3", Add, &[x, x]);
    let x = net.add("t", Activation::Tanh, twice);
    let x = net.add("lrn", Op::Lrn(Lrn { radius: 2, k: 1.0, alpha: 0.2, beta: 0.75 }), x);
    let x = net.add("dropout", Dropout(0.3), x);
    finish(net, x)
}

/// Returns a network with local response normalisation over channels that do not fill a block, with k = 0. Padding
/// channels must stay 0 for the following convolutions.
pub fn competing() -> NetSpec {
    let mut net = NetSpec::new("competing", IMAGE);
    let conv = |c| Conv::new(c, 3).pad(1).bias(0.0);
    let x = net.add("c1", conv(5), net.image());
    let x = net.add("l1", Op::Lrn(Lrn { radius: 1, k: 0.0, alpha: 1.0, beta: 0.5 }), x);
    let x = net.add("c2", conv(6), x);
    let x = net.add("l2", Op::Lrn(Lrn { radius: 2, k: 0.0, alpha: 0.2, beta: 0.75 }), x);
    let x = net.add("c3", conv(4), x);
    finish(net, x)
}

/// Returns a network without batch normalisation or random draws, so that a batch is the sum of its rows.
pub fn separable() -> NetSpec {
    let mut net = NetSpec::new("separable", IMAGE);
    let x = net.add("c1", Op::Conv(Conv::new(6, 3).pad(1).bias(0.0).relu()), net.image());
    let x = net.add("p1", Op::Pool(Pool::new(PoolKind::Max, 2, 2)), x);
    let x = net.add("c2", Op::Conv(Conv::new(12, 3).pad(1).groups(3)), x);
    let x = net.add("p2", Op::Pool(Pool::new(PoolKind::Avg, 2, 2).ceil()), x);
    let x = net.add("flatten", Flatten, x);
    let x = net.add("fc1", Op::Linear(Linear::new(9).relu()), x);
    net.add("fc2", Op::Linear(Linear::new(CLASSES)), x);
    net
}

/// Returns a network with a wide layer on one of two backward paths. The two gradients of `t` are in buffers of very different sizes.
pub fn bottleneck() -> NetSpec {
    let mut net = NetSpec::new("bottleneck", IMAGE);
    let conv = |c| Op::Conv(Conv::new(c, 1));
    let x = net.add("c1", conv(8), net.image());
    let t = net.add("t", Activation::Tanh, x);
    let short = net.add("short", conv(8), t);
    let wide = net.add("wide", conv(64), t);
    let x = net.add("back", conv(8), wide);
    let x = net.join("add", Add, &[short, x]);
    finish(net, x)
}

/// Adds a linear layer that computes scores from an image.
pub fn finish(mut net: NetSpec, x: Id) -> NetSpec {
    let x = net.add("flatten", Flatten, x);
    net.add("fc", Op::Linear(Linear::new(CLASSES)), x);
    net
}

/// Returns a network that concatenates earlier outputs, as DenseNet does. A tensor has five readers, and another one is
/// concatenated with itself.
pub fn dense() -> NetSpec {
    let mut net = NetSpec::new("dense", IMAGE);
    let conv = |c| Conv::new(c, 3).pad(1);
    let first = net.add("c1", conv(8), net.image());
    let mut features = vec![first];
    for (i, channels) in [8, 5, 16].into_iter().enumerate() {
        let x = net.join(&format!("cat{i}"), Concat, &features);
        let x = net.add(&format!("n{i}"), Norm::new(), x);
        let x = net.add(&format!("t{i}"), Activation::Tanh, x);
        features.push(net.add(&format!("c2{i}"), conv(channels), x));
    }
    let x = net.join("twice", Concat, &[first, features[3], first]);
    let again = net.add("c3", conv(32), x);
    let x = net.join("add", Add, &[again, x]);
    finish(net, x)
}

/// Returns a network of inverted bottlenecks with squeeze and excitation, as in EfficientNet, with depthwise and dilated convolutions.
pub fn attentive() -> NetSpec {
    let mut net = NetSpec::new("attentive", IMAGE);
    let start = net.add("c1", Conv::new(6, 3).pad(1), net.image());
    let x = net.add("expand", Conv::new(24, 1), start);
    let x = net.add("n1", Norm { eps: 1e-3, momentum: 0.01, ..Norm::new() }, x);
    let x = net.add("silu", Activation::Silu, x);
    let x = net.add("depthwise", Conv::new(24, 5).groups(24).stride(2).same(IMAGE), x);
    let x = net.add("gelu", Activation::GeluTanh, x);
    let mean = net.add("squeeze", Pool::global(), x);
    let few = net.add("reduce", Conv::new(3, 1).bias(0.1), mean);
    let few = net.add("swish", Activation::Silu, few);
    let many = net.add("widen", Conv::new(24, 1).bias(0.0), few);
    let gate = net.add("gate", Activation::Sigmoid, many);
    let x = net.join("excite", Multiply, &[x, gate]);
    let x = net.add("project", Conv::new(6, 1), x);
    let x = net.add("drop", DropPath(0.4), x);
    let side = net.add("side", Conv::new(6, 3).pad(2).dilation(2).stride(2), start);
    let x = net.join("join", Add, &[x, side]);
    let x = net.add("mean", Pool::global(), x);
    finish(net, x)
}

/// Returns a network in which outputs of linear layers multiply images, are added to them or concatenated with them. The
/// numbers of channels do not fill blocks.
pub fn gated() -> NetSpec {
    let mut net = NetSpec::new("gated", IMAGE);
    let start = net.add("c1", Conv::new(12, 3).pad(1).bias(0.0), net.image());
    let mean = net.add("squeeze", Pool::global(), start);
    let few = net.add("reduce", Op::Linear(Linear::new(5)), mean);
    let few = net.add("tanh", Activation::Tanh, few);
    let many = net.add("widen", Op::Linear(Linear::new(12)), few);
    let gate = net.add("gate", Activation::Sigmoid, many);
    let x = net.join("excite", Multiply, &[start, gate]);
    let x = net.add("c2", Conv::new(12, 3).pad(1), x);
    let x = net.add("mean", Pool::global(), x);
    let x = net.join("add", Add, &[many, x]);
    let x = net.join("beside", Concat, &[x, gate]);
    finish(net, x)
}

/// Returns a network with patches, layer and group normalisation, layer scale and DropPath, as in ConvNeXt.
pub fn patches() -> NetSpec {
    let mut net = NetSpec::new("patches", IMAGE);
    let x = net.add("stem", Conv::new(12, 2).stride(2).bias(0.0), net.image());
    let start = net.add("stem_norm", LayerNorm::new(), x);
    let x = net.add("depthwise", Conv::new(12, 7).pad(3).groups(12).bias(0.1), start);
    let x = net.add("norm", LayerNorm::new(), x);
    let x = net.add("expand", Conv::new(20, 1).bias(0.0), x);
    let x = net.add("gelu", Activation::Gelu, x);
    let x = net.add("project", Conv::new(12, 1).bias(0.0), x);
    let x = net.add("scale", LayerScale(0.5), x);
    let x = net.add("path", DropPath(0.3), x);
    let x = net.join("add", Add, &[x, start]);
    let x = net.add("groups", GroupNorm::new(3), x);
    let x = net.add("mean", Pool::global(), x);
    let x = net.add("head_norm", LayerNorm { eps: 1e-3 }, x);
    finish(net, x)
}
