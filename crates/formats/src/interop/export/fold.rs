//! Combines a network with its weights, and merges batch norms into the layers before them.

use net::{Activation, Add, Head, Id, NetSpec, Node, Norm, Op};

use super::format::Error;
use super::network::Network;
use super::plan::plan;
use super::trained::Trained;
use crate::checkpoint::{LayerWeights, ModelFile};

impl Trained {
    /// Combines a network with the `layers` of its model file.
    ///
    /// # Errors
    /// Returns [`Error::Network`] if the layers do not fit together.
    pub fn new(net: NetSpec, mut model: ModelFile) -> Result<Self, Error> {
        let layers = std::mem::take(&mut model.layers).into_iter().map(|layer| (layer.name.clone(), layer)).collect();
        model.ema.clear();
        Ok(Self { network: plan(net)?, layers, model })
    }
}

/// Merges each batch norm into the layer before it, if that layer is a convolution or linear layer without ReLU and no
/// other layer reads its output. Returns a note with the number of merged batch norms.
pub(crate) fn fold(trained: &mut Trained) -> Result<String, Error> {
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
    trained.network = plan(net)?;
    let folded = foldable.iter().filter(|folds| **folds).count();
    Ok(format!("{folded} of {norms} batch norms folded into the layers before them"))
}

/// Returns true if a layer is a batch norm that can be merged into the layer before it.
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

/// Removes a merged batch norm. Its sum and ReLU remain: without a sum, the ReLU becomes part of the layer before.
/// Returns the new output.
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

/// Changes weights and bias of the layer `before` so that it also computes the batch norm `name`. Computes in f64.
fn absorb(trained: &mut Trained, before: &str, name: &str, eps: f32) -> Result<(), Error> {
    let missing = |layer: &str| trained.refusal(format!("layer {layer}: a weight is missing"));
    let norm = trained.layers.get(name).ok_or_else(|| missing(name))?.clone();
    let field = |field: &str| float_values(&norm, field).map(<[f32]>::to_vec).ok_or_else(|| missing(name));
    let (gamma, beta, mean, var) = (field("weight")?, field("bias")?, field("running_mean")?, field("running_var")?);
    let scale = |c: usize| f64::from(gamma[c]) / (f64::from(var[c]) + f64::from(eps)).sqrt();
    let mut layer = trained.layers.get(before).ok_or_else(|| missing(before))?.clone();
    let channels = gamma.len();
    let old = float_values(&layer, "bias").map(<[f32]>::to_vec);
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

fn float_values<'a>(layer: &'a LayerWeights, field: &str) -> Option<&'a [f32]> {
    layer.tensors.iter().find(|tensor| tensor.0 == field).map(|tensor| tensor.2.as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::LayerKind;
    use crate::interop::export::format::Number;
    use net::{Linear, Norm, Shape};

    /// Returns a network with a batch norm of one channel that has this running variance, followed by a linear layer
    /// with this weight.
    fn trained(variance: f32, weight: f32) -> Trained {
        let mut net = NetSpec::new("two", Shape::image(1, 1, 1));
        let norm = net.add("bn", Norm::new(), net.image());
        net.add("fc", Linear::new(1), norm);
        let tensor = |field: &str, value: f32| (field.to_string(), vec![1], vec![value]);
        let layer = |name: &str, kind: &str, tensors| LayerWeights {
            name: name.into(),
            kind: LayerKind::named(kind).unwrap(),
            tensors,
        };
        let fields = ["weight", "bias", "running_mean", "running_var"];
        let bn = fields.into_iter().map(|field| tensor(field, if field == "running_var" { variance } else { 1.0 }));
        let fc = vec![("weight".to_string(), vec![1, 1], vec![weight]), tensor("bias", 0.0)];
        let layers = vec![layer("bn", "norm", bn.collect()), layer("fc", "linear", fc)];
        Trained::new(net, ModelFile { layers, ..ModelFile::sample() }).unwrap()
    }

    #[test]
    fn weights_beyond_the_f16_range_are_refused_by_name() {
        assert!(trained(1.0, 65_504.0).fits_half().is_ok());
        let error = trained(1.0, -70_000.0).fits_half().unwrap_err();
        let Error::Half { tensor, value } = &error else { panic!("{error}") };
        assert_eq!((tensor.as_str(), *value), ("fc.weight", -70_000.0));
        assert!(error.to_string().contains("--half"), "{error}");
        // a weight that is already infinite in f32 is allowed
        assert!(trained(1.0, f32::INFINITY).fits_half().is_ok());
    }

    #[test]
    fn half_export_keeps_running_statistics_in_f32() {
        let trained = trained(1e6, 1.0);
        assert!(trained.fits_half().is_ok());
        let numbers = |number: Number| {
            let nodes = trained.network.net.nodes.iter();
            nodes.flat_map(|node| trained.tensors(node)).map(|tensor| tensor.number(number)).collect::<Vec<_>>()
        };
        let (wide, half) = (Number::F32, Number::F16);
        assert_eq!(numbers(half), [half, half, wide, wide, half, half]);
        assert_eq!(numbers(wide), [wide; 6]);
    }
}
