//! The catalogue. Each network is a function from the image's shape and the number of classes to a [`NetSpec`]; one family a file.
//!
//! A new network is one file here and one line in [`CATALOGUE`].

mod alexnet;
mod cifarnet;
mod lenet;
mod resnet;

use crate::nn::spec::{NetSpec, Shape};

/// Builds a network.
pub type Build = fn(&str, Shape, usize) -> NetSpec;

/// Grey digits, CIFAR's images and ImageNet's, with their numbers of classes.
const DIGITS: (Shape, usize) = (Shape::image(1, 28, 28), 10);
const CIFAR: (Shape, usize) = (Shape::image(3, 32, 32), 10);
const IMAGENET: (Shape, usize) = (Shape::image(3, 224, 224), 1000);

/// Name, the images and classes that it is meant for, builder. It takes others too.
pub const CATALOGUE: &[(&str, (Shape, usize), Build)] = &[
    ("lenet", DIGITS, lenet::slim),
    ("lenet-caffe", DIGITS, lenet::caffe),
    ("cifarnet", (Shape::image(3, 24, 24), 10), cifarnet::tutorial),
    ("resnet20", CIFAR, resnet::cifar::<3>),
    ("resnet32", CIFAR, resnet::cifar::<5>),
    ("resnet44", CIFAR, resnet::cifar::<7>),
    ("resnet56", CIFAR, resnet::cifar::<9>),
    ("resnet110", CIFAR, resnet::cifar::<18>),
    ("alexnet", IMAGENET, alexnet::torchvision),
    ("resnet18", IMAGENET, resnet::basic::<2, 2, 2, 2>),
    ("resnet34", IMAGENET, resnet::basic::<3, 4, 6, 3>),
    ("resnet50", IMAGENET, resnet::bottleneck::<3, 4, 6, 3>),
    ("resnet101", IMAGENET, resnet::bottleneck::<3, 4, 23, 3>),
    ("resnet152", IMAGENET, resnet::bottleneck::<3, 8, 36, 3>),
];

/// Names of all networks.
pub fn names() -> Vec<&'static str> {
    CATALOGUE.iter().map(|m| m.0).collect()
}

/// Shape of the images that a network is meant for.
pub fn input(name: &str) -> Option<Shape> {
    CATALOGUE.iter().find(|m| m.0 == name).map(|m| m.1.0)
}

/// Number of classes that a network is meant for.
pub fn classes(name: &str) -> Option<usize> {
    CATALOGUE.iter().find(|m| m.0 == name).map(|m| m.1.1)
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
            ("alexnet", 61_100_840, 714.0, 0.5),
            ("resnet18", 11_689_512, 1814.0, 0.5),
            ("resnet34", 21_797_672, 3664.0, 0.5),
            ("resnet50", 25_557_032, 4089.0, 0.5),
            ("resnet101", 44_549_160, 7801.0, 0.5),
            ("resnet152", 60_192_808, 11_514.0, 0.5),
        ];
        assert_eq!(cases.len(), CATALOGUE.len(), "every network needs its published size here");
        for (name, params, mmac, digits) in cases {
            let net = build(name, input(name).unwrap(), classes(name).unwrap()).unwrap();
            assert_eq!(net.param_count().unwrap(), params, "{name}");
            let got = net.macs().unwrap() as f64 / 1e6;
            assert!((got - mmac).abs() <= digits, "{name}: expected {mmac} MMAC, got {got}");
        }
        let big = build("cifarnet", Shape::image(3, 32, 32), 10).unwrap();
        assert_eq!(big.param_count().unwrap(), 1_756_426);
    }

    #[test]
    fn running_statistics_have_the_published_sizes() {
        let small = [("resnet20", 1_376), ("resnet56", 4_064), ("resnet110", 8_096), ("resnet18", 9_600)];
        let large = [("resnet34", 17_024), ("resnet50", 53_120), ("resnet101", 105_344), ("resnet152", 151_424)];
        for (name, floats) in small.into_iter().chain(large) {
            let net = build(name, input(name).unwrap(), 10).unwrap();
            let shapes = net.shapes().unwrap();
            let norms = net.nodes.iter().zip(&shapes[1..]).filter(|(n, _)| n.op.kind() == "norm");
            assert_eq!(norms.map(|(_, s)| 2 * s.c).sum::<usize>(), floats, "{name}");
        }
    }

    /// Sizes come from files, too: those that no image has end in an error.
    #[test]
    fn odd_sizes_do_not_panic() {
        for name in names() {
            for size in (1..40).chain([255, 65_535, 65_536]) {
                for shape in [Shape::image(1, size, size), Shape::image(65_536, 1, size), Shape::image(3, size, 1)] {
                    for classes in [0, 1, 1 << 24] {
                        let net = build(name, shape, classes).unwrap();
                        if let Ok(tensors) = net.tensors() {
                            let count: usize =
                                tensors.parameters.iter().map(|(_, s)| s.iter().product::<usize>()).sum();
                            assert_eq!(count, net.param_count().unwrap(), "{name} {shape:?}");
                        }
                    }
                }
            }
        }
    }

    /// The scale of the last norm of each block starts at zero on request, and nothing else changes.
    #[test]
    fn zero_init_residual_touches_the_last_norm_of_each_block() {
        let plain = build("resnet50", Shape::image(3, 224, 224), 1000).unwrap();
        let mut zeroed = plain.clone();
        zeroed.zero_init_residual();
        let changed = plain.nodes.iter().zip(&zeroed.nodes).filter(|(a, b)| a != b).map(|(_, b)| b);
        let names: Vec<&str> = changed.map(|node| node.name.as_str()).collect();
        assert_eq!(names.len(), 16);
        assert!(names.iter().all(|name| name.starts_with("layer") && name.ends_with(".bn3")), "{names:?}");
    }

    /// PyTorch's module paths, and other sizes of images and numbers of classes.
    #[test]
    fn imagenet_networks_take_other_images() {
        let names = |net: &NetSpec| net.nodes.iter().map(|n| n.name.clone()).collect::<Vec<_>>();
        let net = build("resnet18", Shape::image(3, 112, 112), 7).unwrap();
        for name in ["conv1", "layer1.0.bn2", "layer2.0.downsample.0", "layer4.1.conv2", "fc"] {
            assert!(names(&net).iter().any(|n| n == name), "{name}");
        }
        let shapes = net.shapes().unwrap();
        assert_eq!(shapes[shapes.len() - 4], Shape::image(512, 4, 4));
        assert_eq!(shapes[shapes.len() - 1], Shape::vector(7));
        let [small, full] = [160, 224].map(|px| build("alexnet", Shape::image(3, px, px), 10).unwrap());
        assert!(names(&small).contains(&"avgpool".into()) && !names(&full).contains(&"avgpool".into()));
        assert_eq!(small.param_count().unwrap(), full.param_count().unwrap());
    }
}
