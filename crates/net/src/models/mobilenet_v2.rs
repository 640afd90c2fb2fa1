//! MobileNet v2 (Sandler et al. 2018, arXiv 1801.04381, table 2), as torchvision defines it.

use super::blocks::{classify, conv, conv_norm_act};
use crate::{Activation, Id, Init, Linear, NetSpec, Norm, Shape};

/// Blocks of one width: factor of the expansion, channels that come out, number, stride of the first.
const STAGES: [(usize, usize, usize, usize); 7] =
    [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)];

const RELU6: Option<Activation> = Some(Activation::Relu6);

/// conv 3x3/2-32, inverted residuals, conv 1x1-1280, mean, dropout 0.2, fc.
pub fn torchvision(name: &str, input: Shape, classes: usize) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let image = net.image();
    let mut x = conv_norm_act(&mut net, ["features.0.0", "features.0.1"], conv(32, 3, 2), Norm::new(), RELU6, image);
    let (mut channels, mut at) = (32, 1);
    for (expansion, out, blocks, stride) in STAGES {
        for block in 0..blocks {
            let stride = if block == 0 { stride } else { 1 };
            let shape = InvertedResidual { channels, expansion, out, stride };
            x = shape.add(&mut net, &format!("features.{at}.conv"), x);
            (channels, at) = (out, at + 1);
        }
    }
    let x = conv_norm_act(&mut net, ["features.18.0", "features.18.1"], conv(1280, 1, 1), Norm::new(), RELU6, x);
    classify(&mut net, "classifier.1", 0.2, Linear::new(classes).init(Init::Normal(0.01)), x);
    net
}

/// Wide inside, narrow at both ends, where the shortcut is.
struct InvertedResidual {
    channels: usize,
    expansion: usize,
    out: usize,
    stride: usize,
}

impl InvertedResidual {
    /// 1x1 to more channels, 3x3 on each channel alone, 1x1 to few without an activation; plus the input where the shape stays.
    fn add(&self, net: &mut NetSpec, path: &str, x: Id) -> Id {
        let wide = self.channels * self.expansion;
        let (mut y, mut at) = (x, 0);
        let mut unit = |net: &mut NetSpec, conv, y| {
            let names = [format!("{path}.{at}.0"), format!("{path}.{at}.1")];
            at += 1;
            conv_norm_act(net, [&names[0], &names[1]], conv, Norm::new(), RELU6, y)
        };
        if self.expansion > 1 {
            y = unit(net, conv(wide, 1, 1), y);
        }
        y = unit(net, conv(wide, 3, self.stride).groups(wide), y);
        let y = net.add(&format!("{path}.{at}"), conv(self.out, 1, 1), y);
        let norm = format!("{path}.{}", at + 1);
        if self.stride == 1 && self.channels == self.out {
            net.join(&norm, Norm::new().residual(), &[y, x])
        } else {
            net.add(&norm, Norm::new(), y)
        }
    }
}
