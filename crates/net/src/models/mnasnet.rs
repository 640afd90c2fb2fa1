//! MNASNet-B1 (Tan et al. 2018, arXiv 1807.11626) as in torchvision.

use super::blocks::{classify, conv, conv_norm_act, norm_add, scaled};
use crate::{Activation, Conv, Id, Init, Linear, NetSpec, Norm, Shape};

/// Stacks of inverted residuals: output channels, kernel, first block's stride, expansion factor, blocks.
const STACKS: [(usize, usize, usize, usize, usize); 6] =
    [(24, 3, 2, 3, 3), (40, 5, 2, 3, 3), (80, 5, 2, 6, 3), (96, 3, 1, 6, 2), (192, 5, 2, 6, 4), (320, 3, 1, 6, 1)];

const RELU: Option<Activation> = Some(Activation::Relu);

fn norm() -> Norm {
    Norm { momentum: 3e-4, ..Norm::new() }
}

/// Creates a network with `width` times the channels in MNASNet 1.0: conv 3x3/2-32, 3x3 depthwise, 1x1-16, the stacks,
/// conv 1x1-1280, mean, dropout 0.2, fc.
pub fn torchvision(name: &str, input: Shape, classes: usize, width: f64) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let (stem, image) = (scaled(32, width), net.image());
    let mut channels = scaled(16, width);
    let x = unit(&mut net, "layers", 0, conv(stem, 3, 2), RELU, image);
    let x = unit(&mut net, "layers", 3, conv(stem, 3, 1).groups(stem), RELU, x);
    let mut x = unit(&mut net, "layers", 6, conv(channels, 1, 1), None, x);
    for (at, (out, kernel, stride, expansion, blocks)) in (8..).zip(STACKS) {
        let out = scaled(out, width);
        for block in 0..blocks {
            let path = format!("layers.{at}.{block}.layers");
            let (wide, stride) = (channels * expansion, if block == 0 { stride } else { 1 });
            let y = unit(&mut net, &path, 0, conv(wide, 1, 1), RELU, x);
            let y = unit(&mut net, &path, 3, conv(wide, kernel, stride).groups(wide), RELU, y);
            let y = net.add(&format!("{path}.6"), conv(out, 1, 1), y);
            let shortcut = (stride == 1 && channels == out).then_some(x);
            x = norm_add(&mut net, &format!("{path}.7"), norm(), 0.0, y, shortcut);
            channels = out;
        }
    }
    let x = unit(&mut net, "layers", 14, conv(1280, 1, 1), RELU, x);
    // Kaiming's uniform distribution over the fan out, without a gain
    let scores = Linear::new(classes).init(Init::Uniform((3.0 / classes.max(1) as f32).sqrt()));
    classify(&mut net, "classifier.1", 0.2, scores, x);
    net
}

/// Adds a convolution, batch norm, and the activation, if any, at positions `at` and `at + 1` in a sequence.
fn unit(net: &mut NetSpec, path: &str, at: usize, conv: Conv, act: Option<Activation>, x: Id) -> Id {
    let names = [format!("{path}.{at}"), format!("{path}.{}", at + 1)];
    conv_norm_act(net, [&names[0], &names[1]], conv, norm(), act, x)
}
