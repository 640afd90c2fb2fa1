//! LeNet for 28x28 digits, as TensorFlow-slim and as Caffe define it.

use crate::{Conv, Dropout, Flatten, Init, Linear, NetSpec, Pool, PoolKind, Shape};

fn max2() -> Pool {
    Pool::new(PoolKind::Max, 2, 2)
}

/// TF-slim's: conv 5x5-32, pool, conv 5x5-64, pool, fc 1024, dropout 0.5, fc; SAME padding. Weights start uniform within
/// 1/sqrt(fan in): slim's own start, a deviation of 0.1 everywhere, is 5 times too wide for 3,136 inputs and diverges at the
/// rates that three epochs need.
pub fn slim(name: &str, input: Shape, classes: usize) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let start = Init::UniformFanIn;
    let conv = |c| Conv::new(c, 5).pad(2).bias(0.0).relu().init(start);
    let x = net.add("conv1", conv(32), net.image());
    let x = net.add("pool1", max2(), x);
    let x = net.add("conv2", conv(64), x);
    let x = net.add("pool2", max2(), x);
    let x = net.add("flatten", Flatten, x);
    let x = net.add("fc1", Linear::new(1024).relu().init(start), x);
    let x = net.add("dropout", Dropout(0.5), x);
    net.add("fc2", Linear::new(classes).init(start), x);
    net
}

/// Caffe's: conv 5x5-20, pool, conv 5x5-50, pool, fc 500, ReLU, fc; no padding, no ReLU after the convolutions.
pub fn caffe(name: &str, input: Shape, classes: usize) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let conv = |c| Conv::new(c, 5).bias(0.0).init(Init::Xavier);
    let x = net.add("conv1", conv(20), net.image());
    let x = net.add("pool1", max2(), x);
    let x = net.add("conv2", conv(50), x);
    let x = net.add("pool2", max2(), x);
    let x = net.add("flatten", Flatten, x);
    let x = net.add("fc1", Linear::new(500).relu().init(Init::Xavier), x);
    net.add("fc2", Linear::new(classes).init(Init::Xavier), x);
    net
}
