//! Merges layers: a batch norm with a following sum and ReLU, and a convolution with its ReLU. Removes layers that the
//! output does not depend on, and a sigmoid at the end.

use std::collections::BTreeSet;

use net::{Activation, Id, NetSpec, Node, Norm, Op};

/// Returns an equivalent network with fewer layers: removes identities and layers that the output does not depend on,
/// and merges sums and ReLUs.
pub(super) fn fuse(net: NetSpec) -> NetSpec {
    let kept: Vec<bool> = net
        .serving()
        .iter()
        .zip(&net.nodes)
        .map(|(serving, node)| *serving && node.op != Activation::Identity.into())
        .collect();
    with_relus(with_sums(keep(net, &kept)))
}

/// Removes a sigmoid at the end of the network, because the network must compute scores. Returns the name of the removed
/// layer, or `None` if the network ends in another layer.
pub(super) fn without_sigmoid(net: NetSpec) -> (NetSpec, Option<String>) {
    // a flatten does not change values
    let last = net.nodes.iter().rposition(|node| !matches!(node.op, Op::Flatten(_)));
    let removed = last.filter(|at| matches!(net.nodes[*at].op, Op::Activation(Activation::Sigmoid)));
    let Some(removed) = removed else { return (net, None) };
    let name = net.nodes[removed].name.clone();
    let kept: Vec<bool> = (0..net.nodes.len()).map(|at| at != removed).collect();
    (keep(net, &kept), Some(name))
}

/// Counts the readers of each tensor. The network's output counts as read once more.
fn readers(net: &NetSpec) -> Vec<usize> {
    let mut readers = vec![0; net.nodes.len() + 1];
    net.nodes.iter().flat_map(|node| &node.inputs).for_each(|id| readers[id.0] += 1);
    readers[net.nodes.len()] += 1;
    readers
}

/// Removes layers. The readers of a removed layer read its first input instead.
fn keep(net: NetSpec, kept: &[bool]) -> NetSpec {
    let mut made = vec![net.image()];
    let mut out = NetSpec::new(&net.name, net.input);
    for (node, kept) in net.nodes.into_iter().zip(kept) {
        let inputs: Vec<Id> = node.inputs.iter().map(|id| made[id.0]).collect();
        made.push(if *kept { out.join(&node.name, node.op, &inputs) } else { inputs[0] });
    }
    out
}

/// Merges a sum with a batch norm that is one of its inputs, if nothing else reads the batch norm. The merged layer
/// takes the place of the sum.
fn with_sums(mut net: NetSpec) -> NetSpec {
    let readers = readers(&net);
    let mut gone = BTreeSet::new();
    for at in 0..net.nodes.len() {
        let node = &net.nodes[at];
        let (Op::Add(_), [a, b]) = (&node.op, &node.inputs[..]) else { continue };
        let alone = |id: &Id| {
            let place = id.0.checked_sub(1)?;
            let plain = matches!(&net.nodes[place].op, Op::Norm(Norm { residual: false, relu: false, .. }));
            (plain && readers[id.0] == 1).then_some(place)
        };
        let found = alone(a).map(|place| (place, *b)).or_else(|| alone(b).map(|place| (place, *a)));
        if let Some((place, other)) = found {
            let Node { name, op, inputs } = net.nodes[place].clone();
            let Op::Norm(norm) = op else { continue };
            net.nodes[at] = Node { name, op: norm.residual().into(), inputs: vec![inputs[0], other] };
            gone.insert(place);
        }
    }
    let kept: Vec<bool> = (0..net.nodes.len()).map(|at| !gone.contains(&at)).collect();
    keep(net, &kept)
}

/// Merges a ReLU into the layer before, if that layer supports it and has no other reader.
fn with_relus(mut net: NetSpec) -> NetSpec {
    let readers = readers(&net);
    let mut kept = vec![true; net.nodes.len()];
    for (at, kept) in kept.iter_mut().enumerate() {
        let Node { op: Op::Activation(Activation::Relu), inputs, .. } = &net.nodes[at] else { continue };
        let Some(place) = inputs[0].0.checked_sub(1).filter(|place| readers[place + 1] == 1) else { continue };
        let relu = match &mut net.nodes[place].op {
            Op::Conv(conv) => &mut conv.relu,
            Op::Linear(linear) => &mut linear.relu,
            Op::Norm(norm) => &mut norm.relu,
            _ => continue,
        };
        *kept = false;
        *relu = true;
    }
    keep(net, &kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::{Add, Conv, Shape};

    #[test]
    fn a_residual_block_is_fused_as_in_the_catalogue() {
        let mut net = NetSpec::new("net", Shape::image(3, 8, 8));
        let x = net.add("conv0", Conv::new(4, 3).pad(1), net.image());
        let x = net.add("relu0", Activation::Relu, x);
        let y = net.add("conv1", Conv::new(4, 3).pad(1), x);
        let y = net.add("bn1", Norm::new(), y);
        let unread = net.add("unread", Activation::Tanh, y);
        let _ = net.add("unread2", Activation::Tanh, unread);
        let y = net.join("sum", Add, &[x, y]);
        net.add("relu1", Activation::Relu, y);
        let fused = fuse(net);
        let names: Vec<&str> = fused.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["conv0", "conv1", "bn1"]);
        assert_eq!(fused.nodes[2].op, Norm::new().residual().relu().into());
        assert_eq!(fused.nodes[2].inputs, [Id(2), Id(1)]);
        assert_eq!(fused.nodes[0].op, Conv::new(4, 3).pad(1).relu().into());
    }

    #[test]
    fn nodes_with_a_second_reader_are_not_fused() {
        let mut net = NetSpec::new("net", Shape::image(3, 8, 8));
        let x = net.add("bn", Norm::new(), net.image());
        let y = net.add("relu", Activation::Relu, x);
        net.join("sum", Add, &[x, y]);
        assert_eq!(fuse(net.clone()), net);
    }
}
