//! Residual networks for 32x32 images (He et al. 2015, arXiv 1512.03385, section 4.2).

use crate::nn::spec::{Conv, Id, Init, Linear, NetSpec, Norm, Op, Pool, Shape, Shortcut};

fn conv3(channels: usize, stride: usize) -> Op {
    Op::Conv(Conv::new(channels, 3).stride(stride).pad(1).init(Init::HeNormalFanOut))
}

/// 6N + 2 layers: three stages of N blocks with 16, 32, 64 channels and parameter-free shortcuts (option A).
pub fn cifar<const N: usize>(name: &str, input: Shape, classes: usize) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let x = net.add("conv1", conv3(16, 1), net.image());
    let mut x = net.add("bn1", Op::Norm(Norm::new().relu()), x);
    let mut channels = 16;
    for (stage, width) in [16, 32, 64].into_iter().enumerate() {
        for block in 0..N {
            x = basic_block(&mut net, &format!("layer{}.{block}", stage + 1), x, channels, width);
            channels = width;
        }
    }
    let x = net.add("avgpool", Op::Pool(Pool::global()), x);
    let x = net.add("flatten", Op::Flatten, x);
    net.add("fc", Op::Linear(Linear::new(classes)), x);
    net
}

/// conv, norm, ReLU, conv, norm, + shortcut, ReLU; halves the plane where the width grows.
fn basic_block(net: &mut NetSpec, path: &str, x: Id, channels: usize, width: usize) -> Id {
    let stride = if channels == width { 1 } else { 2 };
    let y = net.add(&format!("{path}.conv1"), conv3(width, stride), x);
    let y = net.add(&format!("{path}.bn1"), Op::Norm(Norm::new().relu()), y);
    let y = net.add(&format!("{path}.conv2"), conv3(width, 1), y);
    let shortcut = Op::Shortcut(Shortcut { out_channels: width, stride });
    let x = if stride == 1 { x } else { net.add(&format!("{path}.shortcut"), shortcut, x) };
    net.join(&format!("{path}.bn2"), Op::Norm(Norm::new().residual().relu()), &[y, x])
}
