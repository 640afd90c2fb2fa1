//! EfficientNet (Tan and Le 2019, arXiv 1905.11946): B0 to B7 as in torchvision, and Lite0 to Lite4 as in timm. Lite
//! networks have TensorFlow's SAME padding and ReLU6, but no squeeze and excitation, and their first and last layers
//! are not scaled. EfficientNetV2 (Tan and Le 2021, arXiv 2104.00298) as in torchvision.

use super::blocks::{
    InvertedResidual, SqueezeExcite, classify, conv, conv_norm_act, drop_add, norm_add, same, scaled, uniform_scores,
    unit,
};
use crate::{Activation, Conv, Id, Init, NetSpec, Norm, Shape};

/// A stage of inverted residual blocks.
#[derive(Clone, Copy)]
pub struct Stage {
    /// True if a single convolution replaces two convolutions: the 1x1 convolution that increases the channels, and the
    /// depthwise convolution. Such blocks have no squeeze and excitation.
    fused: bool,
    expansion: usize,
    kernel: usize,
    /// Stride of the first block. The other blocks have stride 1.
    stride: usize,
    out: usize,
    blocks: usize,
}

const fn fused(expansion: usize, kernel: usize, stride: usize, out: usize, blocks: usize) -> Stage {
    Stage { fused: true, expansion, kernel, stride, out, blocks }
}

const fn separate(expansion: usize, kernel: usize, stride: usize, out: usize, blocks: usize) -> Stage {
    Stage { fused: false, expansion, kernel, stride, out, blocks }
}

/// Stages of B0.
const STAGES: [Stage; 7] = [
    separate(1, 3, 1, 16, 1),
    separate(6, 3, 2, 24, 2),
    separate(6, 5, 2, 40, 2),
    separate(6, 3, 2, 80, 3),
    separate(6, 5, 1, 112, 3),
    separate(6, 5, 2, 192, 4),
    separate(6, 3, 1, 320, 1),
];

/// Upper limit of the rates of stochastic depth. They grow linearly from 0 with the number of the block.
const DROP_PATH: f32 = 0.2;

/// Size of a network relative to B0.
#[derive(Clone, Copy)]
pub struct Scale {
    /// Factor on the number of channels.
    pub width: f64,
    /// Factor on the number of blocks in a stage. The result is rounded up.
    pub depth: f64,
    /// Dropout before the last layer.
    pub dropout: f32,
}

/// Creates torchvision's networks, with SiLU, squeeze and excitation, and symmetric padding. From B5 on, batch norm has
/// another eps and momentum.
pub fn torchvision(name: &str, input: Shape, classes: usize, scale: Scale) -> NetSpec {
    let large = scale.width > 1.5;
    let norm = if large { Norm { eps: 1e-3, momentum: 0.01, ..Norm::new() } } else { Norm::new() };
    let blocks = scale.blocks(false);
    let last = 4 * blocks.last().map_or(0, |block| block.out);
    with_blocks(NetSpec::new(name, input), classes, &blocks, [scaled(32, scale.width), last], &norm, scale.dropout)
}

/// Stages, and the dropout rate before the last layer.
pub type V2 = (&'static [Stage], f32);

pub const S: V2 = (
    &[
        fused(1, 3, 1, 24, 2),
        fused(4, 3, 2, 48, 4),
        fused(4, 3, 2, 64, 4),
        separate(4, 3, 2, 128, 6),
        separate(6, 3, 1, 160, 9),
        separate(6, 3, 2, 256, 15),
    ],
    0.2,
);
pub const M: V2 = (
    &[
        fused(1, 3, 1, 24, 3),
        fused(4, 3, 2, 48, 5),
        fused(4, 3, 2, 80, 5),
        separate(4, 3, 2, 160, 7),
        separate(6, 3, 1, 176, 14),
        separate(6, 3, 2, 304, 18),
        separate(6, 3, 1, 512, 5),
    ],
    0.3,
);
pub const L: V2 = (
    &[
        fused(1, 3, 1, 32, 4),
        fused(4, 3, 2, 64, 7),
        fused(4, 3, 2, 96, 7),
        separate(4, 3, 2, 192, 10),
        separate(6, 3, 1, 224, 19),
        separate(6, 3, 2, 384, 25),
        separate(6, 3, 1, 640, 7),
    ],
    0.4,
);

/// Creates an EfficientNetV2 from torchvision.
pub fn v2(name: &str, input: Shape, classes: usize, (stages, dropout): V2) -> NetSpec {
    let norm = Norm { eps: 1e-3, ..Norm::new() };
    let ends = [stages[0].out, 1280];
    with_blocks(NetSpec::new(name, input), classes, &blocks(stages.iter().copied()), ends, &norm, dropout)
}

/// Adds all layers to an empty network. `ends` are the channel counts after the first and the last convolution.
fn with_blocks(
    mut net: NetSpec,
    classes: usize,
    blocks: &[Block],
    ends: [usize; 2],
    norm: &Norm,
    dropout: f32,
) -> NetSpec {
    let (silu, image) = (Some(Activation::Silu), net.image());
    let first = conv(ends[0], 3, 2);
    let mut x = unit(&mut net, "features.0", first, norm.clone(), silu, image);
    let (mut channels, mut last) = (ends[0], 1);
    for block in blocks {
        let path = format!("features.{}.{}.block", block.stage + 1, block.at);
        x = block.torchvision(&mut net, &path, channels, norm, x);
        (channels, last) = (block.out, block.stage + 2);
    }
    let x = unit(&mut net, &format!("features.{last}"), conv(ends[1], 1, 1), norm.clone(), silu, x);
    classify(&mut net, "classifier.1", dropout, uniform_scores(classes), x);
    net
}

/// Creates timm's tf_efficientnet_lite. Stem and head have B0's width, and the first and last stage have B0's depth.
pub fn lite(name: &str, input: Shape, classes: usize, scale: Scale) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let image = net.image();
    let mut x = lite_unit(&mut net, ["conv_stem", "bn1"], lite_conv(32, 3, 2), image);
    let mut channels = 32;
    for block in scale.blocks(true) {
        let path = format!("blocks.{}.{}", block.stage, block.at);
        x = block.lite(&mut net, &path, channels, x);
        channels = block.out;
    }
    let x = lite_unit(&mut net, ["conv_head", "bn2"], lite_conv(1280, 1, 1), x);
    classify(&mut net, "classifier", scale.dropout, uniform_scores(classes), x);
    net
}

/// An inverted residual block.
struct Block {
    /// Index of the block's stage.
    stage: usize,
    /// Index of the block within its stage.
    at: usize,
    /// See [`Stage::fused`].
    fused: bool,
    expansion: usize,
    kernel: usize,
    stride: usize,
    out: usize,
    drop: f32,
}

impl Scale {
    /// Returns all blocks. With `fixed_ends` the first and the last stage have B0's depth.
    fn blocks(&self, fixed_ends: bool) -> Vec<Block> {
        blocks(STAGES.into_iter().enumerate().map(|(index, stage)| {
            let fixed = fixed_ends && [0, STAGES.len() - 1].contains(&index);
            let blocks = if fixed { stage.blocks } else { (stage.blocks as f64 * self.depth).ceil() as usize };
            Stage { out: scaled(stage.out, self.width), blocks, ..stage }
        }))
    }
}

/// Returns the blocks of these stages, with rates of stochastic depth up to [`DROP_PATH`].
fn blocks(stages: impl Iterator<Item = Stage>) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (index, Stage { fused, expansion, kernel, stride, out, blocks: count }) in stages.enumerate() {
        let stride = |at| if at == 0 { stride } else { 1 };
        let block = |at| Block { stage: index, at, fused, expansion, kernel, stride: stride(at), out, drop: 0.0 };
        blocks.extend((0..count).map(block));
    }
    let all = blocks.len() as f32;
    for (i, block) in blocks.iter_mut().enumerate() {
        block.drop = DROP_PATH * i as f32 / all;
    }
    blocks
}

impl Block {
    /// Returns the block's input, which the block adds to its branch, if the branch keeps the shape.
    fn shortcut(&self, channels: usize, x: Id) -> Option<Id> {
        (self.stride == 1 && channels == self.out).then_some(x)
    }

    fn torchvision(&self, net: &mut NetSpec, path: &str, channels: usize, norm: &Norm, x: Id) -> Id {
        let Self { fused, expansion, kernel, stride, out, drop, .. } = *self;
        let (wide, act, norm) = (channels * expansion, Activation::Silu, norm.clone());
        if !fused {
            let init = [Init::HeNormalFanOut, Init::Constant(0.0)];
            let se = SqueezeExcite { channels: (channels / 4).max(1), act, gate: Activation::Sigmoid, init };
            let block = InvertedResidual { channels, wide, kernel, stride, out, act, squeeze: Some(se), norm, drop };
            return block.add(net, path, x);
        }
        let (first, shortcut) = (format!("{path}.0"), self.shortcut(channels, x));
        if expansion == 1 {
            let y = unit(net, &first, conv(out, kernel, stride), norm, Some(act), x);
            return shortcut.map_or(y, |x| drop_add(net, path, drop, y, x));
        }
        let y = unit(net, &first, conv(wide, kernel, stride), norm.clone(), Some(act), x);
        let y = net.add(&format!("{path}.1.0"), conv(out, 1, 1), y);
        norm_add(net, &format!("{path}.1.1"), norm, drop, y, shortcut)
    }

    fn lite(&self, net: &mut NetSpec, path: &str, channels: usize, x: Id) -> Id {
        let wide = channels * self.expansion;
        let name = |part: &str| format!("{path}.{part}");
        let (mut y, mut norm) = (x, 1);
        if self.expansion > 1 {
            y = lite_unit(net, [&name("conv_pw"), &name("bn1")], lite_conv(wide, 1, 1), y);
            norm = 2;
        }
        let depthwise = lite_conv(wide, self.kernel, self.stride).groups(wide).init(Init::HeNormalFanIn);
        y = lite_unit(net, [&name("conv_dw"), &name(&format!("bn{norm}"))], depthwise, y);
        let last = if self.expansion > 1 { "conv_pwl" } else { "conv_pw" };
        y = net.add(&name(last), lite_conv(self.out, 1, 1), y);
        let last_norm = name(&format!("bn{}", norm + 1));
        norm_add(net, &last_norm, lite_norm(), self.drop, y, self.shortcut(channels, x))
    }
}

fn lite_norm() -> Norm {
    Norm { eps: 1e-3, ..Norm::new() }
}

/// Returns a convolution without padding. The padding is set later, because it depends on the input size.
fn lite_conv(channels: usize, k: usize, stride: usize) -> Conv {
    Conv::new(channels, k).stride(stride).init(Init::HeNormalFanOut)
}

fn lite_unit(net: &mut NetSpec, names: [&str; 2], conv: Conv, x: Id) -> Id {
    let conv = same(net, conv, x);
    conv_norm_act(net, names, conv, lite_norm(), Some(Activation::Relu6), x)
}
