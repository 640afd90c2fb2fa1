//! Inception v4 (Szegedy et al. 2016, arXiv 1602.07261, figures 3 to 9), as timm defines it.

use super::blocks::{classify, max_pool};
use super::inception::{Builder, same, square, valid};
use crate::{Id, Init, Linear, NetSpec, Norm, Pool, PoolKind, Shape};

/// For images of 299.
pub fn timm(name: &str, input: Shape, classes: usize) -> NetSpec {
    let norm = Norm { eps: 1e-3, ..Norm::new() };
    let average = Pool::new(PoolKind::Avg, 3, 1).pads([1; 4]);
    let mut b = Builder { net: NetSpec::new(name, input), norm, init: Init::UniformFanIn, average };
    let mut x = stem(&mut b);
    type Module = fn(&mut Builder, &str, Id) -> Id;
    let modules: [(Module, usize); 5] =
        [(module_a, 4), (reduction_a, 1), (module_b, 7), (reduction_b, 1), (module_c, 3)];
    for (at, module) in (6..).zip(modules.into_iter().flat_map(|(module, times)| vec![module; times])) {
        x = module(&mut b, &format!("features.{at}"), x);
    }
    classify(&mut b.net, "last_linear", 0.2, Linear::new(classes).bias_from(Init::UniformFanIn), x);
    b.net
}

/// From 299x299 to 35x35.
fn stem(b: &mut Builder) -> Id {
    let x = b.net.image();
    let x = b.row("features.", 0, [valid(32, 3, 2), valid(32, 3, 1), square(64, 3)], x);
    let pool = b.pool("features.3.maxpool", max_pool(3, 2), x);
    let conv = b.unit("features.3.conv", valid(96, 3, 2), x);
    let x = b.concat("features.3", &[pool, conv]);
    let short = b.row("features.4.branch0.", 0, [square(64, 1), valid(96, 3, 1)], x);
    let long = [square(64, 1), same(64, [1, 7]), same(64, [7, 1]), valid(96, 3, 1)];
    let long = b.row("features.4.branch1.", 0, long, x);
    let x = b.concat("features.4", &[short, long]);
    let conv = b.unit("features.5.conv", valid(192, 3, 2), x);
    let pool = b.pool("features.5.maxpool", max_pool(3, 2), x);
    b.concat("features.5", &[conv, pool])
}

/// The average pool that ends most modules, with its 1x1 convolution.
fn pooled(b: &mut Builder, path: &str, channels: usize, x: Id) -> Id {
    b.pooled([&format!("{path}.branch3.0"), &format!("{path}.branch3.1")], channels, x)
}

/// 35x35.
fn module_a(b: &mut Builder, path: &str, x: Id) -> Id {
    let one = b.unit(&format!("{path}.branch0"), square(96, 1), x);
    let three = b.row(&format!("{path}.branch1."), 0, [square(64, 1), square(96, 3)], x);
    let double = b.row(&format!("{path}.branch2."), 0, [square(64, 1), square(96, 3), square(96, 3)], x);
    let pool = pooled(b, path, 96, x);
    b.concat(path, &[one, three, double, pool])
}

/// To 17x17.
fn reduction_a(b: &mut Builder, path: &str, x: Id) -> Id {
    let three = b.unit(&format!("{path}.branch0"), valid(384, 3, 2), x);
    let double = b.row(&format!("{path}.branch1."), 0, [square(192, 1), square(224, 3), valid(256, 3, 2)], x);
    let pool = b.pool(&format!("{path}.branch2"), max_pool(3, 2), x);
    b.concat(path, &[three, double, pool])
}

/// 17x17.
fn module_b(b: &mut Builder, path: &str, x: Id) -> Id {
    let (wide, tall) = (|channels| same(channels, [1, 7]), |channels| same(channels, [7, 1]));
    let one = b.unit(&format!("{path}.branch0"), square(384, 1), x);
    let seven = b.row(&format!("{path}.branch1."), 0, [square(192, 1), wide(224), tall(256)], x);
    let double = [square(192, 1), tall(192), wide(224), tall(224), wide(256)];
    let double = b.row(&format!("{path}.branch2."), 0, double, x);
    let pool = pooled(b, path, 128, x);
    b.concat(path, &[one, seven, double, pool])
}

/// To 8x8.
fn reduction_b(b: &mut Builder, path: &str, x: Id) -> Id {
    let three = b.row(&format!("{path}.branch0."), 0, [square(192, 1), valid(192, 3, 2)], x);
    let seven = [square(256, 1), same(256, [1, 7]), same(320, [7, 1]), valid(320, 3, 2)];
    let seven = b.row(&format!("{path}.branch1."), 0, seven, x);
    let pool = b.pool(&format!("{path}.branch2"), max_pool(3, 2), x);
    b.concat(path, &[three, seven, pool])
}

/// 8x8.
fn module_c(b: &mut Builder, path: &str, x: Id) -> Id {
    let one = b.unit(&format!("{path}.branch0"), square(256, 1), x);
    let three = b.unit(&format!("{path}.branch1_0"), square(384, 1), x);
    let three = b.fan(&format!("{path}.branch1_1"), 256, three);
    let double = [square(384, 1), same(448, [3, 1]), same(512, [1, 3])];
    let double = b.row(&format!("{path}.branch2_"), 0, double, x);
    let double = b.fan(&format!("{path}.branch2_3"), 256, double);
    let pool = pooled(b, path, 256, x);
    b.concat(path, &[one, three, double, pool])
}
