//! Builds the [`Network`] that an export reads: a net with what is known about each of its tensors.

use net::{NetSpec, Op};

use super::format::Error;
use super::network::Network;
use crate::interop::ops::mapping;

/// Computes for each tensor its shape, whether it is a flat vector or an image, and whether its values are never
/// negative.
///
/// # Errors
/// Returns [`Error::Network`] if the layers do not fit together.
pub(crate) fn plan(net: NetSpec) -> Result<Network, Error> {
    let refuse = |why: String| Error::Network { network: net.name.clone(), why };
    if net.nodes.is_empty() {
        return Err(refuse("it has no layers".into()));
    }
    let shapes = net.shapes().map_err(|error| refuse(error.to_string()))?;
    let (mut flat, mut reads_flat, mut non_negative) = (vec![false], Vec::new(), vec![false]);
    for node in &net.nodes {
        let mapping = mapping(&node.op);
        let inputs = |facts: &[bool]| -> Vec<bool> { node.inputs.iter().map(|id| facts[id.0]).collect() };
        let reads = mapping.reads_flat(&inputs(&flat));
        reads_flat.push(reads);
        flat.push(matches!(node.op, Op::Flatten(_)) || reads);
        non_negative.push(mapping.is_non_negative(&inputs(&non_negative)));
    }
    Ok(Network { net, shapes, flat, reads_flat, non_negative })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interop::export::network::Turn;
    use net::{Add, Concat, Conv, Flatten, Id, LayerScale, Linear, Lrn, Multiply, Norm, Pool, Shape};

    /// Plans a network that computes the channel means of an image, flattens them, and applies a linear layer. `order`
    /// selects the inputs of the next layer, `op`, from these three tensors.
    fn network(op: impl Into<Op>, order: &[usize]) -> Network {
        let mut net = NetSpec::new("x", Shape::image(3, 4, 4));
        let mean = net.add("mean", Pool::global(), net.image());
        let flat = net.add("flat", Flatten, mean);
        let fc = net.add("fc", Linear::new(3), flat);
        let inputs: Vec<Id> = order.iter().map(|i| [mean, flat, fc][*i]).collect();
        net.join("op", op, &inputs);
        plan(net).unwrap()
    }

    #[track_caller]
    fn assert_last(network: &Network, flat: bool, turns: &[Option<Turn>], ends_flat: bool) {
        let last = network.layers().last().unwrap();
        assert_eq!((last.flat, &last.turns[..], network.ends_flat()), (flat, turns, ends_flat));
    }

    #[test]
    fn vectors_and_one_pixel_images_get_the_same_rank() {
        let (flatten, image) = (Some(Turn::Flatten), Some(Turn::Image));
        assert_last(&network(Conv::new(2, 1), &[2]), false, &[image], false);
        assert_last(&network(Pool::global(), &[1]), false, &[image], false);
        assert_last(&network(Lrn { radius: 1, k: 1.0, alpha: 0.5, beta: 0.5 }, &[2]), false, &[image], false);
        assert_last(&network(LayerScale(0.5), &[2]), true, &[None], true);
        assert_last(&network(Linear::new(2), &[0]), true, &[flatten], true);
        assert_last(&network(Linear::new(2), &[1]), true, &[None], true);
        assert_last(&network(Flatten, &[0]), false, &[None], true);
        assert_last(&network(Add, &[0, 1]), true, &[flatten, None], true);
        assert_last(&network(Add, &[1, 0]), true, &[None, flatten], true);
        assert_last(&network(Add, &[0, 0]), false, &[None, None], false);
        assert_last(&network(Concat, &[2, 0, 1]), true, &[None, flatten, None], true);
        assert_last(&network(Norm { residual: true, ..Norm::new() }, &[0, 2]), true, &[flatten, None], true);
        assert_last(&network(Multiply, &[0, 1]), false, &[None, image], false);
        assert_last(&network(Multiply, &[1, 0]), true, &[None, flatten], true);
    }

    /// The factors multiply an image of many pixels, which cannot become a vector.
    #[test]
    fn vectors_that_multiply_an_image_become_images() {
        let mut net = NetSpec::new("x", Shape::image(3, 4, 4));
        let image = net.image();
        let factors = net.add("fc", Linear::new(3), image);
        net.join("op", Multiply, &[image, factors]);
        assert_last(&plan(net).unwrap(), false, &[None, Some(Turn::Image)], false);
    }
}
