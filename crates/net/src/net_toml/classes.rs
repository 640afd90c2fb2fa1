//! The layer that makes the scores: it changes with the number of classes.

use crate::{Id, NetSpec, Op};

/// The place of the last convolution or linear layer before a tensor of scores, behind which every layer keeps the channels.
pub fn scores_layer(net: &NetSpec, scores: usize) -> Option<usize> {
    let mut at = scores.checked_sub(1)?;
    loop {
        let node = &net.nodes[at];
        match &node.op {
            Op::Linear(_) | Op::Conv(_) => return Some(at),
            Op::Activation(_) | Op::Dropout(_) | Op::DropPath(_) | Op::Flatten(_) | Op::Pool(_) | Op::Norm(_) => {}
            _ => return None,
        }
        let [Id(before)] = node.inputs[..] else { return None };
        at = before.checked_sub(1)?;
    }
}

/// Has a network's scores, and those of auxiliary classifiers, be so many; gives the names of the layers that changed.
pub fn set_classes(net: &mut NetSpec, classes: usize) -> Vec<String> {
    let places: Vec<usize> = net.scores().collect();
    let places: Vec<usize> = places.into_iter().filter_map(|scores| scores_layer(net, scores)).collect();
    let mut changed = Vec::new();
    for at in places {
        let node = &mut net.nodes[at];
        let number = match &mut node.op {
            Op::Linear(linear) => &mut linear.out_features,
            Op::Conv(conv) => &mut conv.out_channels,
            _ => continue,
        };
        if *number != classes {
            *number = classes;
            changed.push(node.name.clone());
        }
    }
    changed
}
