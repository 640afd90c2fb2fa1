//! ConvNeXt (Liu et al. 2022, arXiv 2201.03545) as in torchvision. Its fully connected layers over channels are written
//! as 1x1 convolutions.

use super::blocks::drop_add;
use crate::{Activation, Conv, Flatten, Id, Init, LayerNorm, LayerScale, Linear, NetSpec, Pool, Shape};

/// Sizes of the four stages, and the rate of stochastic depth.
pub struct Size {
    /// The first stage's channels. Each stage has twice as many as the previous one.
    pub channels: usize,
    pub blocks: [usize; 4],
    /// Rate of stochastic depth in the last block. The rates grow linearly from 0 in the first block.
    pub drop_path: f32,
}

pub const TINY: Size = Size { channels: 96, blocks: [3, 3, 9, 3], drop_path: 0.1 };
pub const SMALL: Size = Size { channels: 96, blocks: [3, 3, 27, 3], drop_path: 0.4 };
pub const BASE: Size = Size { channels: 128, blocks: [3, 3, 27, 3], drop_path: 0.5 };
pub const LARGE: Size = Size { channels: 192, blocks: [3, 3, 27, 3], drop_path: 0.5 };

/// Initialisation of convolutions and fully connected layers. Biases are 0.
const START: Init = Init::Normal(0.02);

/// Creates a network with these layers: conv 4x4/4, then the stages with 2x2/2 convolutions between them, mean, layer
/// norm, fc.
pub fn torchvision(name: &str, input: Shape, classes: usize, size: Size) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let all = size.blocks.iter().sum::<usize>() as f32 - 1.0;
    let mut x = net.add("features.0.0", patches(size.channels, 4), net.image());
    x = net.add("features.0.1", LayerNorm::new(), x);
    let (mut channels, mut done) = (size.channels, 0);
    for (stage, blocks) in size.blocks.into_iter().enumerate() {
        if stage > 0 {
            channels *= 2;
            x = net.add(&format!("features.{}.0", 2 * stage), LayerNorm::new(), x);
            x = net.add(&format!("features.{}.1", 2 * stage), patches(channels, 2), x);
        }
        for block in 0..blocks {
            let path = format!("features.{}.{block}", 2 * stage + 1);
            x = add_block(&mut net, &path, channels, size.drop_path * done as f32 / all, x);
            done += 1;
        }
    }
    let x = net.add("avgpool", Pool::global(), x);
    let x = net.add("classifier.0", LayerNorm::new(), x);
    let x = net.add("classifier.1", Flatten, x);
    net.add("classifier.2", Linear::new(classes).init(START), x);
    net
}

/// Returns a convolution over patches that do not overlap.
fn patches(channels: usize, k: usize) -> Conv {
    Conv::new(channels, k).stride(k).bias(0.0).init(START)
}

/// Adds a residual block: a 7x7 depthwise convolution, layer norm, a 1x1 convolution to four times the channels, GELU,
/// a 1x1 convolution back, and a small learned factor per channel. Then adds the block's input.
fn add_block(net: &mut NetSpec, path: &str, channels: usize, drop: f32, x: Id) -> Id {
    let full = |channels| Conv::new(channels, 1).linear().bias(0.0).init(START);
    let depthwise = Conv::new(channels, 7).pad(3).groups(channels).bias(0.0).init(START);
    let y = net.add(&format!("{path}.block.0"), depthwise, x);
    let y = net.add(&format!("{path}.block.2"), LayerNorm::new(), y);
    let y = net.add(&format!("{path}.block.3"), full(4 * channels), y);
    let y = net.add(&format!("{path}.block.4"), Activation::Gelu, y);
    let y = net.add(&format!("{path}.block.5"), full(channels), y);
    let y = net.add(path, LayerScale(1e-6), y);
    drop_add(net, path, drop, y, x)
}
