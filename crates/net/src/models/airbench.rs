//! The network of CIFAR-10 records in seconds (Jordan 2024, arXiv 2404.00498).

use super::blocks::{max_pool, norm_act};
use crate::{Activation, Conv, Flatten, Id, Init, Linear, NetSpec, Norm, Shape};

/// Factor of the scores.
const SCALE: f32 = 1.0 / 9.0;

/// conv 2x2-24, GELU, three groups of two 3x3 convolutions, pool 3x3, fc without a bias, over 9. The original starts the first
/// convolution as a whitening of patches of the training images and never changes its weights: `init.whiten` and `freeze.patterns`.
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

/// conv, max pool 2x2, norm, GELU, conv, norm, GELU; norms have a shift alone.
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
