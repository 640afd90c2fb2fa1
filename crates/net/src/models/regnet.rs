//! RegNet (Radosavovic et al. 2020, arXiv 2003.13678) as in torchvision: bottlenecks with equally wide groups, without
//! (X) and with (Y) squeeze and excitation.

use super::blocks::{SqueezeExcite, classify, conv, unit};
use crate::{Activation, Id, Init, Linear, NetSpec, Norm, Shape};

/// A network's four stages.
#[derive(Clone, Copy)]
pub struct Stages {
    blocks: [usize; 4],
    channels: [usize; 4],
    /// Channels in each group in the 3x3 convolutions. A stage that has fewer channels has a single group.
    group: usize,
    /// True if blocks have squeeze and excitation.
    squeezes: bool,
}

impl Stages {
    const fn x(blocks: [usize; 4], channels: [usize; 4], group: usize) -> Self {
        Self { blocks, channels, group, squeezes: false }
    }

    const fn y(blocks: [usize; 4], channels: [usize; 4], group: usize) -> Self {
        Self { blocks, channels, group, squeezes: true }
    }
}

pub const X_400MF: Stages = Stages::x([1, 2, 7, 12], [32, 64, 160, 400], 16);
pub const X_800MF: Stages = Stages::x([1, 3, 7, 5], [64, 128, 288, 672], 16);
pub const X_1_6GF: Stages = Stages::x([2, 4, 10, 2], [72, 168, 408, 912], 24);
pub const X_3_2GF: Stages = Stages::x([2, 6, 15, 2], [96, 192, 432, 1008], 48);
pub const X_8GF: Stages = Stages::x([2, 5, 15, 1], [80, 240, 720, 1920], 120);
pub const X_16GF: Stages = Stages::x([2, 6, 13, 1], [256, 512, 896, 2048], 128);
pub const X_32GF: Stages = Stages::x([2, 7, 13, 1], [336, 672, 1344, 2520], 168);

pub const Y_400MF: Stages = Stages::y([1, 3, 6, 6], [48, 104, 208, 440], 8);
pub const Y_800MF: Stages = Stages::y([1, 3, 8, 2], [64, 144, 320, 784], 16);
pub const Y_1_6GF: Stages = Stages::y([2, 6, 17, 2], [48, 120, 336, 888], 24);
pub const Y_3_2GF: Stages = Stages::y([2, 5, 13, 1], [72, 216, 576, 1512], 24);
pub const Y_8GF: Stages = Stages::y([2, 4, 10, 1], [224, 448, 896, 2016], 56);
pub const Y_16GF: Stages = Stages::y([2, 4, 11, 1], [224, 448, 1232, 3024], 112);
pub const Y_32GF: Stages = Stages::y([2, 5, 12, 1], [232, 696, 1392, 3712], 232);
pub const Y_128GF: Stages = Stages::y([2, 7, 17, 1], [528, 1056, 2904, 7392], 264);

const STEM: usize = 32;
const RELU: Option<Activation> = Some(Activation::Relu);

/// Creates a network with these layers: conv 3x3/2-32, the stages, mean, fc. Each stage halves height and width.
pub fn torchvision(name: &str, input: Shape, classes: usize, stages: Stages) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let image = net.image();
    let mut x = unit(&mut net, "stem", conv(STEM, 3, 2), Norm::new(), RELU, image);
    let mut channels = STEM;
    for (stage, (out, blocks)) in (1..).zip(stages.channels.into_iter().zip(stages.blocks)) {
        for block in 0..blocks {
            let path = format!("trunk_output.block{stage}.block{stage}-{block}");
            x = add_block(&mut net, &path, &stages, [channels, out], if block == 0 { 2 } else { 1 }, x);
            channels = out;
        }
    }
    classify(&mut net, "fc", 0.0, Linear::new(classes).init(Init::Normal(0.01)), x);
    net
}

/// Adds a block: a 1x1 convolution, a 3x3 convolution in groups, squeeze and excitation if the network has it, and a
/// 1x1 convolution. Then adds the block's input, which is projected if the shape changes. `ends` are the channel counts
/// at the input and the output. Squeeze and excitation has a quarter as many channels as the input.
fn add_block(net: &mut NetSpec, path: &str, stages: &Stages, ends: [usize; 2], stride: usize, x: Id) -> Id {
    let name = |part: &str| format!("{path}.{part}");
    let [channels, out] = ends;
    let groups = out / stages.group.min(out);
    let shortcut = if stride == 1 && channels == out {
        x
    } else {
        unit(net, &name("proj"), conv(out, 1, stride), Norm::new(), None, x)
    };
    let y = unit(net, &name("f.a"), conv(out, 1, 1), Norm::new(), RELU, x);
    let middle = conv(out, 3, stride).groups(groups);
    let mut y = unit(net, &name("f.b"), middle, Norm::new(), RELU, y);
    if stages.squeezes {
        let init = [Init::HeNormalFanOut, Init::UniformFanIn];
        let (act, gate) = (Activation::Relu, Activation::Sigmoid);
        y = SqueezeExcite { channels: channels / 4, act, gate, init }.add(net, &name("f.se"), out, y);
    }
    let y = net.add(&name("f.c.0"), conv(out, 1, 1), y);
    net.join(&name("f.c.1"), Norm::new().residual().relu(), &[y, shortcut])
}
