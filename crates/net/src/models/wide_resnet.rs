//! Wide residual networks for 32x32 images (Zagoruyko and Komodakis 2016, arXiv 1605.07146), WRN-depth-width.

use super::blocks::{classify, conv};
use crate::{Add, Dropout, Id, Linear, NetSpec, Norm, Shape};

/// Three stages of `(depth - 4) / 6` blocks that normalise first, of 16, 32 and 64 times `width` channels.
pub fn cifar(name: &str, input: Shape, classes: usize, depth: usize, width: usize, dropout: f32) -> NetSpec {
    let mut net = NetSpec::new(name, input);
    let mut x = net.add("conv1", conv(16, 3, 1), net.image());
    let mut channels = 16;
    for (stage, base) in [16, 32, 64].into_iter().enumerate() {
        for block in 0..(depth - 4) / 6 {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let out = base * width;
            let block =
                Block { out, stride, projects: out != channels, dropout, path: format!("block{}.{block}", stage + 1) };
            x = block.add(&mut net, x);
            channels = out;
        }
    }
    let x = net.add("bn1", Norm::new().relu(), x);
    classify(&mut net, "fc", 0.0, Linear::new(classes), x);
    net
}

struct Block {
    out: usize,
    stride: usize,
    /// Whether the shortcut is a 1x1 convolution of what the first norm gives.
    projects: bool,
    dropout: f32,
    path: String,
}

impl Block {
    /// norm, ReLU, conv 3x3, norm, ReLU, dropout, conv 3x3, plus the input.
    fn add(&self, net: &mut NetSpec, x: Id) -> Id {
        let name = |part: &str| format!("{}.{part}", self.path);
        let first = net.add(&name("bn1"), Norm::new().relu(), x);
        let shortcut =
            if self.projects { net.add(&name("shortcut"), conv(self.out, 1, self.stride), first) } else { x };
        let y = net.add(&name("conv1"), conv(self.out, 3, self.stride), first);
        let y = net.add(&name("bn2"), Norm::new().relu(), y);
        let y = if self.dropout > 0.0 { net.add(&name("dropout"), Dropout(self.dropout), y) } else { y };
        let y = net.add(&name("conv2"), conv(self.out, 3, 1), y);
        net.join(&name("add"), Add, &[y, shortcut])
    }
}
