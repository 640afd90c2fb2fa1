//! MaxViT (Tu et al. 2022, arXiv 2204.01697) as in torchvision. Fully connected layers over positions are 1x1
//! convolutions here.

use super::blocks::{SqueezeExcite, conv, drop_add, unit};
use crate::{
    Activation, Attention, Conv, Flatten, Id, Init, LayerNorm, Linear, NetSpec, Norm, Pool, PoolKind, PositionBias,
    Shape,
};

/// Sizes of the four stages.
pub struct Size {
    pub stem: usize,
    pub channels: [usize; 4],
    pub blocks: [usize; 4],
    /// Rate of stochastic depth in the last block. The rates grow linearly from 0 in the first block.
    pub drop_path: f32,
}

pub const T: Size = Size { stem: 64, channels: [64, 128, 256, 512], blocks: [2, 2, 5, 2], drop_path: 0.2 };

/// Height and width of windows and grids.
const WINDOW: usize = 7;

/// Channels in a head.
const HEAD: usize = 32;

const GELU: Option<Activation> = Some(Activation::Gelu);

/// Initialisation of convolutions and fully connected layers. Biases are 0.
const START: Init = Init::Normal(0.02);

/// Creates a network with these layers: two convolutions, the stages, mean, layer norm, and a perceptron.
pub fn torchvision(name: &str, input: Shape, classes: usize, size: Size) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let image = net.image();
    let first = conv(size.stem, 3, 2).init(START);
    let x = unit(&mut net, "stem.0", first, norm(), GELU, image);
    let mut x = net.add("stem.1.0", conv(size.stem, 3, 1).init(START).bias(0.0), x);
    let last = size.blocks.iter().sum::<usize>() as f32 - 1.0;
    let (mut channels, mut done) = (size.stem, 0);
    for (stage, (out, blocks)) in size.channels.into_iter().zip(size.blocks).enumerate() {
        for block in 0..blocks {
            let path = format!("blocks.{stage}.layers.{block}.layers");
            let (stride, drop) = (if block == 0 { 2 } else { 1 }, size.drop_path * done as f32 / last);
            x = convolutions(&mut net, &format!("{path}.MBconv"), [channels, out], stride, drop, x);
            x = attention(&mut net, &format!("{path}.window_attention"), out, false, drop, x);
            x = attention(&mut net, &format!("{path}.grid_attention"), out, true, drop, x);
            channels = out;
            done += 1;
        }
    }
    let x = net.add("classifier.0", Pool::global(), x);
    let x = net.add("classifier.2", LayerNorm { eps: 1e-5 }, x);
    let x = net.add("classifier.1", Flatten, x);
    let x = net.add("classifier.3", Linear::new(channels).init(START), x);
    let x = net.add("classifier.4", Activation::Tanh, x);
    net.add("classifier.5", Linear { bias: false, ..Linear::new(classes).init(START) }, x);
    net
}

fn norm() -> Norm {
    Norm { eps: 1e-3, momentum: 0.01, ..Norm::new() }
}

/// Adds an inverted residual block with squeeze and excitation. It begins with a norm. If the shape changes, the
/// shortcut has an average pool and a convolution.
fn convolutions(net: &mut NetSpec, path: &str, [channels, out]: [usize; 2], stride: usize, drop: f32, x: Id) -> Id {
    let (wide, name) = (4 * out, |part: &str| format!("{path}.layers.{part}"));
    let y = net.add(&name("pre_norm"), norm(), x);
    let full = conv(wide, 1, 1).init(START);
    let y = unit(net, &name("conv_a"), full, norm(), GELU, y);
    let depthwise = conv(wide, 3, stride).groups(wide).init(START);
    let y = unit(net, &name("conv_b"), depthwise, norm(), GELU, y);
    let init = [START, Init::Constant(0.0)];
    let squeeze = SqueezeExcite { channels: out / 4, act: Activation::Silu, gate: Activation::Sigmoid, init };
    let y = squeeze.add(net, &name("squeeze_excitation"), wide, y);
    let y = net.add(&name("conv_c"), conv(out, 1, 1).init(START).bias(0.0), y);
    let projected = stride != 1 || channels != out;
    let mut shortcut = x;
    if stride != 1 {
        let pool = Pool::new(PoolKind::AvgCountPad, 3, stride).pads([1; 4]);
        shortcut = net.add(&format!("{path}.proj.0"), pool, shortcut);
    }
    if projected {
        let at = usize::from(stride != 1);
        shortcut = net.add(&format!("{path}.proj.{at}"), conv(out, 1, 1).init(START).bias(0.0), shortcut);
    }
    drop_add(net, path, drop, y, shortcut)
}

/// Adds attention in windows or on grids and a perceptron, each after a layer norm and with a shortcut around it.
fn attention(net: &mut NetSpec, path: &str, channels: usize, grid: bool, drop: f32, x: Id) -> Id {
    let name = |part: &str| format!("{path}.{part}");
    let full = |channels| Conv::new(channels, 1).linear().init(START).bias(0.0);
    let y = net.add(&name("attn_layer.0"), LayerNorm { eps: 1e-5 }, x);
    let y = net.add(&name("attn_layer.1.to_qkv"), full(3 * channels), y);
    let attention = Attention {
        window: Some([WINDOW; 2]),
        grid,
        // torchvision divides by the root of all channels, not of a head's
        scale: Some((channels as f32).sqrt().recip()),
        position_bias: Some(PositionBias::Table),
        ..Attention::new(channels / HEAD)
    };
    let y = net.add(&name("attn_layer.1"), attention, y);
    let y = net.add(&name("attn_layer.1.merge"), full(channels), y);
    let x = drop_add(net, &name("attn_layer"), drop, y, x);
    let y = net.add(&name("mlp_layer.0"), LayerNorm { eps: 1e-5 }, x);
    let y = net.add(&name("mlp_layer.1"), full(4 * channels), y);
    let y = net.add(&name("mlp_layer.2"), Activation::Gelu, y);
    let y = net.add(&name("mlp_layer.3"), full(channels), y);
    drop_add(net, &name("mlp_layer"), drop, y, x)
}
