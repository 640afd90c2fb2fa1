//! Swin transformers (Liu et al. 2021, arXiv 2103.14030 and 2111.09883) as in torchvision. Fully connected layers over
//! positions are 1x1 convolutions here.

use super::blocks::{classify, drop_add};
use crate::{
    Activation, Attention, Conv, HIDDEN, Id, Init, LayerNorm, Linear, NetSpec, PositionBias, Shape, SpaceToDepth,
};

/// Sizes of a Swin transformer.
pub struct Size {
    /// Channels in the first stage. Each further stage doubles their number.
    pub channels: usize,
    pub blocks: [usize; 4],
    /// Heads in the first stage. Each further stage doubles their number.
    pub heads: usize,
    /// Height and width of the windows.
    pub window: usize,
    /// Rate of stochastic depth in the last block. The rates grow linearly from 0 in the first block.
    pub drop_path: f32,
    /// True for the second version: cosine attention, a continuous position bias, and norms after the branches.
    pub second: bool,
}

pub const T: Size = Size { channels: 96, blocks: [2, 2, 6, 2], heads: 3, window: 7, drop_path: 0.2, second: false };
pub const S: Size = Size { blocks: [2, 2, 18, 2], drop_path: 0.3, ..T };
pub const B: Size = Size { channels: 128, heads: 4, drop_path: 0.5, ..S };
pub const V2_T: Size = Size { window: 8, second: true, ..T };
pub const V2_S: Size = Size { window: 8, second: true, ..S };
pub const V2_B: Size = Size { window: 8, second: true, ..B };

/// Initialisation of fully connected layers. Biases are 0.
const START: Init = Init::Normal(0.02);

/// Creates a network with these layers: conv 4x4/4, the stages with patch merging between them, layer norm, mean, and a
/// linear layer.
pub fn torchvision(name: &str, input: Shape, classes: usize, size: Size) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let patches = Conv::new(size.channels, 4).stride(4).init(Init::UniformFanIn).bias_from(Init::UniformFanIn);
    let x = net.add("features.0.0", patches, net.image());
    let mut x = net.add("features.0.2", norm(), x);
    let mut block = Block { channels: size.channels, heads: size.heads, plane: [input.h / 4, input.w / 4], at: 0 };
    let last = size.blocks.iter().sum::<usize>() as f32 - 1.0;
    let mut done = 0;
    for (stage, blocks) in size.blocks.into_iter().enumerate() {
        if stage > 0 {
            x = merge(&mut net, &format!("features.{}", 2 * stage), block.channels, size.second, x);
            let plane = block.plane.map(|extent| extent.div_ceil(2));
            block = Block { channels: 2 * block.channels, heads: 2 * block.heads, plane, at: 0 };
        }
        for at in 0..blocks {
            let path = format!("features.{}.{at}", 2 * stage + 1);
            x = Block { at, ..block }.add(&mut net, &path, &size, size.drop_path * done as f32 / last, x);
            done += 1;
        }
    }
    let x = net.add("norm", norm(), x);
    classify(&mut net, "head", 0.0, Linear::new(classes).init(START), x);
    net
}

fn norm() -> LayerNorm {
    LayerNorm { eps: 1e-5 }
}

/// Returns a fully connected layer over the channels of each position.
fn full(channels: usize) -> Conv {
    Conv::new(channels, 1).linear().init(START)
}

/// Concatenates the channels of 2x2 positions and halves their number.
fn merge(net: &mut NetSpec, path: &str, channels: usize, second: bool, x: Id) -> Id {
    let (reduction, norm_name) = (format!("{path}.reduction"), format!("{path}.norm"));
    let x = net.add(&format!("{path}.merge"), SpaceToDepth(2), x);
    match second {
        false => {
            let x = net.add(&norm_name, norm(), x);
            net.add(&reduction, full(2 * channels), x)
        }
        true => {
            let x = net.add(&reduction, full(2 * channels), x);
            net.add(&norm_name, norm(), x)
        }
    }
}

/// The sizes of a stage, and the number of a block in it.
#[derive(Clone, Copy)]
struct Block {
    channels: usize,
    heads: usize,
    /// Height and width of the stage's images.
    plane: [usize; 2],
    at: usize,
}

impl Block {
    /// Adds attention and a perceptron, each with a layer norm and a shortcut around it. `drop` is the rate of
    /// stochastic depth.
    fn add(&self, net: &mut NetSpec, path: &str, size: &Size, drop: f32, x: Id) -> Id {
        let name = |part: &str| format!("{path}.{part}");
        let before = |net: &mut NetSpec, part: &str, x| if size.second { x } else { net.add(&name(part), norm(), x) };
        let after = |net: &mut NetSpec, part: &str, x| if size.second { net.add(&name(part), norm(), x) } else { x };
        let y = before(net, "norm1", x);
        let y = self.attention(net, &name("attn"), size, y);
        let y = after(net, "norm1", y);
        let x = drop_add(net, &name("attn"), drop, y, x);
        let y = before(net, "norm2", x);
        let y = net.add(&name("mlp.0"), full(4 * self.channels).bias(0.0), y);
        let y = net.add(&name("mlp.1"), Activation::Gelu, y);
        let y = net.add(&name("mlp.3"), full(self.channels).bias(0.0), y);
        let y = after(net, "norm2", y);
        drop_add(net, &name("mlp"), drop, y, x)
    }

    /// Adds attention in windows. Every second block shifts them by half their size. If windows do not divide the
    /// plane, zeros are added before the projection, as in torchvision.
    fn attention(&self, net: &mut NetSpec, path: &str, size: &Size, x: Id) -> Id {
        let window = size.window;
        let [rows, columns] = self.plane.map(|extent| extent.next_multiple_of(window) - extent);
        let projection = full(3 * self.channels).bias(0.0).pads([0, 0, rows, columns]);
        let projection = if size.second { projection.without_key_bias() } else { projection };
        let y = net.add(&format!("{path}.qkv"), projection, x);
        let bias = if size.second { PositionBias::Continuous(HIDDEN) } else { PositionBias::Table };
        let attention = Attention {
            window: Some([window; 2]),
            shift: [self.at % 2 * (window / 2); 2],
            crop: [rows, columns],
            cosine: size.second,
            position_bias: Some(bias),
            ..Attention::new(self.heads)
        };
        let y = net.add(path, attention, y);
        net.add(&format!("{path}.proj"), full(self.channels).bias(0.0), y)
    }
}
