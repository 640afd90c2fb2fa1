//! SqueezeNet (Iandola et al. 2016, arXiv 1602.07360), versions 1.0 and 1.1, as in torchvision.

use super::blocks::max_pool;
use crate::{Concat, Conv, Dropout, Flatten, Id, Init, NetSpec, Pool, Shape};

/// The first convolution, and where the pools are. Pools are 3x3/2 and round up.
pub struct Version {
    /// The first convolution's channels and kernel. Its stride is 2.
    first: (usize, usize),
    /// Indices of the pools in `features`. The other indices from 3 on are fire modules.
    pools: [usize; 3],
}

/// Version 1.0: conv 7x7/2-96, pool, 3 fires, pool, 4 fires, pool, fire.
pub const V1_0: Version = Version { first: (96, 7), pools: [2, 6, 11] };
/// Version 1.1: conv 3x3/2-64, pool, 2 fires, pool, 2 fires, pool, 4 fires. It has 2.4 times fewer multiply-adds.
pub const V1_1: Version = Version { first: (64, 3), pools: [2, 5, 8] };

/// For each fire module, the channels of its squeeze and of each expansion.
const FIRES: [(usize, usize); 8] =
    [(16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256)];

/// Creates a network. Its last convolution has one output channel per class, and the scores are the means of these
/// channels.
pub fn torchvision(name: &str, input: Shape, classes: usize, version: Version) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let (channels, k) = version.first;
    let mut x = net.add("features.0", relu(channels, k).stride(2), net.image());
    let mut fires = FIRES.into_iter();
    for at in 2..2 + FIRES.len() + version.pools.len() {
        let path = format!("features.{at}");
        if version.pools.contains(&at) {
            x = net.add(&path, max_pool(3, 2).ceil(), x);
        } else if let Some((squeeze, expand)) = fires.next() {
            x = fire(&mut net, &path, squeeze, expand, x);
        }
    }
    let x = net.add("classifier.0", Dropout(0.5), x);
    let x = net.add("classifier.1", relu(classes, 1).init(Init::Normal(0.01)), x);
    let x = net.add("classifier.3", Pool::global(), x);
    net.add("flatten", Flatten, x);
    net
}

fn relu(channels: usize, k: usize) -> Conv {
    Conv::new(channels, k).bias(0.0).relu().init(Init::HeUniformFanIn)
}

/// Adds a 1x1 convolution to few channels, then parallel 1x1 and 3x3 convolutions.
fn fire(net: &mut NetSpec, path: &str, squeeze: usize, expand: usize, x: Id) -> Id {
    let x = net.add(&format!("{path}.squeeze"), relu(squeeze, 1), x);
    let a = net.add(&format!("{path}.expand1x1"), relu(expand, 1), x);
    let b = net.add(&format!("{path}.expand3x3"), relu(expand, 3).pad(1), x);
    net.join(&format!("{path}.concat"), Concat, &[a, b])
}
