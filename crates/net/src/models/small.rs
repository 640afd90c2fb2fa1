//! Small networks for digits and CIFAR-10: LeNet, TensorFlow's cifarnet, and airbench.

use super::blocks::{max_pool, norm_act};
use crate::{Activation, Conv, Dropout, Flatten, Id, Init, Linear, Lrn, NetSpec, Norm, Shape, same_padding};

// LeNet for 28x28 digits, as in TensorFlow-slim and as in Caffe.

/// Creates TF-slim's network: conv 5x5-32, pool, conv 5x5-64, pool, fc 1024, dropout 0.5, fc, with SAME padding.
/// Weights are initialised uniformly within 1/sqrt(fan in). Slim's own initialisation has a standard deviation of 0.1
/// everywhere. This is 5 times too large for 3,136 inputs, and training diverges at the learning rates that three
/// epochs need.
pub fn lenet_slim(name: &str, input: Shape, classes: usize) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let start = Init::UniformFanIn;
    let conv = |c| Conv::new(c, 5).pad(2).bias(0.0).relu().init(start);
    let x = net.add("conv1", conv(32), net.image());
    let x = net.add("pool1", max_pool(2, 2), x);
    let x = net.add("conv2", conv(64), x);
    let x = net.add("pool2", max_pool(2, 2), x);
    let x = net.add("flatten", Flatten, x);
    let x = net.add("fc1", Linear::new(1024).relu().init(start), x);
    let x = net.add("dropout", Dropout(0.5), x);
    net.add("fc2", Linear::new(classes).init(start), x);
    net
}

/// Creates Caffe's network: conv 5x5-20, pool, conv 5x5-50, pool, fc 500, ReLU, fc. No padding, and no ReLU after the
/// convolutions.
pub fn lenet_caffe(name: &str, input: Shape, classes: usize) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let conv = |c| Conv::new(c, 5).bias(0.0).init(Init::Xavier);
    let x = net.add("conv1", conv(20), net.image());
    let x = net.add("pool1", max_pool(2, 2), x);
    let x = net.add("conv2", conv(50), x);
    let x = net.add("pool2", max_pool(2, 2), x);
    let x = net.add("flatten", Flatten, x);
    let x = net.add("fc1", Linear::new(500).relu().init(Init::Xavier), x);
    net.add("fc2", Linear::new(classes).init(Init::Xavier), x);
    net
}

// The network of TensorFlow's CIFAR-10 tutorial, which TernGrad calls cifar10_alexnet, and TF-slim's variant of it.

/// Local response normalisation across nine channels.
const LRN: Lrn = Lrn { radius: 4, k: 1.0, alpha: 0.001 / 9.0, beta: 0.75 };

/// Creates a network with these layers: conv 5x5-64, pool 2x2/2, LRN, conv 5x5-64, LRN, pool 2x2/2, fc 384, dropout
/// 0.5, fc 192, fc.
pub fn cifarnet_slim(name: &str, input: Shape, classes: usize) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let x = net.add("conv1", cifarnet_conv(0.0), net.image());
    let x = net.add("pool1", max_pool(2, 2), x);
    let x = net.add("norm1", LRN, x);
    let x = net.add("conv2", cifarnet_conv(0.0), x);
    let x = net.add("norm2", LRN, x);
    let x = net.add("pool2", max_pool(2, 2), x);
    let x = net.add("flatten", Flatten, x);
    let x = net.add("fc3", hidden(384), x);
    let x = net.add("dropout3", Dropout(0.5), x);
    let x = net.add("fc4", hidden(192), x);
    net.add("logits", scores(classes), x);
    net
}

fn cifarnet_conv(bias: f32) -> Conv {
    Conv::new(64, 5).pad(2).bias(bias).relu().init(Init::TruncatedNormal(0.05))
}

fn hidden(features: usize) -> Linear {
    Linear::new(features).relu().bias(0.1).init(Init::TruncatedNormal(0.04))
}

fn scores(classes: usize) -> Linear {
    Linear::new(classes).init(Init::TruncatedNormal(1.0 / 192.0))
}

/// Creates a network with these layers: conv 5x5-64, pool 3x3/2, LRN, conv 5x5-64, LRN, pool 3x3/2, fc 384, fc 192, fc,
/// all with SAME padding.
pub fn cifarnet_tutorial(name: &str, input: Shape, classes: usize) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let x = net.add("conv1", cifarnet_conv(0.0), net.image());
    let x = pool(&mut net, "pool1", x);
    let x = net.add("norm1", LRN, x);
    let x = net.add("conv2", cifarnet_conv(0.1), x);
    let x = net.add("norm2", LRN, x);
    let x = pool(&mut net, "pool2", x);
    let x = net.add("flatten", Flatten, x);
    let x = net.add("fc1", hidden(384), x);
    let x = net.add("fc2", hidden(192), x);
    net.add("fc3", scores(classes), x);
    net
}

/// Adds a 3x3 pool with stride 2 and TensorFlow's SAME padding, which depends on the input size. An invalid network
/// gets no padding and is reported when its shapes are checked.
fn pool(net: &mut NetSpec, name: &str, x: Id) -> Id {
    let plane = net.shapes().map_or(Shape::vector(1), |shapes| shapes[x.0]);
    net.add(name, max_pool(3, 2).pads(same_padding(plane, [3, 3], [2, 2])), x)
}

// A network for very fast training on CIFAR-10 (Jordan 2024, arXiv 2404.00498).

const SCALE: f32 = 1.0 / 9.0;

/// Creates a network with these layers: conv 2x2-24, GELU, three groups of two 3x3 convolutions, pool 3x3, fc without
/// bias, divided by 9. The original initialises the first convolution to whiten patches of the training images and
/// never trains its weights. `init.whiten` and `freeze.patterns` do this here.
pub fn airbench94(name: &str, input: Shape, classes: usize) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let whiten = Conv::new(24, 2).init(Init::UniformFanIn).bias_from(Init::UniformFanIn);
    let x = net.add("whiten", whiten, net.image());
    let mut x = net.add("whiten.act", Activation::Gelu, x);
    for (group, channels) in (1..).zip([64, 256, 256]) {
        x = conv_group(&mut net, &format!("group{group}"), channels, x);
    }
    let x = net.add("pool", max_pool(3, 3), x);
    let x = net.add("flatten", Flatten, x);
    let x = net.add("head", Linear { bias: false, ..Linear::new(classes) }, x);
    net.add("scale", Activation::Scale(SCALE), x);
    net
}

/// Adds conv, max pool 2x2, norm, GELU, conv, norm, GELU. Norms have only a shift.
fn conv_group(net: &mut NetSpec, path: &str, channels: usize, x: Id) -> Id {
    let name = |part: &str| format!("{path}.{part}");
    let conv = || Conv::new(channels, 3).pad(1).init(Init::Dirac);
    let norm = || Norm { eps: 1e-12, momentum: 0.4, scale: false, ..Norm::new() };
    let x = net.add(&name("conv1"), conv(), x);
    let x = net.add(&name("pool"), max_pool(2, 2), x);
    let x = norm_act(net, &name("norm1"), norm(), Some(Activation::Gelu), x);
    let x = net.add(&name("conv2"), conv(), x);
    norm_act(net, &name("norm2"), norm(), Some(Activation::Gelu), x)
}
