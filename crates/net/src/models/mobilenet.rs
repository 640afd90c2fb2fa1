//! MobileNet v1, v2 and v3.

use super::blocks::{
    InvertedResidual, SqueezeExcite, classify, conv, conv_norm_act, norm_add, scaled, uniform_scores, unit,
};
use crate::Activation::{HardSigmoid, HardSwish, Relu};
use crate::{Activation, Dropout, Flatten, Id, Init, Linear, NetSpec, Norm, Pool, Shape};

// MobileNet v1 (Howard et al. 2017, arXiv 1704.04861, table 1) as in timm.

/// Stages: channels, blocks, first block's stride.
const V1_STAGES: [(usize, usize, usize); 5] = [(64, 1, 1), (128, 2, 2), (256, 2, 2), (512, 6, 2), (1024, 2, 2)];

/// Creates a network with these layers: conv 3x3/2-32, then 3x3 depthwise and 1x1 thirteen times, mean, fc.
pub fn v1(name: &str, input: Shape, classes: usize) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let unit = |net: &mut NetSpec, names: [&str; 2], conv, x| {
        conv_norm_act(net, names, conv, Norm::new(), Some(Activation::Relu6), x)
    };
    let image = net.image();
    let mut x = unit(&mut net, ["conv_stem", "bn1"], conv(32, 3, 2), image);
    let mut channels = 32;
    for (stage, (out, blocks, stride)) in V1_STAGES.into_iter().enumerate() {
        for block in 0..blocks {
            let name = |part: &str| format!("blocks.{stage}.{block}.{part}");
            let stride = if block == 0 { stride } else { 1 };
            let depthwise = conv(channels, 3, stride).groups(channels).init(Init::HeNormalFanIn);
            x = unit(&mut net, [&name("conv_dw"), &name("bn1")], depthwise, x);
            x = unit(&mut net, [&name("conv_pw"), &name("bn2")], conv(out, 1, 1), x);
            channels = out;
        }
    }
    classify(&mut net, "classifier", 0.0, uniform_scores(classes), x);
    net
}

// MobileNet v2 (Sandler et al. 2018, arXiv 1801.04381, table 2) as in torchvision.

/// Stages: expansion factor, output channels, blocks, first block's stride.
const V2_STAGES: [(usize, usize, usize, usize); 7] =
    [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)];

const RELU6: Option<Activation> = Some(Activation::Relu6);

/// Creates a network with these layers: conv 3x3/2-32, inverted residuals, conv 1x1-1280, mean, dropout 0.2, fc.
pub fn v2(name: &str, input: Shape, classes: usize) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let image = net.image();
    let mut x = unit(&mut net, "features.0", conv(32, 3, 2), Norm::new(), RELU6, image);
    let (mut channels, mut at) = (32, 1);
    for (expansion, out, blocks, stride) in V2_STAGES {
        for block in 0..blocks {
            let stride = if block == 0 { stride } else { 1 };
            let path = format!("features.{at}.conv");
            x = inverted_residual(&mut net, &path, [channels, out], expansion, stride, x);
            (channels, at) = (out, at + 1);
        }
    }
    let x = unit(&mut net, "features.18", conv(1280, 1, 1), Norm::new(), RELU6, x);
    classify(&mut net, "classifier.1", 0.2, Linear::new(classes).init(Init::Normal(0.01)), x);
    net
}

/// Adds a 1x1 convolution to more channels (unless the expansion factor is 1), a 3x3 depthwise convolution, and a 1x1
/// convolution to few channels, which has no activation. If the shape is unchanged, also adds the block's input.
fn inverted_residual(
    net: &mut NetSpec,
    path: &str,
    [channels, out]: [usize; 2],
    expansion: usize,
    stride: usize,
    x: Id,
) -> Id {
    let wide = channels * expansion;
    let (mut y, mut at) = (x, 0);
    if expansion > 1 {
        y = unit(net, &format!("{path}.0"), conv(wide, 1, 1), Norm::new(), RELU6, y);
        at = 1;
    }
    y = unit(net, &format!("{path}.{at}"), conv(wide, 3, stride).groups(wide), Norm::new(), RELU6, y);
    y = net.add(&format!("{path}.{}", at + 1), conv(out, 1, 1), y);
    let shortcut = (stride == 1 && channels == out).then_some(x);
    norm_add(net, &format!("{path}.{}", at + 2), Norm::new(), 0.0, y, shortcut)
}

// MobileNet v3 (Howard et al. 2019, arXiv 1905.02244, tables 1 and 2) as in torchvision.

/// A row of the paper's tables: kernel, inner channels, output channels, squeeze and excitation, activation, stride.
type Row = (usize, usize, usize, bool, Activation, usize);

pub const LARGE: &[Row] = &[
    (3, 16, 16, false, Relu, 1),
    (3, 64, 24, false, Relu, 2),
    (3, 72, 24, false, Relu, 1),
    (5, 72, 40, true, Relu, 2),
    (5, 120, 40, true, Relu, 1),
    (5, 120, 40, true, Relu, 1),
    (3, 240, 80, false, HardSwish, 2),
    (3, 200, 80, false, HardSwish, 1),
    (3, 184, 80, false, HardSwish, 1),
    (3, 184, 80, false, HardSwish, 1),
    (3, 480, 112, true, HardSwish, 1),
    (3, 672, 112, true, HardSwish, 1),
    (5, 672, 160, true, HardSwish, 2),
    (5, 960, 160, true, HardSwish, 1),
    (5, 960, 160, true, HardSwish, 1),
];

pub const SMALL: &[Row] = &[
    (3, 16, 16, true, Relu, 2),
    (3, 72, 24, false, Relu, 2),
    (3, 88, 24, false, Relu, 1),
    (5, 96, 40, true, HardSwish, 2),
    (5, 240, 40, true, HardSwish, 1),
    (5, 240, 40, true, HardSwish, 1),
    (5, 120, 48, true, HardSwish, 1),
    (5, 144, 48, true, HardSwish, 1),
    (5, 288, 96, true, HardSwish, 2),
    (5, 576, 96, true, HardSwish, 1),
    (5, 576, 96, true, HardSwish, 1),
];

/// Creates a network with these layers: conv 3x3/2-16, the rows, conv 1x1 to six times the channels, mean, fc `hidden`,
/// dropout 0.2, fc.
pub fn v3(name: &str, input: Shape, classes: usize, rows: &[Row], hidden: usize) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let (swish, image) = (Some(HardSwish), net.image());
    let mut x = unit(&mut net, "features.0", conv(16, 3, 2), v3_norm(), swish, image);
    let mut channels = 16;
    for (at, row) in (1..).zip(rows) {
        x = bottleneck(row, channels).add(&mut net, &format!("features.{at}.block"), x);
        channels = row.2;
    }
    let last = format!("features.{}", rows.len() + 1);
    let x = unit(&mut net, &last, conv(6 * channels, 1, 1), v3_norm(), swish, x);
    let x = net.add("avgpool", Pool::global(), x);
    let x = net.add("flatten", Flatten, x);
    let full = |features| Linear::new(features).init(Init::Normal(0.01));
    let x = net.add("classifier.0", full(hidden), x);
    let x = net.add("classifier.1", HardSwish, x);
    let x = net.add("classifier.2", Dropout(0.2), x);
    net.add("classifier.3", full(classes), x);
    net
}

fn v3_norm() -> Norm {
    Norm { eps: 1e-3, momentum: 0.01, ..Norm::new() }
}

fn bottleneck(&(kernel, wide, out, squeezes, act, stride): &Row, channels: usize) -> InvertedResidual {
    let init = [Init::HeNormalFanOut, Init::Constant(0.0)];
    let squeeze = SqueezeExcite { channels: scaled(wide, 0.25), act: Relu, gate: HardSigmoid, init };
    let squeeze = squeezes.then_some(squeeze);
    InvertedResidual { channels, wide, kernel, stride, out, act, squeeze, norm: v3_norm(), drop: 0.0 }
}
