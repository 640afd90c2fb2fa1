//! AlexNet in the single-column form of "One weird trick" (Krizhevsky 2014, arXiv 1404.5997), as in torchvision, and
//! with the two columns of Krizhevsky et al. 2012, as in TernGrad. Also OverFeat, which is based on it.

use super::blocks::{max_pool, same};
use crate::{Concat, Conv, Dropout, Flatten, Id, Init, Linear, Lrn, NetSpec, Pool, Shape};

/// Creates a network with these layers: conv 11x11/4-64, pool, conv 5x5-192, pool, conv 3x3-384, 256, 256, pool,
/// dropout, fc 4096, dropout, fc 4096, fc. Pools are 3x3/2 without padding. For images of 224x224, the last pool's
/// output is 6x6. For other sizes, its output is averaged to 6x6.
pub fn torchvision(name: &str, input: Shape, classes: usize) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let conv = |c, k, stride, pad| {
        let start = Init::UniformFanIn;
        Conv::new(c, k).stride(stride).pad(pad).bias_from(start).relu().init(start)
    };
    let x = net.add("features.0", conv(64, 11, 4, 2), net.image());
    let x = net.add("features.2", max_pool(3, 2), x);
    let x = net.add("features.3", conv(192, 5, 1, 2), x);
    let x = net.add("features.5", max_pool(3, 2), x);
    let x = net.add("features.6", conv(384, 3, 1, 1), x);
    let x = net.add("features.8", conv(256, 3, 1, 1), x);
    let x = net.add("features.10", conv(256, 3, 1, 1), x);
    let x = net.add("features.12", max_pool(3, 2), x);
    let x = if identity(&net, x) { x } else { net.add("avgpool", Pool::adaptive(6), x) };
    let x = net.add("flatten", Flatten, x);
    let full = |features| Linear::new(features).bias_from(Init::UniformFanIn);
    let x = net.add("classifier.0", Dropout(0.5), x);
    let x = net.add("classifier.1", full(4096).relu(), x);
    let x = net.add("classifier.3", Dropout(0.5), x);
    let x = net.add("classifier.4", full(4096).relu(), x);
    net.add("classifier.6", full(classes), x);
    net
}

/// Returns true if averaging to 6x6 would change nothing. Also returns false for an invalid network, which is reported
/// later.
fn identity(net: &NetSpec, x: Id) -> bool {
    net.shapes().is_ok_and(|shapes| [shapes[x.0].h, shapes[x.0].w] == [6, 6])
}

/// Creates TernGrad's network: the two columns of Krizhevsky et al. 2012, which are joined before the third convolution
/// and before the fully connected layers. It has SAME convolutions, and local response normalisation within a column.
pub fn two_columns(name: &str, input: Shape, classes: usize) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let columns = [1, 2].map(|column| {
        let x = column_conv(&mut net, &format!("conv1_{column}"), Conv::new(48, 11).stride(4), 0.0, Id(0));
        let x = lrn_pool(&mut net, 1, column, x);
        let x = column_conv(&mut net, &format!("conv2_{column}"), Conv::new(128, 5), 0.1, x);
        lrn_pool(&mut net, 2, column, x)
    });
    let both = net.join("pool2", Concat, &columns);
    let columns = [1, 2].map(|column| {
        let x = column_conv(&mut net, &format!("conv3_{column}"), Conv::new(192, 3), 0.0, both);
        let x = column_conv(&mut net, &format!("conv4_{column}"), Conv::new(192, 3), 0.1, x);
        let x = column_conv(&mut net, &format!("conv5_{column}"), Conv::new(128, 3), 0.1, x);
        net.add(&format!("pool5_{column}"), max_pool(3, 2), x)
    });
    let x = net.join("pool5", Concat, &columns);
    let x = net.add("flatten", Flatten, x);
    let full = |features| Linear::new(features).relu().bias(0.1).init(Init::TruncatedNormal(0.005));
    let x = net.add("fc6", full(4096), x);
    let x = net.add("dropout6", Dropout(0.5), x);
    let x = net.add("fc7", full(4096), x);
    let x = net.add("dropout7", Dropout(0.5), x);
    net.add("logits", Linear::new(classes).init(Init::TruncatedNormal(0.01)), x);
    net
}

/// Adds a convolution with SAME padding and ReLU. Weights are initialised with a truncated normal distribution, biases
/// with the value `bias`.
fn column_conv(net: &mut NetSpec, name: &str, conv: Conv, bias: f32, x: Id) -> Id {
    let conv = same(net, conv, x).bias(bias).relu().init(Init::TruncatedNormal(0.01));
    net.add(name, conv, x)
}

/// Adds local response normalisation across five channels, then a pool.
fn lrn_pool(net: &mut NetSpec, layer: usize, column: usize, x: Id) -> Id {
    let lrn = Lrn { radius: 2, k: 2.0, alpha: 1e-4, beta: 0.75 };
    let x = net.add(&format!("lrn{layer}_{column}"), lrn, x);
    net.add(&format!("pool{layer}_{column}"), max_pool(3, 2), x)
}

// OverFeat's fast network (Sermanet et al. 2013, arXiv 1312.6229, table 1).

/// Creates a network with these layers: conv 11x11/4-96, pool, conv 5x5-256, pool, conv 3x3-512, 1024, 1024, pool, fc
/// 3072, dropout, fc 4096, dropout, fc. It was designed for images of 231x231.
pub fn overfeat(name: &str, input: Shape, classes: usize) -> NetSpec {
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
