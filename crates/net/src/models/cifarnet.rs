//! The network of TensorFlow's CIFAR-10 tutorial, which TernGrad calls cifar10_alexnet, and TF-slim's variant of it.

use super::blocks::max_pool;
use crate::{Conv, Dropout, Flatten, Id, Init, Linear, Lrn, NetSpec, Pool, PoolKind, Shape, same_pads};

/// Across nine channels.
const LRN: Lrn = Lrn { radius: 4, k: 1.0, alpha: 0.001 / 9.0, beta: 0.75 };

/// conv 5x5-64, pool 2x2/2, LRN, conv 5x5-64, LRN, pool 2x2/2, fc 384, dropout 0.5, fc 192, fc.
pub fn slim(name: &str, input: Shape, classes: usize) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let x = net.add("conv1", conv(0.0), net.image());
    let x = net.add("pool1", max_pool(2, 2), x);
    let x = net.add("norm1", LRN, x);
    let x = net.add("conv2", conv(0.0), x);
    let x = net.add("norm2", LRN, x);
    let x = net.add("pool2", max_pool(2, 2), x);
    let x = net.add("flatten", Flatten, x);
    let x = net.add("fc3", hidden(384), x);
    let x = net.add("dropout3", Dropout(0.5), x);
    let x = net.add("fc4", hidden(192), x);
    net.add("logits", scores(classes), x);
    net
}

fn conv(bias: f32) -> Conv {
    Conv::new(64, 5).pad(2).bias(bias).relu().init(Init::TruncatedNormal(0.05))
}

fn hidden(features: usize) -> Linear {
    Linear::new(features).relu().bias(0.1).init(Init::TruncatedNormal(0.04))
}

fn scores(classes: usize) -> Linear {
    Linear::new(classes).init(Init::TruncatedNormal(1.0 / 192.0))
}

/// conv 5x5-64, pool 3x3/2, LRN, conv 5x5-64, LRN, pool 3x3/2, fc 384, fc 192, fc; SAME padding throughout.
pub fn tutorial(name: &str, input: Shape, classes: usize) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let x = net.add("conv1", conv(0.0), net.image());
    let x = pool(&mut net, "pool1", x);
    let x = net.add("norm1", LRN, x);
    let x = net.add("conv2", conv(0.1), x);
    let x = net.add("norm2", LRN, x);
    let x = pool(&mut net, "pool2", x);
    let x = net.add("flatten", Flatten, x);
    let x = net.add("fc1", hidden(384), x);
    let x = net.add("fc2", hidden(192), x);
    net.add("fc3", scores(classes), x);
    net
}

/// 3x3 at step 2 with TensorFlow's SAME padding, which depends on the size; a plane that is too small keeps no padding and
/// fails when the shapes are checked.
fn pool(net: &mut NetSpec, name: &str, x: Id) -> Id {
    let plane = net.shapes().map_or(Shape::vector(1), |shapes| shapes[x.0]);
    let (top, bottom) = same_pads(plane.h, 3, 2);
    let (left, right) = same_pads(plane.w, 3, 2);
    net.add(name, Pool::new(PoolKind::Max, 3, 2).pads([top, left, bottom, right]), x)
}
