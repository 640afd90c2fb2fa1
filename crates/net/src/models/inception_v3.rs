//! Inception v3 (Szegedy et al. 2015, arXiv 1512.00567), as torchvision and as TF-slim define it, with an auxiliary classifier.

use super::blocks::{classify, max_pool};
use super::inception::{Builder, same, square, valid};
use crate::{Flatten, Id, Init, Linear, NetSpec, Norm, Pool, PoolKind, Shape};

/// Whose arrangement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Arrangement {
    /// Average pools count their padding, norms have a scale; dropout 0.5.
    Torchvision,
    /// Average pools do not count it, norms have a shift alone, statistics average over 3,333 steps; dropout 0.2.
    Slim,
}

/// Weight of the auxiliary classifier's loss.
const AUXILIARY: f32 = 0.4;

/// For images of 299; the auxiliary classifier sees 17x17 there, which is the least that it takes.
pub fn build(name: &str, input: Shape, classes: usize, arrangement: Arrangement) -> NetSpec {
    let slim = arrangement == Arrangement::Slim;
    let kind = if slim { PoolKind::Avg } else { PoolKind::AvgCountPad };
    let norm = Norm { eps: 1e-3, momentum: if slim { 3e-4 } else { 0.1 }, scale: !slim, ..Norm::new() };
    let average = Pool::new(kind, 3, 1).pads([1; 4]);
    let mut b = Builder { net: NetSpec::new(name, input), norm, init: START, average };
    let mut x = stem(&mut b);
    for (name, pool) in [("Mixed_5b", 32), ("Mixed_5c", 64), ("Mixed_5d", 64)] {
        x = module_a(&mut b, name, pool, x);
    }
    x = module_b(&mut b, "Mixed_6a", x);
    for (name, channels) in [("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)] {
        x = module_c(&mut b, name, channels, x);
    }
    auxiliary(&mut b, classes, x);
    x = module_d(&mut b, "Mixed_7a", x);
    x = module_e(&mut b, "Mixed_7b", x);
    x = module_e(&mut b, "Mixed_7c", x);
    classify(&mut b.net, "fc", if slim { 0.2 } else { 0.5 }, full(classes).init(START), x);
    b.net
}

const START: Init = Init::Normal(0.1);

fn full(features: usize) -> Linear {
    Linear::new(features).bias_from(Init::UniformFanIn)
}

/// From 299x299 to 35x35.
fn stem(b: &mut Builder) -> Id {
    let x = b.net.image();
    let x = b.unit("Conv2d_1a_3x3", valid(32, 3, 2), x);
    let x = b.unit("Conv2d_2a_3x3", valid(32, 3, 1), x);
    let x = b.unit("Conv2d_2b_3x3", square(64, 3), x);
    let x = b.pool("maxpool1", max_pool(3, 2), x);
    let x = b.unit("Conv2d_3b_1x1", square(80, 1), x);
    let x = b.unit("Conv2d_4a_3x3", valid(192, 3, 1), x);
    b.pool("maxpool2", max_pool(3, 2), x)
}

/// The average pool that ends most modules, with its 1x1 convolution.
fn pooled(b: &mut Builder, path: &str, channels: usize, x: Id) -> Id {
    b.pooled([&format!("{path}.avgpool"), &format!("{path}.branch_pool")], channels, x)
}

/// 35x35 (figure 5).
fn module_a(b: &mut Builder, path: &str, pool: usize, x: Id) -> Id {
    let name = |branch: &str| format!("{path}.{branch}");
    let one = b.unit(&name("branch1x1"), square(64, 1), x);
    let five = b.row(&name("branch5x5_"), 1, [square(48, 1), square(64, 5)], x);
    let three = b.row(&name("branch3x3dbl_"), 1, [square(64, 1), square(96, 3), square(96, 3)], x);
    let pool = pooled(b, path, pool, x);
    b.concat(path, &[one, five, three, pool])
}

/// To 17x17 (figure 10).
fn module_b(b: &mut Builder, path: &str, x: Id) -> Id {
    let name = |branch: &str| format!("{path}.{branch}");
    let three = b.unit(&name("branch3x3"), valid(384, 3, 2), x);
    let double = b.row(&name("branch3x3dbl_"), 1, [square(64, 1), square(96, 3), valid(96, 3, 2)], x);
    let pool = b.pool(&name("maxpool"), max_pool(3, 2), x);
    b.concat(path, &[three, double, pool])
}

/// 17x17, with kernels of 1x7 and 7x1 (figure 6).
fn module_c(b: &mut Builder, path: &str, c: usize, x: Id) -> Id {
    let name = |branch: &str| format!("{path}.{branch}");
    let (wide, tall) = (|channels| same(channels, [1, 7]), |channels| same(channels, [7, 1]));
    let one = b.unit(&name("branch1x1"), square(192, 1), x);
    let seven = b.row(&name("branch7x7_"), 1, [square(c, 1), wide(c), tall(192)], x);
    let double = b.row(&name("branch7x7dbl_"), 1, [square(c, 1), tall(c), wide(c), tall(c), wide(192)], x);
    let pool = pooled(b, path, 192, x);
    b.concat(path, &[one, seven, double, pool])
}

/// To 8x8.
fn module_d(b: &mut Builder, path: &str, x: Id) -> Id {
    let name = |branch: &str| format!("{path}.{branch}");
    let three = b.row(&name("branch3x3_"), 1, [square(192, 1), valid(320, 3, 2)], x);
    let seven = [square(192, 1), same(192, [1, 7]), same(192, [7, 1]), valid(192, 3, 2)];
    let seven = b.row(&name("branch7x7x3_"), 1, seven, x);
    let pool = b.pool(&name("maxpool"), max_pool(3, 2), x);
    b.concat(path, &[three, seven, pool])
}

/// 8x8, with kernels of 1x3 and 3x1 side by side (figure 7).
fn module_e(b: &mut Builder, path: &str, x: Id) -> Id {
    let name = |branch: &str| format!("{path}.{branch}");
    let one = b.unit(&name("branch1x1"), square(320, 1), x);
    let three = b.unit(&name("branch3x3_1"), square(384, 1), x);
    let three = b.fan(&name("branch3x3_2"), 384, three);
    let double = b.row(&name("branch3x3dbl_"), 1, [square(448, 1), square(384, 3)], x);
    let double = b.fan(&name("branch3x3dbl_3"), 384, double);
    let pool = pooled(b, path, 192, x);
    b.concat(path, &[one, three, double, pool])
}

/// Average pool 5x5/3, conv 1x1-128, conv 5x5-768, mean, fc.
fn auxiliary(b: &mut Builder, classes: usize, x: Id) {
    let x = b.pool("AuxLogits.pool", Pool::new(PoolKind::Avg, 5, 3), x);
    let x = b.unit("AuxLogits.conv0", square(128, 1), x);
    let x = b.as_it_is("AuxLogits.conv1", valid(768, 5, 1).init(Init::Normal(0.01)), x);
    let x = b.pool("AuxLogits.avgpool", Pool::global(), x);
    let x = b.net.add("AuxLogits.flatten", Flatten, x);
    let scores = b.net.add("AuxLogits.fc", full(classes).init(Init::Normal(0.001)), x);
    b.net.head(scores, AUXILIARY);
}
