//! From Keras's order of values to PyTorch's, by the layers of a network: only they tell a depthwise kernel from another one, and an image
//! that was flattened from a vector.

use std::collections::BTreeMap;

use engine::graph::BuildError;
use formats::checkpoint::{LayerKind, Tensor, keras};
use formats::interop::Weights;
use net::KerasOrder;
use net::NetSpec;
use recipe::Init;

use super::fit;
use crate::error::Error;
use crate::train::save::kind;

/// The weights with the values of all that the network has in the order that it has them; those of other programs as they are.
///
/// # Errors
/// As [`fit::renamed`].
pub fn arranged(net: &NetSpec, mut weights: Weights, init: &Init) -> Result<Weights, Error> {
    if !weights.keras {
        return Ok(weights);
    }
    let shapes = net.shapes().map_err(BuildError::from)?;
    let kinds: BTreeMap<&str, (LayerKind, usize)> = net
        .nodes
        .iter()
        .zip(kind::of(net, &shapes))
        .filter_map(|(node, kind)| {
            let groups = node.op.params(shapes[node.inputs[0].0]);
            let inputs = groups.first().and_then(|p| p.shape.get(1).copied()).unwrap_or(0);
            Some((node.name.as_str(), (kind?, inputs)))
        })
        .collect();
    for (name, index) in fit::renamed(&weights, init)? {
        let Some((layer, field)) = name.rsplit_once('.') else { continue };
        if let Some((kind, inputs)) = kinds.get(layer)
            && let Some(tensor) = in_order(*kind, *inputs, field, &weights.tensors[index])
        {
            (weights.tensors[index].1, weights.tensors[index].2) = tensor;
        }
    }
    Ok(weights)
}

/// Shape and values of a layer's tensor in PyTorch's order; none where it does not fit the layer, which its shape then tells.
/// `inputs`: channels that each filter reads.
fn in_order(kind: LayerKind, inputs: usize, field: &str, tensor: &Tensor) -> Option<(Vec<usize>, Vec<f32>)> {
    let (_, stored) = kind.stored.by_torch(field)?;
    let (_, shape, values) = tensor;
    let shape = match (stored.order, &shape[..]) {
        // Keras has (h, w, channels, multiplier) for these
        (KerasOrder::Filters, &[h, w, channels, multiplier]) if inputs == 1 && channels > 1 => {
            vec![h, w, 1, channels.checked_mul(multiplier)?]
        }
        _ => shape.clone(),
    };
    let keras = [(stored.keras.to_string(), shape, values.clone())];
    let [(_, shape, values)] = <[Tensor; 1]>::try_from(keras::from_keras(kind, &keras).ok()?).ok()?;
    Some((shape, values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::{Conv, Flatten, Linear, Norm, Shape};

    fn values(count: usize) -> Vec<f32> {
        (0..count).map(|i| i as f32).collect()
    }

    #[test]
    fn values_get_the_order_of_the_networks_layers() {
        let mut net = NetSpec::new("x", Shape::image(3, 4, 4));
        let x = net.add("conv", Conv::new(2, 3).pad(1), net.image());
        let x = net.add("dw", Conv::new(2, 3).pad(1).depthwise(2), x);
        let x = net.add("bn", Norm::new(), x);
        let x = net.add("flatten", Flatten, x);
        net.add("fc", Linear::new(5), x);
        let tensors = [
            ("conv.weight", vec![3, 3, 3, 2]),
            ("dw.weight", vec![3, 3, 2, 1]),
            ("fc.weight", vec![32, 5]),
            ("bn.bias", vec![2]),
            ("other.weight", vec![2, 3]),
        ];
        let tensors = tensors.map(|(name, shape)| (name.to_string(), shape.clone(), values(shape.iter().product())));
        let weights = Weights {
            path: "a.h5".into(),
            format: "Keras",
            tensors: tensors.to_vec(),
            model: None,
            warning: None,
            keras: true,
        };
        let ordered = arranged(&net, weights.clone(), &Init::default()).unwrap();
        let shapes: Vec<&[usize]> = ordered.tensors.iter().map(|tensor| &tensor.1[..]).collect();
        assert_eq!(shapes, [&[2, 3, 3, 3][..], &[2, 1, 3, 3], &[5, 32], &[2], &[2, 3]]);
        // (out, in, h, w) of (h, w, in, out), and of (h, w, channels, 1)
        let [conv, dw, fc, ..] = &ordered.tensors[..] else { panic!() };
        assert_eq!((conv.2[1], conv.2[9], conv.2[27]), (6.0, 2.0, 1.0));
        assert_eq!((dw.2[1], dw.2[9]), (2.0, 1.0));
        // inputs run over (c, h, w), in Keras over (h, w, c)
        assert_eq!((fc.2[1], fc.2[16], fc.2[32]), (2.0 * 5.0, 5.0, 1.0));
        assert_eq!(ordered.tensors[3..], weights.tensors[3..]);
        let other = Weights { keras: false, ..weights };
        assert_eq!(arranged(&net, other.clone(), &Init::default()).unwrap(), other);
    }
}
