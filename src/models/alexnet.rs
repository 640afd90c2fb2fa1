//! AlexNet, in the single-column form of "One weird trick" (Krizhevsky 2014, arXiv 1404.5997), as torchvision defines it.

use crate::nn::spec::{Conv, Dropout, Flatten, Id, Init, Linear, NetSpec, Pool, PoolKind, Shape};

/// conv 11x11/4-64, pool, conv 5x5-192, pool, conv 3x3-384, 256, 256, pool, dropout, fc 4096, dropout, fc 4096, fc. Pools are
/// 3x3/2 without padding; the last one yields 6x6 for images of 224, for others an average over 6x6 stretches follows.
pub fn torchvision(name: &str, input: Shape, classes: usize) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let conv = |c, k, stride, pad| {
        let start = Init::UniformFanIn;
        Conv::new(c, k).stride(stride).pad(pad).bias_from(start).relu().init(start)
    };
    let x = net.add("features.0", conv(64, 11, 4, 2), net.image());
    let x = pool(&mut net, "features.2", x);
    let x = net.add("features.3", conv(192, 5, 1, 2), x);
    let x = pool(&mut net, "features.5", x);
    let x = net.add("features.6", conv(384, 3, 1, 1), x);
    let x = net.add("features.8", conv(256, 3, 1, 1), x);
    let x = net.add("features.10", conv(256, 3, 1, 1), x);
    let x = pool(&mut net, "features.12", x);
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

fn pool(net: &mut NetSpec, name: &str, x: Id) -> Id {
    net.add(name, Pool::new(PoolKind::Max, 3, 2), x)
}

/// Whether averaging over 6x6 stretches would change nothing; a network that does not fit together fails elsewhere.
fn identity(net: &NetSpec, x: Id) -> bool {
    net.shapes().is_ok_and(|shapes| [shapes[x.0].h, shapes[x.0].w] == [6, 6])
}
