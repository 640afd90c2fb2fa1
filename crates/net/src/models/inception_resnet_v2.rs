//! Inception-ResNet v2 (Szegedy et al. 2016, arXiv 1602.07261, figures 10 to 16), as timm defines it: Inception modules that are added,
//! scaled down, to what they read.

use super::blocks::{classify, max_pool};
use super::inception::{Builder, same, square, valid};
use crate::{Activation, Add, Conv, Id, Init, Linear, NetSpec, Norm, Pool, PoolKind, Shape};

/// For images of 299.
pub fn timm(name: &str, input: Shape, classes: usize) -> NetSpec {
    let norm = Norm { eps: 1e-3, ..Norm::new() };
    let average = Pool::new(PoolKind::Avg, 3, 1).pads([1; 4]);
    let mut b = Builder { net: NetSpec::new(name, input), norm, init: Init::UniformFanIn, average };
    let mut x = stem(&mut b);
    for i in 0..10 {
        x = block_35(&mut b, &format!("repeat.{i}"), x);
    }
    x = to_17(&mut b, "mixed_6a", x);
    for i in 0..20 {
        x = block_17(&mut b, &format!("repeat_1.{i}"), x);
    }
    x = to_8(&mut b, "mixed_7a", x);
    for i in 0..9 {
        x = block_8(&mut b, &format!("repeat_2.{i}"), 0.2, x);
        x = b.net.add(&format!("repeat_2.{i}.relu"), Activation::Relu, x);
    }
    x = block_8(&mut b, "block8", 1.0, x);
    x = b.unit("conv2d_7b", square(1536, 1), x);
    classify(&mut b.net, "classif", 0.2, Linear::new(classes).bias_from(Init::UniformFanIn), x);
    b.net
}

/// From 299x299 to 35x35.
fn stem(b: &mut Builder) -> Id {
    let x = b.net.image();
    let x = b.unit("conv2d_1a", valid(32, 3, 2), x);
    let x = b.unit("conv2d_2a", valid(32, 3, 1), x);
    let x = b.unit("conv2d_2b", square(64, 3), x);
    let x = b.pool("maxpool_3a", max_pool(3, 2), x);
    let x = b.unit("conv2d_3b", square(80, 1), x);
    let x = b.unit("conv2d_4a", valid(192, 3, 1), x);
    let x = b.pool("maxpool_5a", max_pool(3, 2), x);
    let one = b.unit("mixed_5b.branch0", square(96, 1), x);
    let five = b.row("mixed_5b.branch1.", 0, [square(48, 1), square(64, 5)], x);
    let double = b.row("mixed_5b.branch2.", 0, [square(64, 1), square(96, 3), square(96, 3)], x);
    let pool = b.pooled(["mixed_5b.branch3.0", "mixed_5b.branch3.1"], 64, x);
    b.concat("mixed_5b", &[one, five, double, pool])
}

/// The branches' channels by a 1x1 convolution to those of `x`, scaled, plus `x`.
fn residual(b: &mut Builder, path: &str, branches: &[Id], channels: usize, scale: f32, x: Id) -> Id {
    let y = b.concat(path, branches);
    let linear = Conv::new(channels, 1).init(Init::UniformFanIn).bias_from(Init::UniformFanIn);
    let y = b.net.add(&format!("{path}.conv2d"), linear, y);
    let y = b.net.add(&format!("{path}.scale"), Activation::Scale(scale), y);
    b.net.join(&format!("{path}.add"), Add, &[y, x])
}

fn block_35(b: &mut Builder, path: &str, x: Id) -> Id {
    let one = b.unit(&format!("{path}.branch0"), square(32, 1), x);
    let three = b.row(&format!("{path}.branch1."), 0, [square(32, 1), square(32, 3)], x);
    let double = b.row(&format!("{path}.branch2."), 0, [square(32, 1), square(48, 3), square(64, 3)], x);
    let sum = residual(b, path, &[one, three, double], 320, 0.17, x);
    b.net.add(&format!("{path}.act"), Activation::Relu, sum)
}

fn to_17(b: &mut Builder, path: &str, x: Id) -> Id {
    let three = b.unit(&format!("{path}.branch0"), valid(384, 3, 2), x);
    let double = b.row(&format!("{path}.branch1."), 0, [square(256, 1), square(256, 3), valid(384, 3, 2)], x);
    let pool = b.pool(&format!("{path}.branch2"), max_pool(3, 2), x);
    b.concat(path, &[three, double, pool])
}

fn block_17(b: &mut Builder, path: &str, x: Id) -> Id {
    let one = b.unit(&format!("{path}.branch0"), square(192, 1), x);
    let seven = b.row(&format!("{path}.branch1."), 0, [square(128, 1), same(160, [1, 7]), same(192, [7, 1])], x);
    let sum = residual(b, path, &[one, seven], 1088, 0.1, x);
    b.net.add(&format!("{path}.act"), Activation::Relu, sum)
}

fn to_8(b: &mut Builder, path: &str, x: Id) -> Id {
    let first = b.row(&format!("{path}.branch0."), 0, [square(256, 1), valid(384, 3, 2)], x);
    let second = b.row(&format!("{path}.branch1."), 0, [square(256, 1), valid(288, 3, 2)], x);
    let third = b.row(&format!("{path}.branch2."), 0, [square(256, 1), square(288, 3), valid(320, 3, 2)], x);
    let pool = b.pool(&format!("{path}.branch3"), max_pool(3, 2), x);
    b.concat(path, &[first, second, third, pool])
}

/// Without the ReLU behind it.
fn block_8(b: &mut Builder, path: &str, scale: f32, x: Id) -> Id {
    let one = b.unit(&format!("{path}.branch0"), square(192, 1), x);
    let three = b.row(&format!("{path}.branch1."), 0, [square(192, 1), same(224, [1, 3]), same(256, [3, 1])], x);
    residual(b, path, &[one, three], 2080, scale, x)
}
