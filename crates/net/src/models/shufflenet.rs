//! ShuffleNetV2 (Ma et al. 2018, arXiv 1807.11164) as in torchvision.

use super::blocks::{classify, conv, conv_norm_act, max_pool, unit};
use crate::{Activation, Channels, Concat, Conv, Id, Init, Linear, NetSpec, Norm, Shape};

/// Channels in the three stages and the last convolution.
pub type Widths = [usize; 4];

pub const X0_5: Widths = [48, 96, 192, 1024];
pub const X1_0: Widths = [116, 232, 464, 1024];
pub const X1_5: Widths = [176, 352, 704, 1024];
pub const X2_0: Widths = [244, 488, 976, 2048];

/// Blocks in the three stages.
const BLOCKS: [usize; 3] = [4, 8, 4];
const STEM: usize = 24;
const RELU: Option<Activation> = Some(Activation::Relu);

/// Creates a network with these layers: conv 3x3/2-24, max pool, the stages, conv 1x1, mean, fc.
pub fn torchvision(name: &str, input: Shape, classes: usize, widths: Widths) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let image = net.image();
    let x = unit(&mut net, "conv1", start(STEM, 3, 2), Norm::new(), RELU, image);
    let mut x = net.add("maxpool", max_pool(3, 2).pads([1; 4]), x);
    let mut channels = STEM;
    for (stage, (out, blocks)) in (2..).zip(widths.into_iter().zip(BLOCKS)) {
        x = add_first(&mut net, &format!("stage{stage}.0"), channels, out, x);
        for block in 1..blocks {
            x = add_block(&mut net, &format!("stage{stage}.{block}"), out, x);
        }
        channels = out;
    }
    let x = unit(&mut net, "conv5", start(widths[3], 1, 1), Norm::new(), RELU, x);
    classify(&mut net, "fc", 0.0, Linear::new(classes).bias_from(Init::UniformFanIn), x);
    net
}

/// Returns a convolution with PyTorch's default initialisation.
fn start(channels: usize, k: usize, stride: usize) -> Conv {
    conv(channels, k, stride).init(Init::UniformFanIn)
}

/// Adds a block that halves height and width: two branches read all input channels, and each computes half of the
/// output channels.
fn add_first(net: &mut NetSpec, path: &str, channels: usize, out: usize, x: Id) -> Id {
    let name = |part: &str| format!("{path}.branch1.{part}");
    let depthwise = start(channels, 3, 2).groups(channels);
    let y = conv_norm_act(net, [&name("0"), &name("1")], depthwise, Norm::new(), None, x);
    let y = conv_norm_act(net, [&name("2"), &name("3")], start(out / 2, 1, 1), Norm::new(), RELU, y);
    let z = branch(net, path, out / 2, 2, x);
    shuffled(net, path, out, [y, z])
}

/// Adds a block that keeps the shape: it copies the first half of the channels and transforms the second half.
fn add_block(net: &mut NetSpec, path: &str, out: usize, x: Id) -> Id {
    let half = out / 2;
    let kept = net.add(&format!("{path}.first"), Channels::range(0, half), x);
    let rest = net.add(&format!("{path}.second"), Channels::range(half, half), x);
    let rest = branch(net, path, half, 1, rest);
    shuffled(net, path, out, [kept, rest])
}

/// Adds a branch: a 1x1, a 3x3 depthwise and a 1x1 convolution.
fn branch(net: &mut NetSpec, path: &str, channels: usize, stride: usize, x: Id) -> Id {
    let name = |part: &str| format!("{path}.branch2.{part}");
    let y = conv_norm_act(net, [&name("0"), &name("1")], start(channels, 1, 1), Norm::new(), RELU, x);
    let depthwise = start(channels, 3, stride).groups(channels);
    let y = conv_norm_act(net, [&name("3"), &name("4")], depthwise, Norm::new(), None, y);
    conv_norm_act(net, [&name("5"), &name("6")], start(channels, 1, 1), Norm::new(), RELU, y)
}

/// Concatenates both halves and interleaves their channels.
fn shuffled(net: &mut NetSpec, path: &str, out: usize, halves: [Id; 2]) -> Id {
    let x = net.join(&format!("{path}.concat"), Concat, &halves);
    net.add(&format!("{path}.shuffle"), Channels::shuffle(out, 2), x)
}
