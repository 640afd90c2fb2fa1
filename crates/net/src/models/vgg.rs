//! VGG (Simonyan and Zisserman 2014, arXiv 1409.1556, table 1), with and without batch norm, as in torchvision.

use super::blocks::{conv_norm_act, max_pool};
use crate::{Activation, Conv, Dropout, Flatten, Init, Linear, NetSpec, Norm, Pool, Shape};

/// Numbers of 3x3 convolutions in the five stages with 64, 128, 256, 512 and 512 channels.
pub type Stages = [usize; 5];

/// Configuration A: 11 layers with weights.
pub const A: Stages = [1, 1, 2, 2, 2];
/// Configuration B: 13 layers.
pub const B: Stages = [2, 2, 2, 2, 2];
/// Configuration D: 16 layers.
pub const D: Stages = [2, 2, 3, 3, 3];
/// Configuration E: 19 layers.
pub const E: Stages = [2, 2, 4, 4, 4];

/// Creates a network of five stages, each of which ends with a 2x2 max pool. Three fully connected layers follow. The
/// first of them reads 7x7 positions.
pub fn torchvision(name: &str, input: Shape, classes: usize, stages: Stages, batch_norm: bool) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let mut x = net.image();
    // PyTorch's indices include the ReLUs
    let mut at = 0;
    for (channels, convs) in [64, 128, 256, 512, 512].into_iter().zip(stages) {
        let conv = Conv::new(channels, 3).pad(1).bias(0.0).init(Init::HeNormalFanOut);
        for _ in 0..convs {
            let path = format!("features.{at}");
            if batch_norm {
                let names = [path.as_str(), &format!("features.{}", at + 1)];
                x = conv_norm_act(&mut net, names, conv.clone(), Norm::new(), Some(Activation::Relu), x);
            } else {
                x = net.add(&path, conv.clone().relu(), x);
            }
            at += if batch_norm { 3 } else { 2 };
        }
        x = net.add(&format!("features.{at}"), max_pool(2, 2), x);
        at += 1;
    }
    let x = net.add("avgpool", Pool::adaptive(7), x);
    let x = net.add("flatten", Flatten, x);
    let full = |features| Linear::new(features).init(Init::Normal(0.01));
    let x = net.add("classifier.0", full(4096).relu(), x);
    let x = net.add("classifier.2", Dropout(0.5), x);
    let x = net.add("classifier.3", full(4096).relu(), x);
    let x = net.add("classifier.5", Dropout(0.5), x);
    net.add("classifier.6", full(classes), x);
    net
}
