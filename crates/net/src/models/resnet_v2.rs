//! Residual networks that normalise first (He et al. 2016, arXiv 1603.05027), with stride in the 3x3 convolution, as timm defines
//! them. Its 1x1 convolution to the classes is a linear layer here.

use super::blocks::{classify, conv, max_pool};
use crate::{Add, Conv, Id, Init, Linear, NetSpec, Norm, Shape};

/// So many bottlenecks in each of the stages of 256, 512, 1024, 2048 channels.
pub fn timm(name: &str, input: Shape, classes: usize, blocks: [usize; 4]) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let x = net.add("stem.conv", conv(64, 7, 2), net.image());
    let mut x = net.add("stem.pool", max_pool(3, 2).pads([1; 4]), x);
    for (stage, (channels, blocks)) in [256, 512, 1024, 2048].into_iter().zip(blocks).enumerate() {
        for block in 0..blocks {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let path = format!("stages.{stage}.blocks.{block}");
            x = bottleneck(&mut net, &path, channels, stride, block == 0, x);
        }
    }
    let x = net.add("norm", Norm::new().relu(), x);
    classify(&mut net, "head.fc", 0.0, Linear::new(classes).init(Init::Normal(0.01)), x);
    net
}

/// norm, ReLU and convolution three times, plus the input; the first of a stage projects what its first norm gives.
fn bottleneck(net: &mut NetSpec, path: &str, channels: usize, stride: usize, projects: bool, x: Id) -> Id {
    let name = |part: &str| format!("{path}.{part}");
    let first = net.add(&name("norm1"), Norm::new().relu(), x);
    let shortcut = if projects { net.add(&name("downsample.conv"), conv(channels, 1, stride), first) } else { x };
    let y = net.add(&name("conv1"), conv(channels / 4, 1, 1), first);
    let y = norm_conv(net, [&name("norm2"), &name("conv2")], conv(channels / 4, 3, stride), y);
    let y = norm_conv(net, [&name("norm3"), &name("conv3")], conv(channels, 1, 1), y);
    net.join(&name("add"), Add, &[y, shortcut])
}

fn norm_conv(net: &mut NetSpec, names: [&str; 2], conv: Conv, x: Id) -> Id {
    let x = net.add(names[0], Norm::new().relu(), x);
    net.add(names[1], conv, x)
}
