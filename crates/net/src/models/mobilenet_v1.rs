//! MobileNet v1 (Howard et al. 2017, arXiv 1704.04861, table 1), as timm defines it.

use super::blocks::{classify, conv, conv_norm_act};
use crate::{Activation, Init, Linear, NetSpec, Norm, Shape};

/// Stages of blocks: channels, number, stride of the first.
const STAGES: [(usize, usize, usize); 5] = [(64, 1, 1), (128, 2, 2), (256, 2, 2), (512, 6, 2), (1024, 2, 2)];

/// conv 3x3/2-32, then 3x3 on each channel alone and 1x1, thirteen times; mean, fc.
pub fn timm(name: &str, input: Shape, classes: usize) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let unit = |net: &mut NetSpec, names: [&str; 2], conv, x| {
        conv_norm_act(net, names, conv, Norm::new(), Some(Activation::Relu6), x)
    };
    let image = net.image();
    let mut x = unit(&mut net, ["conv_stem", "bn1"], conv(32, 3, 2), image);
    let mut channels = 32;
    for (stage, (out, blocks, stride)) in STAGES.into_iter().enumerate() {
        for block in 0..blocks {
            let name = |part: &str| format!("blocks.{stage}.{block}.{part}");
            let stride = if block == 0 { stride } else { 1 };
            let depthwise = conv(channels, 3, stride).groups(channels).init(Init::HeNormalFanIn);
            x = unit(&mut net, [&name("conv_dw"), &name("bn1")], depthwise, x);
            x = unit(&mut net, [&name("conv_pw"), &name("bn2")], conv(out, 1, 1), x);
            channels = out;
        }
    }
    let scores = Linear::new(classes).init(Init::Uniform(1.0 / (classes.max(1) as f32).sqrt()));
    classify(&mut net, "classifier", 0.0, scores, x);
    net
}
