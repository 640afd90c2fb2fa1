//! GoogLeNet (Szegedy et al. 2014, arXiv 1409.4842, table 1) with batch norm, as in torchvision: 3x3 convolutions where
//! the paper has 5x5, and two auxiliary classifiers.

use super::blocks::{classify, max_pool};
use super::inception::{Builder, square};
use crate::{Conv, Dropout, Flatten, Id, Init, Linear, NetSpec, Pool, Shape};

/// Weight of each auxiliary classifier's loss (section 5).
const AUXILIARY: f32 = 0.3;

/// Channels in a module: 1x1, then 1x1 and 3x3 of the second branch, 1x1 and 3x3 of the third branch, and 1x1 after the
/// pool.
type Widths = [usize; 6];

/// Modules by name. A pool follows 3b and 4e, and auxiliary classifiers read 4a and 4d.
const MODULES: [(&str, Widths); 9] = [
    ("3a", [64, 96, 128, 16, 32, 32]),
    ("3b", [128, 128, 192, 32, 96, 64]),
    ("4a", [192, 96, 208, 16, 48, 64]),
    ("4b", [160, 112, 224, 24, 64, 64]),
    ("4c", [128, 128, 256, 24, 64, 64]),
    ("4d", [112, 144, 288, 32, 64, 64]),
    ("4e", [256, 160, 320, 32, 128, 128]),
    ("5a", [256, 160, 320, 32, 128, 128]),
    ("5b", [384, 192, 384, 48, 128, 128]),
];

/// Creates a network with these layers: conv 7x7/2-64, pool, conv 1x1-64, conv 3x3-192, pool, the modules, mean,
/// dropout 0.2, fc.
pub fn torchvision(name: &str, input: Shape, classes: usize) -> NetSpec {
    let mut b = Builder::new(name, input, START);
    let image = b.net.image();
    let x = b.unit("conv1", Conv::new(64, 7).stride(2).pad(3), image);
    let x = b.net.add("maxpool1", max_pool(3, 2).ceil(), x);
    let x = b.unit("conv2", square(64, 1), x);
    let x = b.unit("conv3", square(192, 3), x);
    let mut x = b.net.add("maxpool2", max_pool(3, 2).ceil(), x);
    for (name, widths) in MODULES {
        x = module(&mut b, &format!("inception{name}"), widths, x);
        match name {
            "3b" => x = b.net.add("maxpool3", max_pool(3, 2).ceil(), x),
            "4a" => auxiliary(&mut b, "aux1", classes, x),
            "4d" => auxiliary(&mut b, "aux2", classes, x),
            "4e" => x = b.net.add("maxpool4", max_pool(2, 2).ceil(), x),
            _ => {}
        }
    }
    classify(&mut b.net, "fc", 0.2, full(classes), x);
    b.net
}

const START: Init = Init::Normal(0.01);

fn full(features: usize) -> Linear {
    Linear::new(features).init(START).bias_from(Init::UniformFanIn)
}

fn module(b: &mut Builder, path: &str, [one, before3, three, before5, five, behind]: Widths, x: Id) -> Id {
    let first = b.unit(&format!("{path}.branch1"), square(one, 1), x);
    let second = b.row(&format!("{path}.branch2."), 0, [square(before3, 1), square(three, 3)], x);
    let third = b.row(&format!("{path}.branch3."), 0, [square(before5, 1), square(five, 3)], x);
    let pool = max_pool(3, 1).pads([1; 4]).ceil();
    let y = b.net.add(&format!("{path}.branch4.0"), pool, x);
    let fourth = b.unit(&format!("{path}.branch4.1"), square(behind, 1), y);
    b.concat(path, &[first, second, third, fourth])
}

/// Adds an auxiliary classifier: mean over 4x4 areas, conv 1x1-128, fc 1024, dropout 0.7, fc.
fn auxiliary(b: &mut Builder, path: &str, classes: usize, x: Id) {
    let name = |part: &str| format!("{path}.{part}");
    let x = b.net.add(&name("avgpool"), Pool::adaptive(4), x);
    let x = b.unit(&name("conv"), square(128, 1), x);
    let x = b.net.add(&name("flatten"), Flatten, x);
    let x = b.net.add(&name("fc1"), full(1024).relu(), x);
    let x = b.net.add(&name("dropout"), Dropout(0.7), x);
    let scores = b.net.add(&name("fc2"), full(classes), x);
    b.net.head(scores, AUXILIARY);
}
