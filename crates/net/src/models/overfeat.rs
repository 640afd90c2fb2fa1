//! OverFeat's fast network (Sermanet et al. 2013, arXiv 1312.6229, table 1).

use super::blocks::max_pool;
use crate::{Conv, Dropout, Flatten, Init, Linear, NetSpec, Shape};

/// conv 11x11/4-96, pool, conv 5x5-256, pool, conv 3x3-512, 1024, 1024, pool, fc 3072, dropout, fc 4096, dropout, fc; for images of 231.
pub fn fast(name: &str, input: Shape, classes: usize) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let start = Init::Normal(0.01);
    let conv = |c, k| Conv::new(c, k).bias(0.0).relu().init(start);
    let x = net.add("features.0", conv(96, 11).stride(4), net.image());
    let x = net.add("features.2", max_pool(2, 2), x);
    let x = net.add("features.3", conv(256, 5), x);
    let x = net.add("features.5", max_pool(2, 2), x);
    let x = net.add("features.6", conv(512, 3).pad(1), x);
    let x = net.add("features.8", conv(1024, 3).pad(1), x);
    let x = net.add("features.10", conv(1024, 3).pad(1), x);
    let x = net.add("features.12", max_pool(2, 2), x);
    let x = net.add("flatten", Flatten, x);
    let full = |features| Linear::new(features).init(start);
    let x = net.add("classifier.0", full(3072).relu(), x);
    let x = net.add("classifier.2", Dropout(0.5), x);
    let x = net.add("classifier.3", full(4096).relu(), x);
    let x = net.add("classifier.5", Dropout(0.5), x);
    net.add("classifier.6", full(classes), x);
    net
}
