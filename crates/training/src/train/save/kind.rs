//! How files store the layers of a network.

use formats::checkpoint::LayerKind;
use net::NetSpec;
use net::{FeatureOrder, Node, Shape};

/// How files store the layer of each node; none if it has no tensors. `shapes`: those of all tensors of the network.
pub fn of(net: &NetSpec, shapes: &[Shape]) -> Vec<Option<LayerKind>> {
    let orders = net.feature_orders(shapes);
    let kind = |node: &Node| {
        let mut kind = LayerKind::new(node.op.stored()?);
        if kind.stored.depends_on_flatten() {
            let input = node.inputs[0].0;
            kind.flatten = match orders[input].flattened(shapes[input]) {
                FeatureOrder::Flattened(Shape { c, h, w }) => Some([c, h, w]),
                FeatureOrder::Same | FeatureOrder::Mixed => None,
            };
        }
        Some(kind)
    };
    net.nodes.iter().map(kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::Id;
    use net::{Activation, Add, Concat, Conv, Flatten, Linear, Norm};

    /// Of a linear layer behind what `join` makes of two images that were flattened: three channels of 2 x 2 pixels.
    fn flatten(join: fn(&mut NetSpec, [Id; 2])) -> Option<[usize; 3]> {
        let mut net = NetSpec::new("x", Shape::image(1, 2, 2));
        let branches = ["a", "b"].map(|name| {
            let image = net.add(name, Conv::new(3, 1), net.image());
            net.add(&format!("{name}.flat"), Flatten, image)
        });
        join(&mut net, branches);
        let last = Id(net.nodes.len());
        net.add("fc", Linear::new(2), last);
        let shapes = net.shapes().unwrap();
        of(&net, &shapes).pop().unwrap().unwrap().flatten
    }

    #[test]
    fn a_linear_layer_has_the_order_of_the_images_behind_it() {
        let sum = flatten(|net, both| {
            let sum = net.join("sum", Add, &both);
            net.add("relu", Activation::Relu, sum);
        });
        assert_eq!(sum, Some([3, 2, 2]));
        let plain = flatten(|net, [a, _]| {
            net.add("relu", Activation::Relu, a);
        });
        assert_eq!(plain, Some([3, 2, 2]));
    }

    #[test]
    fn orders_that_are_mixed_are_those_of_the_network() {
        let joined = flatten(|net, both| {
            net.join("all", Concat, &both);
        });
        let normed = flatten(|net, [a, _]| {
            net.add("bn", Norm::new(), a);
        });
        let other = flatten(|net, [a, b]| {
            let b = net.add("other", Linear::new(12), b);
            net.join("sum", Add, &[a, b]);
        });
        assert_eq!([joined, normed, other], [None; 3]);
    }
}
