//! RegNet (Radosavovic et al. 2020, arXiv 2003.13678) as in torchvision: bottlenecks with equally wide groups, without
//! (X) and with (Y) squeeze and excitation.

use super::blocks::{SqueezeExcite, classify, conv, conv_norm_act};
use crate::{Activation, Id, Init, Linear, NetSpec, Norm, Shape};

/// A network's four stages.
#[derive(Clone, Copy)]
pub struct Stages {
    pub blocks: [usize; 4],
    pub channels: [usize; 4],
    /// Channels in each group in the 3x3 convolutions. A stage that has fewer channels has a single group.
    pub group: usize,
    /// True if blocks have squeeze and excitation.
    pub squeezes: bool,
}

impl Stages {
    pub const fn x(blocks: [usize; 4], channels: [usize; 4], group: usize) -> Self {
        Self { blocks, channels, group, squeezes: false }
    }

    pub const fn y(blocks: [usize; 4], channels: [usize; 4], group: usize) -> Self {
        Self { blocks, channels, group, squeezes: true }
    }
}

const STEM: usize = 32;
const RELU: Option<Activation> = Some(Activation::Relu);

/// Creates a network with these layers: conv 3x3/2-32, the stages, mean, fc. Each stage halves height and width.
pub fn torchvision(name: &str, input: Shape, classes: usize, stages: Stages) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let image = net.image();
    let mut x = conv_norm_act(&mut net, ["stem.0", "stem.1"], conv(STEM, 3, 2), Norm::new(), RELU, image);
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
        conv_norm_act(net, [&name("proj.0"), &name("proj.1")], conv(out, 1, stride), Norm::new(), None, x)
    };
    let y = conv_norm_act(net, [&name("f.a.0"), &name("f.a.1")], conv(out, 1, 1), Norm::new(), RELU, x);
    let middle = conv(out, 3, stride).groups(groups);
    let mut y = conv_norm_act(net, [&name("f.b.0"), &name("f.b.1")], middle, Norm::new(), RELU, y);
    if stages.squeezes {
        let init = [Init::HeNormalFanOut, Init::UniformFanIn];
        let (act, gate) = (Activation::Relu, Activation::Sigmoid);
        y = SqueezeExcite { channels: channels / 4, act, gate, init }.add(net, &name("f.se"), out, y);
    }
    let y = net.add(&name("f.c.0"), conv(out, 1, 1), y);
    net.join(&name("f.c.1"), Norm::new().residual().relu(), &[y, shortcut])
}
