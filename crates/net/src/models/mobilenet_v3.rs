//! MobileNet v3 (Howard et al. 2019, arXiv 1905.02244, tables 1 and 2), as torchvision defines it.

use super::blocks::{SqueezeExcite, conv, conv_norm_act, norm_act, scaled};
use crate::Activation::{HardSigmoid, HardSwish, Relu};
use crate::{Activation, Dropout, Flatten, Id, Init, Linear, NetSpec, Norm, Pool, Shape};

/// A row of the tables: kernel, channels inside, channels that come out, squeeze and excitation, activation, stride.
type Row = (usize, usize, usize, bool, Activation, usize);

/// The paper's larger network.
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

/// The paper's smaller network.
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

/// conv 3x3/2-16, the rows, conv 1x1 to six times the channels, mean, fc `hidden`, dropout 0.2, fc.
pub fn torchvision(name: &str, input: Shape, classes: usize, rows: &[Row], hidden: usize) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let (swish, image) = (Some(HardSwish), net.image());
    let mut x = conv_norm_act(&mut net, ["features.0.0", "features.0.1"], conv(16, 3, 2), norm(), swish, image);
    let mut channels = 16;
    for (at, row) in (1..).zip(rows) {
        x = bottleneck(&mut net, &format!("features.{at}.block"), row, channels, x);
        channels = row.2;
    }
    let last = format!("features.{}", rows.len() + 1);
    let names = [format!("{last}.0"), format!("{last}.1")];
    let x = conv_norm_act(&mut net, [&names[0], &names[1]], conv(6 * channels, 1, 1), norm(), swish, x);
    let x = net.add("avgpool", Pool::global(), x);
    let x = net.add("flatten", Flatten, x);
    let full = |features| Linear::new(features).init(Init::Normal(0.01));
    let x = net.add("classifier.0", full(hidden), x);
    let x = net.add("classifier.1", HardSwish, x);
    let x = net.add("classifier.2", Dropout(0.2), x);
    net.add("classifier.3", full(classes), x);
    net
}

fn norm() -> Norm {
    Norm { eps: 1e-3, momentum: 0.01, ..Norm::new() }
}

/// An inverted residual: 1x1 to more channels where there are more, k x k on each channel alone, squeeze and excitation, 1x1.
fn bottleneck(net: &mut NetSpec, path: &str, row: &Row, channels: usize, x: Id) -> Id {
    let &(k, wide, out, squeezes, act, stride) = row;
    let (mut y, mut at) = (x, 0);
    let mut place = || {
        at += 1;
        format!("{path}.{}", at - 1)
    };
    let unit = |net: &mut NetSpec, path: &str, conv, act, y| {
        let names = [format!("{path}.0"), format!("{path}.1")];
        conv_norm_act(net, [&names[0], &names[1]], conv, norm(), act, y)
    };
    if wide != channels {
        y = unit(net, &place(), conv(wide, 1, 1), Some(act), y);
    }
    y = unit(net, &place(), conv(wide, k, stride).groups(wide), Some(act), y);
    if squeezes {
        let init = [Init::HeNormalFanOut, Init::Constant(0.0)];
        let se = SqueezeExcite { channels: scaled(wide, 0.25), act: Relu, gate: HardSigmoid, init };
        y = se.add(net, &place(), wide, y);
    }
    let last = place();
    y = net.add(&format!("{last}.0"), conv(out, 1, 1), y);
    let name = format!("{last}.1");
    if stride == 1 && channels == out {
        net.join(&name, norm().residual(), &[y, x])
    } else {
        norm_act(net, &name, norm(), None, y)
    }
}
