//! Batch norms folded into the convolutions and linear layers before them, whose weights and biases then do both.

use net::{Activation, Add, Head, Id, NetSpec, Node, Norm, Op};

use super::error::Error;
use super::network::Network;
use super::trained::Trained;
use crate::checkpoint::LayerWeights;

/// Folds every batch norm that directly follows a layer whose output nobody else reads; says how many.
pub(super) fn fold(trained: &mut Trained) -> Result<String, Error> {
    let norms = trained.network.net.nodes.iter().filter(|node| matches!(node.op, Op::Norm(_))).count();
    let foldable: Vec<bool> = trained.network.net.nodes.iter().map(|node| folds(&trained.network, node)).collect();
    let old = trained.network.net.clone();
    let mut net = NetSpec::new(&old.name, old.input);
    let mut made = vec![net.image()];
    for (node, folds) in old.nodes.iter().zip(&foldable) {
        let inputs: Vec<Id> = node.inputs.iter().map(|id| made[id.0]).collect();
        let id = match &node.op {
            Op::Norm(norm) if *folds => {
                let before = net.nodes[inputs[0].0 - 1].name.clone();
                absorb(trained, &before, &node.name, norm.eps)?;
                replace(&mut net, &old, node, norm, &inputs)
            }
            _ => net.join(&node.name, node.op.clone(), &inputs),
        };
        made.push(id);
    }
    net.heads = old.heads.iter().map(|head| Head { output: made[head.output.0], ..*head }).collect();
    trained.network = Network::new(net)?;
    let folded = foldable.iter().filter(|folds| **folds).count();
    Ok(format!("{folded} of {norms} batch norms folded into the layers before them"))
}

/// Whether a layer is a batch norm right behind a layer that can take it over.
fn folds(network: &Network, node: &Node) -> bool {
    let Op::Norm(_) = node.op else { return false };
    let before = node.inputs[0].0.checked_sub(1).map(|index| &network.net.nodes[index].op);
    let plain = match before {
        Some(Op::Conv(conv)) => !conv.relu,
        Some(Op::Linear(linear)) => !linear.relu,
        _ => false,
    };
    plain && network.readers(node.inputs[0]) == 1
}

/// What is left of a batch norm in the network: its sum and its ReLU.
fn replace(net: &mut NetSpec, old: &NetSpec, node: &Node, norm: &Norm, inputs: &[Id]) -> Id {
    let before = &mut net.nodes[inputs[0].0 - 1].op;
    match before {
        Op::Conv(conv) => (conv.bias, conv.relu) = (true, norm.relu && !norm.residual),
        Op::Linear(linear) => (linear.bias, linear.relu) = (true, norm.relu && !norm.residual),
        _ => {}
    }
    if !norm.residual {
        return inputs[0];
    }
    let sum = net.join(&node.name, Add, inputs);
    if !norm.relu {
        return sum;
    }
    let mut name = format!("{}.relu", node.name);
    while old.nodes.iter().any(|other| other.name == name) {
        name.push('_');
    }
    net.add(&name, Activation::Relu, sum)
}

/// Weights and bias of the layer `before` that also do what the batch norm `name` does, computed in f64.
fn absorb(trained: &mut Trained, before: &str, name: &str, eps: f32) -> Result<(), Error> {
    let missing = |layer: &str| Error::Network {
        network: trained.model.network.clone(),
        why: format!("layer {layer} lacks a weight"),
    };
    let norm = trained.layers.get(name).ok_or_else(|| missing(name))?.clone();
    let field = |field: &str| values(&norm, field).map(<[f32]>::to_vec).ok_or_else(|| missing(name));
    let (gamma, beta, mean, var) = (field("weight")?, field("bias")?, field("running_mean")?, field("running_var")?);
    let scale = |c: usize| f64::from(gamma[c]) / (f64::from(var[c]) + f64::from(eps)).sqrt();
    let mut layer = trained.layers.get(before).ok_or_else(|| missing(before))?.clone();
    let channels = gamma.len();
    let old = values(&layer, "bias").map(<[f32]>::to_vec);
    let bias = (0..channels).map(|c| {
        let old = old.as_ref().map_or(0.0, |bias| f64::from(bias[c]));
        ((old - f64::from(mean[c])) * scale(c) + f64::from(beta[c])) as f32
    });
    let bias: Vec<f32> = bias.collect();
    for (field, _, values) in &mut layer.tensors {
        let each = values.len() / channels.max(1);
        if field == "weight" && each > 0 {
            let rows = values.chunks_mut(each).enumerate();
            rows.for_each(|(c, row)| row.iter_mut().for_each(|v| *v = (f64::from(*v) * scale(c)) as f32));
        }
    }
    layer.tensors.retain(|(field, ..)| field == "weight");
    layer.tensors.push(("bias".into(), vec![channels], bias));
    trained.layers.insert(before.to_string(), layer);
    trained.layers.remove(name);
    Ok(())
}

fn values<'a>(layer: &'a LayerWeights, field: &str) -> Option<&'a [f32]> {
    layer.tensors.iter().find(|tensor| tensor.0 == field).map(|tensor| tensor.2.as_slice())
}
