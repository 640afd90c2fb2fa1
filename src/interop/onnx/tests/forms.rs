//! Forms of nodes that the standard allows: each is computed as it says, or refused.

use super::*;
use crate::nn::spec::{Activation, Op};

/// The same node with an attribute of one number.
fn with_int(node: Bytes, name: &str, value: i64) -> Bytes {
    node.inner(5, &Bytes::default().text(1, name).int(3, value).int(20, 2))
}

/// The same with a list of them.
fn with_ints(node: Bytes, name: &str, values: &[i64]) -> Bytes {
    let list = values.iter().fold(Bytes::default().text(1, name), |list, value| list.int(8, *value));
    node.inner(5, &list.int(20, 7))
}

/// The same with a word.
fn with_text(node: Bytes, name: &str, text: &str) -> Bytes {
    node.inner(5, &Bytes::default().text(1, name).text(4, text).int(20, 3))
}

/// The parts with other nodes in place of the ReLU, which make b out of a.
fn between(tensors: &[Bytes], nodes: &[Bytes]) -> Vec<u8> {
    changed(|all, own| {
        all.extend_from_slice(tensors);
        own.splice(1..2, nodes.to_vec());
    })
}

/// The operations of what a file becomes.
fn kinds(bytes: &[u8]) -> Vec<&'static str> {
    network(bytes).unwrap().net.nodes.iter().map(|node| node.op.kind()).collect()
}

#[test]
fn no_input_is_passed_over() {
    let numbers = [floats("zero", &[], &[0.0]), floats("most", &[], &[0.7])];
    for op in ["Max", "Min"] {
        let bytes = between(&numbers, &[node(op, &["a", "zero", "most"], "b")]);
        refused(&bytes, &[&format!("node /b/{op} ({op}): of 3 inputs; two are supported: write it as one {op} after")]);
        assert_eq!(kinds(&between(&numbers, &[node(op, &["a"], "b")])), ["conv", "avgpool", "flatten", "linear"]);
    }
    let relu = between(&numbers, &[node("Relu", &["a", "zero"], "b")]);
    refused(&relu, &["node /b/Relu (Relu): it has 2 inputs, and 1 at most are understood"]);
    // left out
    assert!(network(&between(&numbers, &[node("Clip", &["a", "zero", ""], "b")])).is_ok());
    assert!(network(&between(&numbers, &[node("Relu", &["a", "", ""], "b")])).is_ok());
}

/// The pads of a layer that takes what a Pad has put around 4 x 4 cells.
fn padded(op: &str, weight: &[&str], auto: &str, stride: i64, cells: &[i64]) -> [usize; 4] {
    let tensors = [ints("cells", cells), floats("own.weight", &[5, 5, 3, 3], &[0.5; 225])];
    let window =
        with_ints(with_text(node(op, &[&["p"], weight].concat(), "b"), "auto_pad", auto), "kernel_shape", &[3, 3]);
    let window = with_ints(window, "strides", &[stride, stride]);
    let window = if op == "Conv" { window } else { with_int(window, "count_include_pad", 1) };
    let net = network(&between(&tensors, &[node("Pad", &["a", "cells"], "p"), window])).unwrap().net;
    match &net.nodes[1].op {
        Op::Conv(conv) => conv.pads,
        Op::Pool(pool) => pool.pads,
        other => panic!("{other:?}"),
    }
}

/// Of 4 + 2 rows, a stride of 2 needs one cell, and a stride of 3 none; of the 4 alone, one and two.
#[test]
fn cells_of_same_are_counted_behind_a_pad() {
    let both = [0, 0, 1, 1, 0, 0, 1, 1];
    for (op, weight) in [("Conv", &["own.weight"][..]), ("AveragePool", &[])] {
        assert_eq!(padded(op, weight, "SAME_UPPER", 2, &both), [1, 1, 2, 2], "{op}");
        assert_eq!(padded(op, weight, "SAME_LOWER", 2, &both), [2, 2, 1, 1], "{op}");
        assert_eq!(padded(op, weight, "SAME_UPPER", 3, &both), [1, 1, 1, 1], "{op}");
        assert_eq!(padded(op, weight, "SAME_UPPER", 2, &[0, 0, 0, 1, 0, 0, 0, 0]), [0, 2, 1, 1], "{op}");
    }
}

/// The parts with these nodes behind what their Gemm makes, z.
fn behind(nodes: &[Bytes]) -> Vec<u8> {
    changed(|_, own| {
        own.truncate(4);
        own.push(node("Gemm", &["d", "fc.weight"], "z"));
        own.extend_from_slice(nodes);
    })
}

#[test]
fn a_softmax_is_left_out_where_nobody_reads_it() {
    for op in ["Softmax", "LogSoftmax"] {
        for axis in [1, -1] {
            assert!(network(&behind(&[with_int(node(op, &["z"], "y"), "axis", axis)])).is_ok(), "{op} {axis}");
        }
        assert!(network(&behind(&[node(op, &["z"], "y")])).is_ok(), "{op}");
        let across = behind(&[with_int(node(op, &["z"], "y"), "axis", 0)]);
        refused(&across, &[&format!("node /y/{op} ({op}): along axis 0 of vectors (N, F)"), "take axis 1"]);
        let read = behind(&[node(op, &["z"], "y"), node("Mul", &["z", "y"], "t")]);
        refused(&read, &[&format!("node /y/{op} ({op})"), "node /t/Mul (Mul) reads what it makes"]);
        let further = [node(op, &["z"], "s"), node("Identity", &["s"], "y")];
        assert!(network(&behind(&further)).is_ok(), "{op}");
        let unread = behind(&[node(op, &["z"], "s"), node("Identity", &["s"], "t"), node("Identity", &["z"], "y")]);
        refused(&unread, &[&format!("node /s/{op} ({op}): supported at the end alone")]);
    }
}

#[test]
fn a_softmax_of_images_runs_over_channels() {
    let of =
        |axis| changed(|_, own| *own = [&own[..3], &[with_int(node("Softmax", &["c"], "y"), "axis", axis)]].concat());
    for axis in [1, -3] {
        assert!(network(&of(axis)).is_ok(), "{axis}");
    }
    for axis in [0, 2, 3, -1] {
        refused(&of(axis), &[&format!("along axis {axis} of images (N, C, H, W) of 5")]);
    }
}

/// Rounding up drops windows that begin in a pool's own cells at the end, and the image has none where a Pad has put them there.
#[test]
fn pools_that_round_up_keep_the_windows_in_a_pad() {
    let pool = |cells: &[i64], kernel, stride, ceil| {
        let pool = with_ints(node("AveragePool", &["p"], "b"), "kernel_shape", &[kernel, kernel]);
        let pool = with_int(with_ints(pool, "strides", &[stride, stride]), "ceil_mode", ceil);
        between(&[ints("cells", cells)], &[node("Pad", &["a", "cells"], "p"), pool])
    };
    let shapes = |bytes: &[u8]| network(bytes).unwrap().net.shapes().unwrap()[2];
    let (end, around) = ([0, 0, 0, 0, 0, 0, 2, 2], [0, 0, 1, 1, 0, 0, 1, 1]);
    // of 6 rows, the third window begins in row 4, which is the first that was added
    refused(
        &pool(&end, 3, 2, 1),
        &["node /b/AveragePool (AveragePool)", "(5x3x3)", "drops them (5x2x2)", "ceil_mode=False"],
    );
    assert_eq!(shapes(&pool(&end, 3, 2, 0)), Shape::image(5, 2, 2));
    assert_eq!(shapes(&pool(&end, 3, 3, 1)), Shape::image(5, 2, 2));
    // it begins in the last row of the image
    assert_eq!(shapes(&pool(&around, 3, 2, 1)), Shape::image(5, 3, 3));
}

/// Layer normalisation as its formula, its means over these axes.
fn formula(first: &[i64], second: &[i64], kept: i64) -> Vec<u8> {
    let mean = |from: &str, axes: &str, to: &str| node("ReduceMean", &[from, axes], to);
    let nodes = [
        with_ints(node("Transpose", &["a"], "t"), "perm", &[0, 2, 3, 1]),
        mean("t", "first", "m"),
        node("Sub", &["t", "m"], "centred"),
        node("Mul", &["centred", "centred"], "squares"),
        with_int(mean("squares", "second", "v"), "keepdims", kept),
        node("Add", &["v", "eps"], "shifted"),
        node("Sqrt", &["shifted"], "deviation"),
        node("Div", &["centred", "deviation"], "u"),
        with_ints(node("Transpose", &["u"], "b"), "perm", &[0, 3, 1, 2]),
    ];
    between(&[ints("first", first), ints("second", second), floats("eps", &[], &[1e-5])], &nodes)
}

#[test]
fn both_means_of_a_layer_normalisation_run_over_channels() {
    for axes in [[-1], [3]] {
        assert_eq!(kinds(&formula(&axes, &axes, 1))[1], "layer_norm");
    }
    for (second, kept) in [(&[1, 2][..], 1), (&[2], 1), (&[-1], 0), (&[-1, -2], 1), (&[i64::MIN], 1)] {
        refused(
            &formula(&[-1], second, kept),
            &["node /v/ReduceMean (ReduceMean)", "both of its means over the last axis"],
        );
    }
    refused(&formula(&[2], &[-1], 1), &["node /m/ReduceMean (ReduceMean): means over [2] of images (N, H, W, C)"]);
}

#[test]
fn casts_of_numbers_are_computed() {
    let factor = |to: i64| {
        let casts = [
            with_int(node("Cast", &["k"], "i"), "to", to),
            with_int(node("Cast", &["i"], "f"), "to", 1),
            node("Mul", &["a", "f"], "b"),
        ];
        between(&[floats("k", &[], &[2.7])], &casts)
    };
    for (to, kept) in [(7, 2.0), (1, 2.7), (11, 2.7)] {
        let op = network(&factor(to)).unwrap().net.nodes[1].op.clone();
        assert_eq!(op, Activation::Scale(kept).into(), "{to}");
    }
    // times one
    assert!(!kinds(&factor(9)).contains(&"scale"));
    refused(&factor(8), &["node /i/Cast (Cast): to text: only numbers are supported"]);
    let tensor = between(&[], &[with_int(node("Cast", &["a"], "b"), "to", 7)]);
    refused(&tensor, &["node /b/Cast (Cast): it rounds a tensor of the network to int64"]);
}

#[test]
fn what_a_gemm_adds_is_one_number_a_class() {
    let with = |dims: &[i64], values: &[f32]| {
        changed(|tensors, own| {
            tensors.push(floats("fc.bias", dims, values));
            own[4] = node("Gemm", &["d", "fc.weight", "fc.bias"], "y");
        })
    };
    let bias =
        |bytes: &[u8]| network(bytes).unwrap().tensors.into_iter().find(|tensor| tensor.0 == "fc.bias").unwrap().2;
    for dims in [&[3][..], &[1, 3]] {
        assert_eq!(bias(&with(dims, &[0.5, 1.5, 2.5])), [0.5, 1.5, 2.5]);
    }
    for dims in [&[][..], &[1], &[1, 1]] {
        assert_eq!(bias(&with(dims, &[0.5])), [0.5; 3]);
    }
    // one number an image
    let images = with(&[3, 1], &[0.5, 1.5, 2.5]);
    refused(&images, &["node /y/Gemm (Gemm): its C has the shape [3, 1]; supported is one number for each class, [3]"]);
}

/// The same node with an attribute that is a float.
fn with_float(node: Bytes, name: &str, value: f32) -> Bytes {
    let attribute = Bytes::default().text(1, name).varint(2 << 3 | 5);
    let attribute = Bytes([attribute.0, value.to_le_bytes().to_vec()].concat());
    node.inner(5, &attribute.int(20, 1))
}

/// The values of one tensor of what a file becomes.
fn values(bytes: &[u8], name: &str) -> Vec<f32> {
    let net = network(bytes).unwrap();
    let names: Vec<&str> = net.tensors.iter().map(|tensor| tensor.0.as_str()).collect();
    let tensor = net.tensors.iter().find(|tensor| tensor.0 == name);
    tensor.unwrap_or_else(|| panic!("{name} in {names:?}")).2.clone()
}

/// What newer opsets have as inputs is an attribute in older ones.
#[test]
fn attributes_of_old_opsets_are_read() {
    let old = |nodes: &[Bytes]| {
        let (tensors, mut own) = parts();
        own.splice(1..2, nodes.to_vec());
        model(9, &IMAGE, &tensors, &own)
    };
    let clip = with_float(with_float(node("Clip", &["a"], "b"), "min", 0.0), "max", 6.0);
    assert_eq!(network(&old(&[clip])).unwrap().net.nodes[1].op, Activation::Relu6.into());
    let dropout = [node("Relu", &["a"], "r"), with_float(node("Dropout", &["r"], "b"), "ratio", 0.25)];
    let net = network(&old(&dropout)).unwrap().net;
    assert!(net.nodes.iter().any(|node| matches!(node.op, Op::Dropout(d) if d.0 == 0.25)), "{net:?}");
    let pads = with_ints(node("Pad", &["a"], "p"), "pads", &[0, 0, 1, 1, 0, 0, 1, 1]);
    let window = with_ints(node("AveragePool", &["p"], "b"), "kernel_shape", &[3, 3]);
    match &network(&old(&[pads, window])).unwrap().net.nodes[1].op {
        Op::Pool(pool) => assert_eq!(pool.pads, [1; 4]),
        other => panic!("{other:?}"),
    }
    let parts = |name, values: &[i64], node| with_ints(node, name, values);
    let slice = parts("starts", &[0, 0], parts("ends", &[i64::MAX, i64::MAX], node("Slice", &["a"], "b")));
    assert_eq!(kinds(&old(&[slice]))[1], "avgpool");
    // a softmax without an axis runs over all but the first
    let (tensors, mut own) = self::parts();
    own[4] = node("Gemm", &["d", "fc.weight"], "z");
    own.push(node("Softmax", &["z"], "y"));
    assert!(network(&model(9, &IMAGE, &tensors, &own)).is_ok());
}

#[test]
fn weights_that_the_graph_computes_are_computed() {
    let bytes = changed(|tensors, own| {
        tensors.extend([ints("shape", &[5, 3]), ints("order", &[2, 0, 1]), floats("three", &[], &[3.0])]);
        let half = Bytes::default().int(1, 1).int(2, 1).raw(9, &0.5f32.to_le_bytes());
        let filled = node("ConstantOfShape", &["shape"], "half");
        own[4] = node("Gemm", &["d", "weight"], "y");
        own.splice(
            0..0,
            [
                filled.inner(5, &Bytes::default().text(1, "value").inner(5, &half).int(20, 4)),
                with_int(node("Gather", &["fc.weight", "order"], "turned"), "axis", 1),
                node("Mul", &["half", "turned"], "product"),
                node("Add", &["product", "three"], "weight"),
            ],
        );
    });
    let (own, made) = (|i: usize| (i as f32).sin(), values(&bytes, "y.weight"));
    for (class, feature) in [(0, 0), (1, 4), (2, 3)] {
        let expected = 0.5 * own(feature * 3 + [2, 0, 1][class]) + 3.0;
        assert!((made[class * 5 + feature] - expected).abs() < 1e-6, "{class} {feature}: {made:?}");
    }
}

/// Batch normalisation as a product and a sum becomes part of the convolution before it, or a layer.
#[test]
fn a_product_and_a_sum_with_numbers_of_each_channel_are_one_layer() {
    let (scale, shift) = ([2.0, 3.0, 4.0, 5.0, 6.0], [0.5, 1.5, 2.5, 3.5, 4.5]);
    let numbers = [floats("scale", &[5, 1, 1], &scale), floats("shift", &[1, 5, 1, 1], &shift)];
    let affine = |from: &str| [node("Mul", &[from, "scale"], "m"), node("Add", &["m", "shift"], "b")];
    let conv = between(&numbers, &affine("a"));
    assert_eq!(kinds(&conv), ["conv", "avgpool", "flatten", "linear"]);
    assert_eq!(values(&conv, "conv.bias"), shift);
    for (at, value) in values(&conv, "conv.weight").into_iter().enumerate() {
        assert!((value - scale[at / 2] * (at as f32).sin()).abs() < 1e-6, "{at}");
    }
    let relu = between(&numbers, &[&[node("Relu", &["a"], "r")][..], &affine("r")].concat());
    assert_eq!(kinds(&relu), ["conv", "conv", "avgpool", "flatten", "linear"]);
    assert_eq!((values(&relu, "m.weight"), values(&relu, "m.bias")), (scale.to_vec(), shift.to_vec()));
    let stored = ["gamma", "beta", "mean", "var"].map(|name| floats(name, &[5], &[1.0; 5]));
    let norm = node("BatchNormalization", &["a", "gamma", "beta", "mean", "var"], "n");
    let norm = between(&[&numbers[..], &stored].concat(), &[&[norm][..], &affine("n")].concat());
    assert_eq!(kinds(&norm), ["conv", "norm", "avgpool", "flatten", "linear"]);
    assert_eq!(values(&norm, "n.weight"), scale);
    // (x + 1) times scale, plus shift
    let sum: Vec<f32> = scale.iter().zip(shift).map(|(scale, shift)| scale + shift).collect();
    assert_eq!(values(&norm, "n.bias"), sum);
}

#[test]
fn batch_norms_in_training_mode_are_refused_by_name() {
    let stored = ["gamma", "beta", "mean", "var"].map(|name| floats(name, &[5], &[1.0; 5]));
    let norm = node("BatchNormalization", &["a", "gamma", "beta", "mean", "var"], "b");
    let training = between(&stored, &[with_int(norm.clone(), "training_mode", 1)]);
    refused(&training, &["node /b/BatchNormalization (BatchNormalization)", "training_mode=1", "model.eval()"]);
    refused(&between(&stored, &[with_int(norm, "spatial", 0)]), &["spatial=0"]);
}

#[test]
fn hard_sigmoids_of_any_slope_are_layers() {
    let hard = |alpha| with_float(node("HardSigmoid", &["a"], "h"), "alpha", alpha);
    let sigmoid = [hard(0.2), node("Identity", &["h"], "b")];
    assert_eq!(kinds(&between(&[], &sigmoid))[..3], ["conv", "scale", "hard_sigmoid"]);
    let swish = network(&between(&[], &[hard(0.2), node("Mul", &["a", "h"], "b")])).unwrap().net;
    let ops: Vec<&Op> = swish.nodes[1..4].iter().map(|node| &node.op).collect();
    assert_eq!(ops[1], &Op::from(Activation::HardSwish));
    for (op, factor) in [(ops[0], 1.2), (ops[2], 1.0 / 1.2)] {
        assert!(matches!(op, Op::Activation(Activation::Scale(f)) if (f - factor).abs() < 1e-6), "{op:?}");
    }
}

#[test]
fn sums_and_means_of_several_tensors_are_chains() {
    for (op, kinds) in [
        ("Sum", &["conv", "relu", "tanh", "add", "add"][..]),
        ("Mean", &["conv", "relu", "tanh", "add", "add", "scale"]),
    ] {
        let nodes = [node("Relu", &["a"], "r"), node("Tanh", &["a"], "t"), node(op, &["r", "t", "a"], "b")];
        assert_eq!(self::kinds(&between(&[], &nodes))[..kinds.len()], *kinds);
    }
}

/// Zeros never win over what a ReLU leaves.
#[test]
fn zeros_around_a_max_pool_are_its_own_cells_behind_a_relu() {
    let cells = [ints("cells", &[0, 0, 1, 1, 0, 0, 1, 1])];
    let pool = |from: &[Bytes]| {
        let pool = with_ints(node("MaxPool", &["p"], "b"), "kernel_shape", &[3, 3]);
        between(&cells, &[from, &[node("Pad", &["r", "cells"], "p"), pool]].concat())
    };
    match &network(&pool(&[node("Relu", &["a"], "r")])).unwrap().net.nodes[1].op {
        Op::Pool(pool) => assert_eq!(pool.pads, [1; 4]),
        other => panic!("{other:?}"),
    }
    refused(&pool(&[node("Tanh", &["a"], "r")]), &["node /b/MaxPool (MaxPool): it reads a padded tensor"]);
}

/// Features of images whose channels come last are joined in another order than here.
#[test]
fn channels_may_come_last_from_the_input_on() {
    let (tensors, _) = parts();
    let weight: Vec<f32> = (0..5 * 16 * 3).map(|i| i as f32).collect();
    let tensors = [&tensors[..1], &[floats("fc.weight", &[80, 3], &weight), ints("flat", &[-1, 80])]].concat();
    let nodes = [
        with_ints(node("Transpose", &["x"], "t"), "perm", &[0, 3, 1, 2]),
        node("Conv", &["t", "conv.weight"], "a"),
        with_ints(node("Transpose", &["a"], "l"), "perm", &[0, 2, 3, 1]),
        node("Reshape", &["l", "flat"], "d"),
        node("MatMul", &["d", "fc.weight"], "y"),
    ];
    let bytes = model(17, &[Err("N"), Ok(5), Ok(6), Ok(2)], &tensors, &nodes);
    refused(&bytes, &["node /d/Reshape (Reshape): from 5x5x6 to [-1, 80]"]);
    let bytes = model(17, &[Err("N"), Ok(8), Ok(2), Ok(2)], &tensors, &nodes);
    let net = network(&bytes).unwrap();
    assert_eq!(net.net.input, Shape::image(2, 8, 2));
    let linear = values(&bytes, "fc.weight");
    // class, channel, pixel
    for (class, c, pixel) in [(0, 0, 0), (1, 4, 3), (2, 1, 15)] {
        assert_eq!(linear[class * 80 + c * 16 + pixel], weight[(pixel * 5 + c) * 3 + class]);
    }
}

#[test]
fn channel_shuffles_move_channels() {
    let sizes = [
        ints("blocks", &[1, 2, 3, 4, 4]),
        ints("back", &[1, 6, 4, 4]),
        floats("six.weight", &[6, 5, 1, 1], &[1.0; 30]),
    ];
    let nodes = [
        node("Conv", &["a", "six.weight"], "s"),
        node("Reshape", &["s", "blocks"], "t"),
        with_ints(node("Transpose", &["t"], "u"), "perm", &[0, 2, 1, 3, 4]),
        node("Reshape", &["u", "back"], "b"),
    ];
    let bytes = changed(|all, own| {
        all.extend_from_slice(&sizes);
        all[1] = floats("fc.weight", &[6, 3], &[0.5; 18]);
        own.splice(1..2, nodes.to_vec());
    });
    let weight = values(&bytes, "b.weight");
    let from: Vec<usize> = weight.chunks(6).map(|row| row.iter().position(|w| *w == 1.0).unwrap()).collect();
    assert_eq!(from, [0, 3, 1, 4, 2, 5]);
    assert_eq!(weight.iter().sum::<f32>(), 6.0);
}

/// PyTorch's exporter flattens a single image to one list of its features, and gathers them again.
#[test]
fn a_list_of_all_features_is_parted_again() {
    let with = |order: Vec<i64>, dims: &[i64]| {
        changed(|tensors, own| {
            let bytes: Vec<u8> = order.iter().flat_map(|n| n.to_le_bytes()).collect();
            let dims = dims.iter().fold(Bytes::default(), |tensor, n| tensor.int(1, *n));
            tensors.extend([
                ints("list", &[-1]),
                dims.int(2, 7).text(8, "order").raw(9, &bytes),
                ints("flat", &[1, 5]),
            ]);
            own.splice(
                3..4,
                [
                    node("Reshape", &["c", "list"], "l"),
                    node("Gather", &["l", "order"], "p"),
                    node("Reshape", &["p", "flat"], "d"),
                ],
            );
        })
    };
    for dims in [&[1, 5, 1, 1][..], &[1, 5]] {
        let kinds = kinds(&with((0..5).collect(), dims));
        assert_eq!([kinds[0], kinds[kinds.len() - 1]], ["conv", "linear"], "{kinds:?}");
    }
    refused(&with(vec![1, 0, 2, 3, 4], &[1, 5]), &["node /p/Gather (Gather): its indices mix the features"]);
    refused(&with((0..5).collect(), &[5, 1]), &["node /p/Gather (Gather): indices of the shape [5, 1]"]);
}

#[test]
fn attention_is_called_so() {
    let attention = [node("Relu", &["a"], "q"), node("MatMul", &["a", "q"], "b")];
    refused(&between(&[], &attention), &["node /b/MatMul (MatMul)", "attention is not supported"]);
    let shares = [node("Softmax", &["a"], "s"), node("MatMul", &["s", "a"], "b")];
    refused(&between(&[], &shares), &["node /s/Softmax (Softmax)", "attention is not supported"]);
    refused(
        &between(&[], &[node("Attention", &["a"], "b")]),
        &["node /b/Attention (Attention): attention is not supported"],
    );
}

#[test]
fn functions_that_are_no_activation_are_named_with_a_cure() {
    let bounds = [floats("least", &[], &[-1.0]), floats("most", &[], &[1.0])];
    for (op, inputs) in
        [("Softplus", &["a"][..]), ("Erf", &["a"]), ("Clip", &["a", "least", "most"]), ("Add", &["a", "most"])]
    {
        let bytes = between(&bounds, &[node(op, inputs, "b")]);
        let maker = format!("it reads what node /b/{op} ({op}) makes, which no activation here computes");
        refused(&bytes, &["node /c/GlobalAveragePool (GlobalAveragePool)", &maker, "SiLU"]);
    }
    let joined = [node("Exp", &["a"], "e"), node("Tanh", &["a"], "t"), node("Max", &["e", "t"], "b")];
    refused(&between(&[], &joined), &["what node /e/Exp (Exp) makes"]);
}

#[test]
fn types_and_domains_are_named_with_a_cure() {
    let graph = |kind: i64| {
        let tensor = IMAGE.iter().fold(Bytes::default(), |shape, _| shape.inner(1, &Bytes::default().int(1, 4)));
        let tensor = Bytes::default().inner(1, &Bytes::default().int(1, kind).inner(2, &tensor));
        let graph = Bytes::default()
            .inner(1, &node("Relu", &["x"], "y"))
            .inner(11, &Bytes::default().text(1, "x").inner(2, &tensor));
        let opset = Bytes::default().text(1, "").int(2, 17);
        Bytes::default().int(1, 8).inner(7, &graph.inner(12, &Bytes::default().text(1, "y"))).inner(8, &opset).0
    };
    for (kind, name) in [(10, "float16"), (11, "float64"), (16, "bfloat16")] {
        refused(&graph(kind), &[&format!("its input x is of {name}, and float32 is supported"), "model.float()"]);
    }
    refused(&graph(2), &["its input x is of uint8", "export without --preprocess"]);
    let foreign = between(&[], &[node("Relu", &["a"], "b").text(7, "com.microsoft")]);
    refused(&foreign, &["node /b/Relu (Relu): it is of the domain \"com.microsoft\"", "before a runtime optimised it"]);
}

#[test]
fn sizes_of_zero_are_those_of_the_input() {
    let with = |shape: &[i64], allow: i64| {
        changed(|tensors, own| {
            tensors.push(ints("shape", shape));
            own[3] = with_int(node("Reshape", &["c", "shape"], "d"), "allowzero", allow);
        })
    };
    for shape in [&[-1, 0][..], &[0, 0], &[0, -1], &[-1, 5]] {
        assert_eq!(kinds(&with(shape, 0)), ["conv", "avgpool", "flatten", "linear"], "{shape:?}");
    }
    refused(&with(&[-1, 0], 1), &["node /d/Reshape (Reshape): from 5 to [-1, 0]"]);
    let squeezed = changed(|_, own| own[3] = node("Squeeze", &["c"], "d"));
    refused(&squeezed, &["node /d/Squeeze (Squeeze): without axes", "state axes 2 and 3"]);
}
