//! DenseNet (Huang et al. 2016, arXiv 1608.06993) as in torchvision: each layer reads the outputs of all previous
//! layers.

use super::blocks::{classify, max_pool, norm_act};
use crate::{Activation, Concat, Conv, Id, Linear, NetSpec, Norm, Pool, PoolKind, Shape};

/// Creates a network with four blocks of layers. `blocks` has the number of layers of each block. Each layer adds
/// `growth` channels (k in the paper). Transitions between blocks halve channels, height and width (DenseNet-BC).
pub fn torchvision(name: &str, input: Shape, classes: usize, blocks: [usize; 4], growth: usize) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let mut channels = 2 * growth;
    let x = net.add("features.conv0", Conv::new(channels, 7).stride(2).pad(3), net.image());
    let x = norm_relu(&mut net, "features.norm0", x);
    let mut x = net.add("features.pool0", max_pool(3, 2).pads([1; 4]), x);
    for (block, layers) in (1..).zip(blocks) {
        for layer in 1..=layers {
            x = dense_layer(&mut net, &format!("features.denseblock{block}.denselayer{layer}"), growth, x);
        }
        channels += layers * growth;
        if block < blocks.len() {
            channels /= 2;
            x = transition(&mut net, &format!("features.transition{block}"), channels, x);
        }
    }
    let x = norm_relu(&mut net, "features.norm5", x);
    classify(&mut net, "classifier", 0.0, Linear::new(classes), x);
    net
}

fn norm_relu(net: &mut NetSpec, name: &str, x: Id) -> Id {
    norm_act(net, name, Norm::new(), Some(Activation::Relu), x)
}

/// Adds norm, ReLU, conv 1x1 to 4 `growth` channels, norm, ReLU, conv 3x3 to `growth` channels. The result is appended
/// to the existing channels.
fn dense_layer(net: &mut NetSpec, path: &str, growth: usize, x: Id) -> Id {
    let y = norm_relu(net, &format!("{path}.norm1"), x);
    let y = net.add(&format!("{path}.conv1"), Conv::new(4 * growth, 1), y);
    let y = norm_relu(net, &format!("{path}.norm2"), y);
    let y = net.add(&format!("{path}.conv2"), Conv::new(growth, 3).pad(1), y);
    net.join(&format!("{path}.concat"), Concat, &[x, y])
}

fn transition(net: &mut NetSpec, path: &str, channels: usize, x: Id) -> Id {
    let x = norm_relu(net, &format!("{path}.norm"), x);
    let x = net.add(&format!("{path}.conv"), Conv::new(channels, 1), x);
    net.add(&format!("{path}.pool"), Pool::new(PoolKind::Avg, 2, 2), x)
}
