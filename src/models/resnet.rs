//! Residual networks (He et al. 2015, arXiv 1512.03385): those for 32x32 images (section 4.2), and those for ImageNet in the
//! form of torchvision, whose bottlenecks take their stride in the 3x3 convolution ("v1.5").

use crate::nn::spec::{Conv, Flatten, Id, Init, Linear, NetSpec, Norm, Pool, PoolKind, Shape, Shortcut};

/// A convolution that keeps the plane, but for its stride; no bias, since a norm follows.
fn conv(channels: usize, k: usize, stride: usize) -> Conv {
    Conv::new(channels, k).stride(stride).pad(k / 2).init(Init::HeNormalFanOut)
}

fn conv3(channels: usize, stride: usize) -> Conv {
    conv(channels, 3, stride)
}

fn norm_relu() -> Norm {
    Norm::new().relu()
}

/// 6N + 2 layers: three stages of N blocks with 16, 32, 64 channels and parameter-free shortcuts (option A).
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
    let x = net.add("avgpool", Pool::global(), x);
    let x = net.add("flatten", Flatten, x);
    net.add("fc", Linear::new(classes), x);
    net
}

/// conv, norm, ReLU, conv, norm, + shortcut, ReLU; halves the plane where the width grows.
fn basic_block(net: &mut NetSpec, path: &str, x: Id, channels: usize, width: usize) -> Id {
    let stride = if channels == width { 1 } else { 2 };
    let y = net.add(&format!("{path}.conv1"), conv3(width, stride), x);
    let y = net.add(&format!("{path}.bn1"), norm_relu(), y);
    let y = net.add(&format!("{path}.conv2"), conv3(width, 1), y);
    let shortcut = Shortcut { out_channels: width, stride };
    let x = if stride == 1 { x } else { net.add(&format!("{path}.shortcut"), shortcut, x) };
    net.join(&format!("{path}.bn2"), Norm::new().residual().relu(), &[y, x])
}

/// ImageNet's with basic blocks: so many in each of the stages of 64, 128, 256, 512 channels.
pub fn basic<const A: usize, const B: usize, const C: usize, const D: usize>(
    name: &str,
    input: Shape,
    classes: usize,
) -> NetSpec {
    imagenet(name, input, classes, [A, B, C, D], 1)
}

/// ImageNet's with bottlenecks, which give four times their width.
pub fn bottleneck<const A: usize, const B: usize, const C: usize, const D: usize>(
    name: &str,
    input: Shape,
    classes: usize,
) -> NetSpec {
    imagenet(name, input, classes, [A, B, C, D], 4)
}

fn imagenet(name: &str, input: Shape, classes: usize, blocks: [usize; 4], expansion: usize) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let x = net.add("conv1", conv(64, 7, 2), net.image());
    let x = net.add("bn1", norm_relu(), x);
    let mut x = net.add("maxpool", Pool::new(PoolKind::Max, 3, 2).pads([1; 4]), x);
    let mut channels = 64;
    for (stage, (width, blocks)) in [64, 128, 256, 512].into_iter().zip(blocks).enumerate() {
        for block in 0..blocks {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let shape = Block { width, expansion, stride, projects: stride > 1 || channels != width * expansion };
            x = shape.add(&mut net, &format!("layer{}.{block}", stage + 1), x);
            channels = width * expansion;
        }
    }
    let x = net.add("avgpool", Pool::global(), x);
    let x = net.add("flatten", Flatten, x);
    net.add("fc", Linear::new(classes).bias_from(Init::UniformFanIn), x);
    net
}

/// A residual block of ImageNet's networks.
struct Block {
    /// Channels of its 3x3 convolutions.
    width: usize,
    /// 1: two 3x3 convolutions. 4: 1x1, 3x3, and 1x1 to four times the width.
    expansion: usize,
    /// Of its first 3x3 convolution, and of the projection.
    stride: usize,
    /// Whether the shortcut is a 1x1 convolution with a norm, since the shape changes.
    projects: bool,
}

impl Block {
    fn add(&self, net: &mut NetSpec, path: &str, x: Id) -> Id {
        let out = self.width * self.expansion;
        let branch = match self.expansion {
            1 => vec![conv3(self.width, self.stride), conv3(out, 1)],
            _ => vec![conv(self.width, 1, 1), conv3(self.width, self.stride), conv(out, 1, 1)],
        };
        let last = branch.len();
        let mut y = x;
        for (i, conv) in (1..).zip(branch) {
            y = net.add(&format!("{path}.conv{i}"), conv, y);
            if i < last {
                y = net.add(&format!("{path}.bn{i}"), norm_relu(), y);
            }
        }
        let mut shortcut = x;
        if self.projects {
            shortcut = net.add(&format!("{path}.downsample.0"), conv(out, 1, self.stride), shortcut);
            shortcut = net.add(&format!("{path}.downsample.1"), Norm::new(), shortcut);
        }
        net.join(&format!("{path}.bn{last}"), Norm::new().residual().relu(), &[y, shortcut])
    }
}
