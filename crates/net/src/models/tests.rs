use super::*;
use crate::Op;

/// Published sizes: number of trainable parameters, millions of multiply-adds per image, and the tolerance for the
/// latter.
const SIZES: &[(&str, usize, f64, f64)] = &[
    ("lenet", 3_274_634, 13.88, 0.005),
    ("lenet-caffe", 431_080, 2.29, 0.005),
    ("cifarnet", 1_068_298, 18.47, 0.005),
    ("cifarnet-slim", 1_756_426, 32.78, 0.005),
    ("resnet20", 269_722, 40.6, 0.05),
    ("resnet32", 464_154, 68.9, 0.05),
    ("resnet44", 658_586, 97.2, 0.05),
    ("resnet56", 853_018, 125.5, 0.05),
    ("resnet110", 1_727_962, 252.9, 0.05),
    ("wrn16_2", 691_674, 101.0, 1.0),
    ("wrn28_10", 36_479_194, 5243.0, 0.5),
    ("airbench94", 1_971_640, 118.0, 0.5),
    ("alexnet", 61_100_840, 714.0, 0.5),
    ("alexnet-columns", 60_965_224, 728.0, 0.5),
    ("overfeat", 145_920_872, 2801.0, 0.5),
    ("vgg11", 132_863_336, 7609.0, 0.5),
    ("vgg13", 133_047_848, 11_308.0, 0.5),
    ("vgg16", 138_357_544, 15_470.0, 0.5),
    ("vgg19", 143_667_240, 19_632.0, 0.5),
    ("vgg11_bn", 132_868_840, 7609.0, 0.5),
    ("vgg13_bn", 133_053_736, 11_308.0, 0.5),
    ("vgg16_bn", 138_365_992, 15_470.0, 0.5),
    ("vgg19_bn", 143_678_248, 19_632.0, 0.5),
    // the parameters include both auxiliary classifiers, the multiply-adds do not
    ("googlenet", 13_004_888, 1498.0, 0.5),
    ("inception_v3", 27_161_264, 5713.0, 0.5),
    // Keras's numbers, with the auxiliary classifier
    ("inception_v3-slim", 27_161_264 - 18_112, 5713.0, 0.5),
    ("inception_v4", 42_679_816, 12_280.0, 30.0),
    ("inception_resnet_v2", 55_843_464, 13_180.0, 30.0),
    ("resnet18", 11_689_512, 1814.0, 0.5),
    ("resnet34", 21_797_672, 3664.0, 0.5),
    ("resnet50", 25_557_032, 4089.0, 0.5),
    ("resnet101", 44_549_160, 7801.0, 0.5),
    ("resnet152", 60_192_808, 11_514.0, 0.5),
    ("resnetv2_50", 25_549_352, 4110.0, 25.0),
    ("resnetv2_101", 44_541_480, 7830.0, 40.0),
    ("resnetv2_152", 60_185_128, 11_550.0, 40.0),
    ("resnext50_32x4d", 25_028_904, 4230.0, 0.5),
    ("resnext101_32x8d", 88_791_336, 16_414.0, 0.5),
    ("resnext101_64x4d", 83_455_272, 15_460.0, 0.5),
    ("wide_resnet50_2", 68_883_240, 11_398.0, 0.5),
    ("wide_resnet101_2", 126_886_696, 22_753.0, 1.0),
    ("seresnet50", 28_088_024, 4110.0, 25.0),
    ("densenet121", 7_978_856, 2834.0, 0.5),
    ("densenet161", 28_681_000, 7728.0, 1.0),
    ("densenet169", 14_149_480, 3360.0, 0.5),
    ("densenet201", 20_013_928, 4291.0, 0.5),
    ("squeezenet1_0", 1_248_424, 819.0, 0.5),
    ("squeezenet1_1", 1_235_496, 349.0, 0.5),
    ("mobilenetv1_100", 4_231_976, 569.0, 1.0),
    ("mobilenet_v2", 3_504_872, 301.0, 0.5),
    ("mobilenet_v3_large", 5_483_032, 217.0, 0.5),
    ("mobilenet_v3_small", 2_542_856, 57.0, 0.5),
    ("shufflenet_v2_x0_5", 1_366_792, 40.0, 1.0),
    ("shufflenet_v2_x1_0", 2_278_604, 145.0, 1.0),
    ("shufflenet_v2_x1_5", 3_503_624, 296.0, 1.0),
    ("shufflenet_v2_x2_0", 7_393_996, 583.0, 1.0),
    ("mnasnet0_5", 2_218_512, 104.0, 1.0),
    ("mnasnet0_75", 3_170_208, 215.0, 1.0),
    ("mnasnet1_0", 4_383_312, 314.0, 1.0),
    ("mnasnet1_3", 6_282_256, 526.0, 1.0),
    ("efficientnet_b0", 5_288_548, 386.0, 0.5),
    ("efficientnet_b1", 7_794_184, 687.0, 0.5),
    ("efficientnet_b2", 9_109_994, 1088.0, 0.5),
    ("efficientnet_b3", 12_233_232, 1827.0, 0.5),
    ("efficientnet_b4", 19_341_616, 4394.0, 0.5),
    ("efficientnet_b5", 30_389_784, 10_266.0, 1.0),
    ("efficientnet_b6", 43_040_704, 19_068.0, 1.0),
    ("efficientnet_b7", 66_347_960, 37_746.0, 1.0),
    ("efficientnet_v2_s", 21_458_488, 8366.0, 1.0),
    ("efficientnet_v2_m", 54_139_356, 24_582.0, 1.0),
    ("efficientnet_v2_l", 118_515_272, 56_080.0, 1.0),
    ("tf_efficientnet_lite0", 4_652_008, 385.0, 0.5),
    ("tf_efficientnet_lite1", 5_416_680, 600.0, 0.5),
    ("tf_efficientnet_lite2", 6_092_072, 860.0, 0.5),
    ("tf_efficientnet_lite3", 8_197_096, 1608.0, 0.5),
    ("tf_efficientnet_lite4", 13_006_568, 3944.0, 0.5),
    ("convnext_tiny", 28_589_128, 4456.0, 0.5),
    ("convnext_small", 50_223_688, 8684.0, 0.5),
    ("convnext_base", 88_591_464, 15_355.0, 0.5),
    ("convnext_large", 197_767_336, 34_361.0, 1.0),
    ("regnet_x_400mf", 5_495_976, 414.0, 1.0),
    ("regnet_x_800mf", 7_259_656, 800.0, 1.0),
    ("regnet_x_1_6gf", 9_190_136, 1603.0, 1.0),
    ("regnet_x_3_2gf", 15_296_552, 3177.0, 1.0),
    ("regnet_x_8gf", 39_572_648, 7995.0, 1.0),
    ("regnet_x_16gf", 54_278_536, 15_941.0, 1.0),
    ("regnet_x_32gf", 107_811_560, 31_736.0, 1.0),
    ("regnet_y_400mf", 4_344_144, 402.0, 1.0),
    ("regnet_y_800mf", 6_432_512, 834.0, 1.0),
    ("regnet_y_1_6gf", 11_202_430, 1612.0, 1.0),
    ("regnet_y_3_2gf", 19_436_338, 3176.0, 1.0),
    ("regnet_y_8gf", 39_381_472, 8473.0, 1.0),
    ("regnet_y_16gf", 83_590_140, 15_912.0, 1.0),
    ("regnet_y_32gf", 145_046_770, 32_280.0, 5.0),
    ("regnet_y_128gf", 644_812_894, 127_460.0, 80.0),
    // torchvision states 632,045,800 parameters for vit_h_14, because it counts them for 518 x 518 pixels
    ("vit_b_16", 86_567_656, 17_564.0, 0.5),
    ("vit_b_32", 88_224_232, 4409.0, 0.5),
    ("vit_l_16", 304_326_632, 61_555.0, 0.5),
    ("vit_l_32", 306_535_400, 15_378.0, 0.5),
    ("vit_h_14", 632_045_800, 167_295.0, 0.5),
    ("vit_s_16", 22_049_896, 4574.0, 0.5),
    ("vit_ti_4", 5_362_378, 359.0, 0.5),
    ("swin_t", 28_288_354, 4491.0, 1.0),
    ("swin_s", 49_606_258, 8741.0, 1.0),
    ("swin_b", 87_768_224, 15_431.0, 1.0),
    // torchvision states 5,940, 11,546 and 20,325, because it also counts the perceptrons of the position bias, once
    // per batch
    ("swin_v2_t", 28_351_570, 5921.0, 0.5),
    ("swin_v2_s", 49_737_442, 11_508.0, 0.5),
    ("swin_v2_b", 87_930_848, 20_276.0, 0.5),
    ("maxvit_t", 30_919_624, 5558.0, 1.0),
];

#[test]
fn parameter_counts_and_mmacs_match_published_values() {
    let listed: Vec<&str> = SIZES.iter().map(|size| size.0).collect();
    assert_eq!(listed, names(), "every network needs its published size here");
    let mut wrong = Vec::new();
    for &(name, params, mmac, digits) in SIZES {
        let net = build(name, input(name).unwrap(), classes(name).unwrap()).unwrap();
        let (count, got) = (net.param_count().unwrap(), net.macs().unwrap() as f64 / 1e6);
        if count != params || (got - mmac).abs() > digits {
            wrong.push(format!("{name}: expected {params} parameters, {mmac} MMAC, got {count}, {got}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let big = build("cifarnet", Shape::image(3, 32, 32), 10).unwrap();
    assert_eq!(big.param_count().unwrap(), 1_756_426);
}

#[test]
fn running_statistics_have_the_published_sizes() {
    let small = [("resnet20", 1_376), ("resnet56", 4_064), ("resnet110", 8_096), ("wrn28_10", 17_952)];
    let large = [("resnet18", 9_600), ("resnet34", 17_024), ("resnet50", 53_120), ("resnet101", 105_344)];
    let other = [("vgg16_bn", 8_448), ("vgg19_bn", 11_008), ("googlenet", 15_072), ("inception_v3", 36_224)];
    for (name, floats) in small.into_iter().chain(large).chain(other) {
        let net = build(name, input(name).unwrap(), 10).unwrap();
        let shapes = net.shapes().unwrap();
        let norms = net.nodes.iter().zip(&shapes[1..]).filter(|(n, _)| n.op.kind() == "norm");
        assert_eq!(norms.map(|(_, s)| 2 * s.c).sum::<usize>(), floats, "{name}");
    }
}

/// Sizes can come from files, so a size that the network cannot use must lead to an error.
#[test]
fn odd_sizes_do_not_panic() {
    for name in names() {
        for size in [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 39, 64, 65, 75, 255, 65_535, 65_536] {
            for shape in [Shape::image(1, size, size), Shape::image(65_536, 1, size), Shape::image(3, size, 1)] {
                let net = build(name, shape, 7).unwrap();
                if let Ok(tensors) = net.tensors() {
                    let count: usize = tensors.parameters.iter().map(|(_, s)| s.iter().product::<usize>()).sum();
                    assert_eq!(count, net.param_count().unwrap(), "{name} {shape:?}");
                }
            }
        }
        for classes in [0, 1, 1 << 24] {
            assert!(build(name, input(name).unwrap(), classes).unwrap().shapes().is_ok(), "{name} {classes}");
        }
    }
}

/// On request, the scale of the last norm in each block is initialised to zero. Nothing else changes.
#[test]
fn zero_init_residual_touches_the_last_norm_of_each_block() {
    let plain = build("resnet50", Shape::image(3, 224, 224), 1000).unwrap();
    let mut zeroed = plain.clone();
    zeroed.zero_init_residual();
    let changed = plain.nodes.iter().zip(&zeroed.nodes).filter(|(a, b)| a != b).map(|(_, b)| b);
    let names: Vec<&str> = changed.map(|node| node.name.as_str()).collect();
    assert_eq!(names.len(), 16);
    assert!(names.iter().all(|name| name.starts_with("layer") && name.ends_with(".bn3")), "{names:?}");
    // behind the norm there may be squeeze and excitation or stochastic depth, and a trunk may end with a norm, too
    for (name, blocks) in [("seresnet50", 16), ("efficientnet_b0", 9), ("mobilenet_v2", 10), ("convnext_tiny", 0)] {
        let net = build(name, Shape::image(3, 224, 224), 1000).unwrap();
        let ends = net.branch_ends();
        let sums = net.nodes.iter().filter(|node| match &node.op {
            Op::Add(_) => true,
            Op::Norm(norm) => norm.residual,
            _ => false,
        });
        assert_eq!((ends.len(), sums.count()), (blocks, if blocks == 0 { 18 } else { blocks }), "{name}");
        assert!(ends.iter().all(|at| net.nodes[*at].op.kind() == "norm"), "{name}");
    }
}

/// Names are PyTorch's module paths. Other image sizes and numbers of classes work.
#[test]
fn imagenet_networks_accept_other_image_sizes_and_classes() {
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

/// The last layer has a row of weights for each class, also if it is a convolution as in SqueezeNet.
#[test]
fn the_last_layer_computes_the_scores() {
    for name in names() {
        let net = build(name, input(name).unwrap(), 7).unwrap();
        let last = &net.nodes[net.last_layer().unwrap_or_else(|| panic!("{name} has no last layer"))].name;
        assert_eq!(net.classifiers()[0], last, "{name}");
        let tensors = net.tensors().unwrap().parameters;
        let (_, shape) = tensors.iter().find(|(tensor, _)| *tensor == format!("{last}.weight")).unwrap();
        assert_eq!(shape[0], 7, "{name}: {last}");
    }
}

/// Auxiliary classifiers have loss weights, and the scores do not depend on them.
#[test]
fn auxiliary_classifiers_are_used_only_in_training() {
    for (name, weights, parts) in
        [("googlenet", vec![0.3, 0.3], vec!["aux1.", "aux2."]), ("inception_v3", vec![0.4], vec!["AuxLogits."])]
    {
        let net = build(name, input(name).unwrap(), 10).unwrap();
        assert_eq!(net.heads.iter().map(|head| head.weight).collect::<Vec<_>>(), weights, "{name}");
        for (node, serves) in net.nodes.iter().zip(net.serving()) {
            assert_eq!(serves, !parts.iter().any(|part| node.name.starts_with(part)), "{name}: {}", node.name);
        }
    }
}
