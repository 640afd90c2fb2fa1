//! Residual networks (He et al. 2015, arXiv 1512.03385): for 32x32 images (section 4.2), and for ImageNet as in
//! torchvision, with the stride of bottlenecks in the 3x3 convolution ("v1.5"). Wide networks (Zagoruyko and Komodakis
//! 2016, arXiv 1605.07146), ResNeXt (Xie et al. 2016, arXiv 1611.05431) and SE-ResNet (Hu et al. 2018, arXiv
//! 1709.01507) differ inside the bottleneck.

use super::blocks::{SqueezeExcite, classify, conv, max_pool};
use crate::{Activation, Add, Conv, Dropout, Id, Init, Linear, NetSpec, Norm, Shape, Shortcut};

fn conv3(channels: usize, stride: usize) -> Conv {
    conv(channels, 3, stride)
}

fn norm_relu() -> Norm {
    Norm::new().relu()
}

/// Returns a network with 6N + 2 layers: three stages of N blocks with 16, 32 and 64 channels, and shortcuts without
/// parameters (option A).
pub fn cifar<const N: usize>(name: &str, input: Shape, classes: usize) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let x = net.add("conv1", conv3(16, 1), net.image());
    let mut x = net.add("bn1", norm_relu(), x);
    let mut channels = 16;
    for (stage, width) in [16, 32, 64].into_iter().enumerate() {
        for block in 0..N {
            x = basic_block(&mut net, &format!("layer{}.{block}", stage + 1), x, channels, width);
            channels = width;
        }
    }
    classify(&mut net, "fc", 0.0, Linear::new(classes), x);
    net
}

/// Adds conv, norm, ReLU, conv, norm, then the sum with the shortcut, and ReLU. Halves height and width if the number
/// of channels grows.
fn basic_block(net: &mut NetSpec, path: &str, x: Id, channels: usize, width: usize) -> Id {
    let stride = if channels == width { 1 } else { 2 };
    let y = net.add(&format!("{path}.conv1"), conv3(width, stride), x);
    let y = net.add(&format!("{path}.bn1"), norm_relu(), y);
    let y = net.add(&format!("{path}.conv2"), conv3(width, 1), y);
    let shortcut = Shortcut { out_channels: width, stride };
    let x = if stride == 1 { x } else { net.add(&format!("{path}.shortcut"), shortcut, x) };
    net.join(&format!("{path}.bn2"), Norm::new().residual().relu(), &[y, x])
}

/// The kind of blocks in a network for ImageNet.
#[derive(Clone, Copy)]
pub enum Kind {
    /// Two 3x3 convolutions with the stage's channels.
    Basic,
    /// A 1x1 convolution, a 3x3 convolution, and a 1x1 convolution to four times the stage's channels.
    Bottleneck {
        /// Groups of the 3x3 convolution.
        groups: usize,
        /// Channels per group in the first stage.
        width: usize,
        /// True if the branch ends with squeeze and excitation.
        squeezes: bool,
    },
}

/// The bottleneck of He et al.
pub const BOTTLENECK: Kind = Kind::Bottleneck { groups: 1, width: 64, squeezes: false };
/// A bottleneck with twice as many inner channels.
pub const WIDE: Kind = Kind::Bottleneck { groups: 1, width: 128, squeezes: false };
/// The bottleneck with squeeze and excitation, as in timm.
pub const SQUEEZE: Kind = Kind::Bottleneck { groups: 1, width: 64, squeezes: true };

/// Returns the ResNeXt block with `groups` groups of `width` channels.
pub const fn grouped(groups: usize, width: usize) -> Kind {
    Kind::Bottleneck { groups, width, squeezes: false }
}

/// Returns a network for ImageNet with these numbers of blocks in the stages with 64, 128, 256 and 512 channels.
pub fn imagenet(name: &str, input: Shape, classes: usize, blocks: [usize; 4], kind: Kind) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let x = net.add("conv1", conv(64, 7, 2), net.image());
    let x = net.add("bn1", norm_relu(), x);
    let mut x = net.add("maxpool", max_pool(3, 2).pads([1; 4]), x);
    let mut channels = 64;
    for (stage, (planes, blocks)) in [64, 128, 256, 512].into_iter().zip(blocks).enumerate() {
        for block in 0..blocks {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let block = Block { planes, kind, stride, path: format!("layer{}.{block}", stage + 1) };
            x = block.add(&mut net, channels, x);
            channels = block.out();
        }
    }
    classify(&mut net, "fc", 0.0, Linear::new(classes).bias_from(Init::UniformFanIn), x);
    net
}

struct Block {
    planes: usize,
    kind: Kind,
    /// Stride of the projection and the first 3x3 convolution.
    stride: usize,
    path: String,
}

impl Block {
    /// Returns the number of output channels.
    fn out(&self) -> usize {
        match self.kind {
            Kind::Basic => self.planes,
            Kind::Bottleneck { .. } => 4 * self.planes,
        }
    }

    /// Returns the convolutions of the residual branch in order.
    fn branch(&self) -> Vec<Conv> {
        match self.kind {
            Kind::Basic => vec![conv3(self.planes, self.stride), conv3(self.out(), 1)],
            Kind::Bottleneck { groups, width, .. } => {
                let wide = self.planes * width / 64 * groups;
                vec![conv(wide, 1, 1), conv3(wide, self.stride).groups(groups), conv(self.out(), 1, 1)]
            }
        }
    }

    fn add(&self, net: &mut NetSpec, channels: usize, x: Id) -> Id {
        let name = |part: &str| format!("{}.{part}", self.path);
        let branch = self.branch();
        let last = branch.len();
        let mut y = x;
        for (i, conv) in (1..).zip(branch) {
            y = net.add(&name(&format!("conv{i}")), conv, y);
            if i < last {
                y = net.add(&name(&format!("bn{i}")), norm_relu(), y);
            }
        }
        let norm = name(&format!("bn{last}"));
        if matches!(self.kind, Kind::Bottleneck { squeezes: true, .. }) {
            let y = self.squeeze(net, &norm, y);
            let shortcut = self.shortcut(net, channels, x);
            let sum = net.join(&name("add"), Add, &[y, shortcut]);
            return net.add(&name("act3"), Activation::Relu, sum);
        }
        let shortcut = self.shortcut(net, channels, x);
        net.join(&norm, Norm::new().residual().relu(), &[y, shortcut])
    }

    /// Adds the branch's last norm, and squeeze and excitation with a sixteenth of the channels.
    fn squeeze(&self, net: &mut NetSpec, norm: &str, y: Id) -> Id {
        let y = net.add(norm, Norm::new(), y);
        let init = [Init::HeNormalFanOut, Init::UniformFanIn];
        let (act, gate) = (Activation::Relu, Activation::Sigmoid);
        let squeeze = SqueezeExcite { channels: self.out() / 16, act, gate, init };
        squeeze.add(net, &format!("{}.se", self.path), self.out(), y)
    }

    /// Returns the block's input, projected by a 1x1 convolution and a norm if the shape changes.
    fn shortcut(&self, net: &mut NetSpec, channels: usize, x: Id) -> Id {
        if self.stride == 1 && channels == self.out() {
            return x;
        }
        let x = net.add(&format!("{}.downsample.0", self.path), conv(self.out(), 1, self.stride), x);
        net.add(&format!("{}.downsample.1", self.path), Norm::new(), x)
    }
}

// Residual networks whose blocks begin with a norm (He et al. 2016, arXiv 1603.05027), with the stride in the 3x3
// convolution, as in timm. The layer that computes the scores is a linear layer, where timm has a 1x1 convolution.

/// Returns a network with these numbers of bottlenecks in the stages with 256, 512, 1024 and 2048 channels.
pub fn preactivated(name: &str, input: Shape, classes: usize, blocks: [usize; 4]) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let x = net.add("stem.conv", conv(64, 7, 2), net.image());
    let mut x = net.add("stem.pool", max_pool(3, 2).pads([1; 4]), x);
    for (stage, (channels, blocks)) in [256, 512, 1024, 2048].into_iter().zip(blocks).enumerate() {
        for block in 0..blocks {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let path = format!("stages.{stage}.blocks.{block}");
            x = preactivated_bottleneck(&mut net, &path, channels, stride, block == 0, x);
        }
    }
    let x = net.add("norm", Norm::new().relu(), x);
    classify(&mut net, "head.fc", 0.0, Linear::new(classes).init(Init::Normal(0.01)), x);
    net
}

/// Adds norm, ReLU and convolution three times, then the sum with the input. In a stage's first block, which has
/// `projects` set, the sum has a projection of the first norm's output instead of the input.
fn preactivated_bottleneck(net: &mut NetSpec, path: &str, channels: usize, stride: usize, projects: bool, x: Id) -> Id {
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

// Wide residual networks for 32x32 images (Zagoruyko and Komodakis 2016, arXiv 1605.07146), WRN-depth-width.

/// Returns a network with three stages of `(depth - 4) / 6` blocks that begin with a norm. The stages have 16, 32 and
/// 64 times `width` channels.
pub fn wide_cifar(name: &str, input: Shape, classes: usize, depth: usize, width: usize, dropout: f32) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let mut x = net.add("conv1", conv(16, 3, 1), net.image());
    let mut channels = 16;
    for (stage, base) in [16, 32, 64].into_iter().enumerate() {
        for block in 0..(depth - 4) / 6 {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let out = base * width;
            let path = format!("block{}.{block}", stage + 1);
            x = wide_block(&mut net, &path, [channels, out], stride, dropout, x);
            channels = out;
        }
    }
    let x = net.add("bn1", Norm::new().relu(), x);
    classify(&mut net, "fc", 0.0, Linear::new(classes), x);
    net
}

/// Adds norm, ReLU, conv 3x3, norm, ReLU, dropout unless its rate is 0, and conv 3x3. Then adds the input or, if the
/// number of channels changes, a projection of the first norm's output.
fn wide_block(net: &mut NetSpec, path: &str, [channels, out]: [usize; 2], stride: usize, dropout: f32, x: Id) -> Id {
    let name = |part: &str| format!("{path}.{part}");
    let first = net.add(&name("bn1"), norm_relu(), x);
    let shortcut = if channels == out { x } else { net.add(&name("shortcut"), conv(out, 1, stride), first) };
    let y = net.add(&name("conv1"), conv3(out, stride), first);
    let y = net.add(&name("bn2"), norm_relu(), y);
    let y = if dropout > 0.0 { net.add(&name("dropout"), Dropout(dropout), y) } else { y };
    let y = net.add(&name("conv2"), conv3(out, 1), y);
    net.join(&name("add"), Add, &[y, shortcut])
}
