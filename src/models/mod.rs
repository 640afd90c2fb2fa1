//! The catalogue. Each network is a function from the image's shape and the number of classes to a [`NetSpec`]; one family a file.
//!
//! A new network is one file here and one line in [`CATALOGUE`].

mod cifarnet;
mod lenet;
mod resnet;

use crate::nn::spec::{NetSpec, Shape};

/// Builds a network.
pub type Build = fn(&str, Shape, usize) -> NetSpec;

/// Name, shape of the images that it is meant for, builder.
pub const CATALOGUE: &[(&str, Shape, Build)] = &[
    ("lenet", Shape::image(1, 28, 28), lenet::slim),
    ("lenet-caffe", Shape::image(1, 28, 28), lenet::caffe),
    ("cifarnet", Shape::image(3, 24, 24), cifarnet::tutorial),
    ("resnet20", Shape::image(3, 32, 32), resnet::cifar::<3>),
    ("resnet32", Shape::image(3, 32, 32), resnet::cifar::<5>),
    ("resnet44", Shape::image(3, 32, 32), resnet::cifar::<7>),
    ("resnet56", Shape::image(3, 32, 32), resnet::cifar::<9>),
    ("resnet110", Shape::image(3, 32, 32), resnet::cifar::<18>),
];

/// Names of all networks.
pub fn names() -> Vec<&'static str> {
    CATALOGUE.iter().map(|m| m.0).collect()
}

/// Shape of the images that a network is meant for.
pub fn input(name: &str) -> Option<Shape> {
    CATALOGUE.iter().find(|m| m.0 == name).map(|m| m.1)
}

/// The network of this name for these images and classes.
pub fn build(name: &str, input: Shape, classes: usize) -> Option<NetSpec> {
    CATALOGUE.iter().find(|m| m.0 == name).map(|m| (m.2)(name, input, classes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published sizes: trainable parameters, and millions of multiply-adds of one image to the digits given.
    #[test]
    fn sizes_are_the_published_ones() {
        let cases = [
            ("lenet", 3_274_634, 13.88, 0.005),
            ("lenet-caffe", 431_080, 2.29, 0.005),
            ("cifarnet", 1_068_298, 18.47, 0.005),
            ("resnet20", 269_722, 40.6, 0.05),
            ("resnet32", 464_154, 68.9, 0.05),
            ("resnet44", 658_586, 97.2, 0.05),
            ("resnet56", 853_018, 125.5, 0.05),
            ("resnet110", 1_727_962, 252.9, 0.05),
        ];
        assert_eq!(cases.len(), CATALOGUE.len(), "every network needs its published size here");
        for (name, params, mmac, digits) in cases {
            let net = build(name, input(name).unwrap(), 10).unwrap();
            assert_eq!(net.param_count().unwrap(), params, "{name}");
            let got = net.macs().unwrap() as f64 / 1e6;
            assert!((got - mmac).abs() <= digits, "{name}: expected {mmac} MMAC, got {got}");
        }
        let big = build("cifarnet", Shape::image(3, 32, 32), 10).unwrap();
        assert_eq!(big.param_count().unwrap(), 1_756_426);
    }

    #[test]
    fn running_statistics_have_the_published_sizes() {
        for (name, floats) in [("resnet20", 1_376), ("resnet56", 4_064), ("resnet110", 8_096)] {
            let net = build(name, input(name).unwrap(), 10).unwrap();
            let shapes = net.shapes().unwrap();
            let norms = net.nodes.iter().zip(&shapes[1..]).filter(|(n, _)| n.op.kind() == "norm");
            assert_eq!(norms.map(|(_, s)| 2 * s.c).sum::<usize>(), floats, "{name}");
        }
    }
}
