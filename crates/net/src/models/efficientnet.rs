//! EfficientNet (Tan and Le 2019, arXiv 1905.11946): B0 to B4 as in torchvision, and Lite0 to Lite4 as in timm. Lite
//! networks have TensorFlow's SAME padding and ReLU6, but no squeeze and excitation and no scaled ends.

use super::blocks::{SqueezeExcite, classify, conv, conv_norm_act, norm_add, same, scaled};
use crate::{Activation, Conv, Id, Init, Linear, NetSpec, Norm, Shape};

/// Stages of B0: expansion, kernel, stride, channels, blocks.
const STAGES: [(usize, usize, usize, usize, usize); 7] = [
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
];

/// Rate of stochastic depth in the last block. Earlier blocks have smaller rates.
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

/// Creates torchvision's networks, with SiLU, squeeze and excitation, and symmetric padding.
pub fn torchvision(name: &str, input: Shape, classes: usize, scale: Scale) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let (silu, image) = (Some(Activation::Silu), net.image());
    let mut channels = scaled(32, scale.width);
    let names = ["features.0.0", "features.0.1"];
    let mut x = conv_norm_act(&mut net, names, conv(channels, 3, 2), Norm::new(), silu, image);
    for (i, block) in scale.blocks(false).iter().enumerate() {
        let path = format!("features.{}.{}.block", block.stage + 1, block.at);
        x = block.torchvision(&mut net, &path, channels, x);
        channels = scale.blocks(false)[i].out;
    }
    let x = conv_norm_act(&mut net, ["features.8.0", "features.8.1"], conv(4 * channels, 1, 1), Norm::new(), silu, x);
    classify(&mut net, "classifier.1", scale.dropout, scores(classes), x);
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
    classify(&mut net, "classifier", scale.dropout, scores(classes), x);
    net
}

fn scores(classes: usize) -> Linear {
    Linear::new(classes).init(Init::Uniform(1.0 / (classes.max(1) as f32).sqrt()))
}

/// An inverted residual block of a scaled network.
struct Block {
    stage: usize,
    /// Index of the block within its stage.
    at: usize,
    expansion: usize,
    kernel: usize,
    stride: usize,
    out: usize,
    drop: f32,
}

impl Scale {
    /// Returns all blocks. With `fixed_ends` the first and the last stage have B0's depth.
    fn blocks(&self, fixed_ends: bool) -> Vec<Block> {
        let mut blocks = Vec::new();
        for (stage, &(expansion, kernel, stride, out, count)) in STAGES.iter().enumerate() {
            let fixed = fixed_ends && [0, STAGES.len() - 1].contains(&stage);
            let count = if fixed { count } else { (count as f64 * self.depth).ceil() as usize };
            let out = scaled(out, self.width);
            let block =
                |at| Block { stage, at, expansion, kernel, stride: if at == 0 { stride } else { 1 }, out, drop: 0.0 };
            blocks.extend((0..count).map(block));
        }
        let all = blocks.len() as f32;
        for (i, block) in blocks.iter_mut().enumerate() {
            block.drop = DROP_PATH * i as f32 / all;
        }
        blocks
    }
}

impl Block {
    /// Ends the branch, and adds the block's input if the shape is unchanged.
    fn end(&self, net: &mut NetSpec, name: &str, norm: Norm, channels: usize, y: Id, x: Id) -> Id {
        match self.stride == 1 && channels == self.out {
            true => norm_add(net, name, norm, self.drop, y, x),
            false => net.add(name, norm, y),
        }
    }

    fn torchvision(&self, net: &mut NetSpec, path: &str, channels: usize, x: Id) -> Id {
        let (wide, silu) = (channels * self.expansion, Activation::Silu);
        let unit = |net: &mut NetSpec, at: usize, conv, y| {
            let names = [format!("{path}.{at}.0"), format!("{path}.{at}.1")];
            conv_norm_act(net, [&names[0], &names[1]], conv, Norm::new(), Some(silu), y)
        };
        let widens = usize::from(self.expansion > 1);
        let y = if widens == 1 { unit(net, 0, conv(wide, 1, 1), x) } else { x };
        let y = unit(net, widens, conv(wide, self.kernel, self.stride).groups(wide), y);
        let init = [Init::HeNormalFanOut, Init::Constant(0.0)];
        let se = SqueezeExcite { channels: (channels / 4).max(1), act: silu, gate: Activation::Sigmoid, init };
        let y = se.add(net, &format!("{path}.{}", widens + 1), wide, y);
        let last = format!("{path}.{}", widens + 2);
        let y = net.add(&format!("{last}.0"), conv(self.out, 1, 1), y);
        self.end(net, &format!("{last}.1"), Norm::new(), channels, y, x)
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
        self.end(net, &name(&format!("bn{}", norm + 1)), lite_norm(), channels, y, x)
    }
}

fn lite_norm() -> Norm {
    Norm { eps: 1e-3, ..Norm::new() }
}

/// Returns a convolution without padding, which is set later from the input size.
fn lite_conv(channels: usize, k: usize, stride: usize) -> Conv {
    Conv::new(channels, k).stride(stride).init(Init::HeNormalFanOut)
}

fn lite_unit(net: &mut NetSpec, names: [&str; 2], conv: Conv, x: Id) -> Id {
    let conv = same(net, conv, x);
    conv_norm_act(net, names, conv, lite_norm(), Some(Activation::Relu6), x)
}
