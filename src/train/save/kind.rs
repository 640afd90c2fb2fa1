//! How files store the layers of a network.

use crate::checkpoint::LayerKind;
use crate::nn::NetSpec;
use crate::nn::spec::{Reads, Shape};

/// How files store the layer of this node; none if it has no tensors. `shapes`: those of all tensors of the network.
pub fn of(net: &NetSpec, shapes: &[Shape], node: usize) -> Option<LayerKind> {
    let mut kind = LayerKind::new(net.nodes[node].op.stored()?);
    if kind.stored.depends_on_flatten() {
        kind.flatten = flattened(net, shapes, node);
    }
    Some(kind)
}

/// Shape of the image that a linear layer's input was, looking through layers that keep the order of its elements.
fn flattened(net: &NetSpec, shapes: &[Shape], node: usize) -> Option<[usize; 3]> {
    let nodes = &net.nodes;
    let mut tensor = nodes[node].inputs[0].0;
    while tensor > 0 {
        let Shape { c, h, w } = shapes[tensor];
        if h * w > 1 {
            return Some([c, h, w]);
        }
        match nodes[tensor - 1].inputs[..] {
            [input] if nodes[tensor - 1].op.reads() == Reads::Elements => tensor = input.0,
            _ => return None,
        }
    }
    let Shape { c, h, w } = shapes[0];
    (h * w > 1).then_some([c, h, w])
}
