//! Graphs as written for old opsets and by the exporters of TensorFlow, Caffe2 and PyTorch.

use net::{Activation, Channels, Conv, Op};

use super::forms::{between, kinds, with_int, with_ints};
use super::*;

/// Adds a float attribute to a node.
fn with_float(node: Message, name: &str, value: f32) -> Message {
    node.message(5, Message::new().text(1, name).float(2, value).int(20, 1))
}

/// Imports a network and returns the values of its tensor `name`.
fn values(bytes: &[u8], name: &str) -> Vec<f32> {
    let net = network(bytes).unwrap();
    let names: Vec<&str> = net.tensors.iter().map(|tensor| tensor.0.as_str()).collect();
    let tensor = net.tensors.iter().find(|tensor| tensor.0 == name);
    tensor.unwrap_or_else(|| panic!("{name} in {names:?}")).2.clone()
}

/// Imports a network and returns its selections of channels.
fn channels(bytes: &[u8]) -> Vec<Channels> {
    let nodes = network(bytes).unwrap().net.nodes;
    nodes
        .into_iter()
        .filter_map(|node| match node.op {
            Op::Channels(channels) => Some(channels),
            _ => None,
        })
        .collect()
}

/// Older opsets have attributes where newer opsets have inputs.
#[test]
fn attributes_of_old_opsets_are_read() {
    let old = |nodes: &[Message]| {
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
    // in old opsets a softmax without an axis runs over all dimensions except the first
    let (tensors, mut own) = super::parts();
    own[4] = node("Gemm", &["d", "fc.weight"], "z");
    own.push(node("Softmax", &["z"], "y"));
    assert!(network(&model(9, &IMAGE, &tensors, &own)).is_ok());
}

#[test]
fn weights_computed_by_the_graph_are_evaluated() {
    let bytes = changed(|tensors, own| {
        tensors.extend([ints("shape", &[5, 3]), ints("order", &[2, 0, 1]), floats("three", &[], &[3.0])]);
        let half = Message::new().int(1, 1).int(2, 1).raw(9, &0.5f32.to_le_bytes());
        let filled = node("ConstantOfShape", &["shape"], "half");
        own[4] = node("Gemm", &["d", "weight"], "y");
        own.splice(
            0..0,
            [
                filled.message(5, Message::new().text(1, "value").message(5, &half).int(20, 4)),
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

/// A batch norm written as a product and a sum is merged into the convolution before it, or becomes a layer.
#[test]
fn per_channel_product_and_sum_become_one_layer() {
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
    // the batch norm adds its bias of 1 before the product and the sum, so the merged bias is 1 * scale + shift
    let sum: Vec<f32> = scale.iter().zip(shift).map(|(scale, shift)| scale + shift).collect();
    assert_eq!(values(&norm, "n.bias"), sum);
}

#[test]
fn batch_norms_in_training_mode_are_refused_by_name() {
    let stored = ["gamma", "beta", "mean", "var"].map(|name| floats(name, &[5], &[1.0; 5]));
    let norm = node("BatchNormalization", &["a", "gamma", "beta", "mean", "var"], "b");
    let training = between(&stored, &[with_int(norm.clone(), "training_mode", 1)]);
    refused(&training, &["/b/BatchNormalization (BatchNormalization)", "training_mode=1", "model.eval()"]);
    refused(&between(&stored, &[with_int(norm.clone(), "spatial", 0)]), &["spatial=0"]);
    // before opset 14, further outputs mean training mode
    let (mut tensors, mut nodes) = parts();
    tensors.extend_from_slice(&stored);
    nodes.splice(1..2, [["m", "v", "saved_m", "saved_v"].iter().fold(norm, |norm, name| norm.text(2, name))]);
    let old = model(13, &IMAGE, &tensors, &nodes);
    refused(&old, &["/b/BatchNormalization (BatchNormalization)", "five outputs", "model.eval()"]);
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

/// No output of a ReLU is below zero, so zero padding does not change the maximum. This also holds for a sum of such
/// outputs. After other layers, a separate layer must add the zeros.
#[test]
fn zero_pad_after_relu_becomes_padding_of_the_max_pool() {
    let cells = [ints("cells", &[0, 0, 1, 2, 0, 0, 0, 1])];
    let pool = |from: &[Message]| {
        let pool = with_ints(node("MaxPool", &["p"], "b"), "kernel_shape", &[3, 3]);
        between(&cells, &[from, &[node("Pad", &["r", "cells"], "p"), pool]].concat())
    };
    let sum = [node("Relu", &["a"], "u"), node("Sigmoid", &["u"], "v"), node("Add", &["u", "v"], "r")];
    for from in [&[node("Relu", &["a"], "r")][..], &sum] {
        let net = network(&pool(from)).unwrap().net;
        let pools =
            net.nodes.iter().filter_map(|node| if let Op::Pool(pool) = &node.op { Some(pool.pads) } else { None });
        assert_eq!(pools.collect::<Vec<_>>(), [[1, 2, 0, 1], [0; 4]]);
    }
    let Network { net, tensors, notes, .. } = network(&pool(&[node("Tanh", &["a"], "r")])).unwrap();
    assert_eq!(net.nodes[2].op, Conv::new(5, 1).groups(5).pads([1, 2, 0, 1]).into());
    assert!(matches!(&net.nodes[3].op, Op::Pool(pool) if pool.pads == [0; 4]), "{net:?}");
    let weight = format!("{}.weight", net.nodes[2].name);
    assert_eq!(tensors.iter().find(|tensor| tensor.0 == weight).unwrap().2, [1.0; 5]);
    assert!(notes.iter().any(|note| note.contains("depthwise") && note.contains("`freeze.patterns`")), "{notes:?}");
}

/// No value is lower than -infinity, so cells of -infinity are like a max pool's own padding.
#[test]
fn a_pad_of_minus_infinity_becomes_padding_of_the_max_pool() {
    let tensors = [ints("cells", &[0, 0, 1, 1, 0, 0, 0, 0]), floats("lowest", &[], &[f32::NEG_INFINITY])];
    let with = |tensors: &[Message], op: &str| {
        let pool = with_ints(node(op, &["p"], "b"), "kernel_shape", &[3, 3]);
        between(tensors, &[node("Pad", &["a", "cells", "lowest"], "p"), pool])
    };
    match &network(&with(&tensors, "MaxPool")).unwrap().net.nodes[1].op {
        Op::Pool(pool) => assert_eq!(pool.pads, [1, 1, 0, 0]),
        other => panic!("{other:?}"),
    }
    refused(&with(&tensors, "AveragePool"), &["/b/AveragePool (AveragePool)", "-infinity"]);
    let [cells, _] = tensors.clone();
    refused(&with(&[cells, floats("lowest", &[], &[-2.0])], "MaxPool"), &["/p/Pad (Pad)", "-infinity"]);
}

/// Slices and negative pads crop images. A crop becomes a convolution that moves the image.
#[test]
fn crops_become_depthwise_convolutions() {
    let tensors = [
        ints("starts", &[2, 1]),
        ints("ends", &[i64::MAX, -1]),
        ints("axes", &[2, 3]),
        ints("pads", &[0, 0, -1, 0, 0, 0, 1, -2]),
    ];
    let conv = |nodes: &[Message]| {
        let bytes = between(&tensors, nodes);
        let conv = match &network(&bytes).unwrap().net.nodes[1].op {
            Op::Conv(conv) => (conv.kernel, conv.pads),
            other => panic!("{other:?}"),
        };
        (conv, values(&bytes, "b.weight")[..conv.0[0] * conv.0[1]].to_vec())
    };
    let slice = conv(&[node("Slice", &["a", "starts", "ends", "axes"], "b")]);
    assert_eq!(slice, (([3, 3], [0; 4]), vec![0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]));
    let pads = conv(&[node("Pad", &["a", "pads"], "b")]);
    assert_eq!(pads, (([2, 3], [0, 0, 1, 0]), vec![0.0, 0.0, 0.0, 1.0, 0.0, 0.0]));
    let all = [ints("pads", &[0, 0, -4, 0, 0, 0, 0, 0])];
    refused(&between(&all, &[node("Pad", &["a", "pads"], "b")]), &["/b/Pad (Pad)"]);
    let many = [ints("pads", &[0, 0, -9, 0, 0, 0, 0, 0])];
    refused(&between(&many, &[node("Pad", &["a", "pads"], "b")]), &["/b/Pad (Pad)", "[9, 0, 0, 0]"]);
}

/// tf2onnx may write the Pad before the Transpose that a convolution needs.
#[test]
fn images_with_channels_last_are_padded() {
    let tensors = [floats("more.weight", &[5, 5, 2, 2], &[0.5; 100]), ints("cells", &[0, 1, 2, 0, 0, 0, 1, 0])];
    let nodes = [
        with_ints(node("Transpose", &["a"], "t"), "perm", &[0, 2, 3, 1]),
        node("Tanh", &["t"], "u"),
        node("Pad", &["u", "cells"], "p"),
        with_ints(node("Transpose", &["p"], "q"), "perm", &[0, 3, 1, 2]),
        node("Conv", &["q", "more.weight"], "b"),
    ];
    match &network(&between(&tensors, &nodes)).unwrap().net.nodes[2].op {
        Op::Conv(conv) => assert_eq!(conv.pads, [1, 2, 0, 1]),
        other => panic!("{other:?}"),
    }
}

/// Any other layer may read padded tensors, too. All readers share the layer that adds the zeros.
#[test]
fn readers_share_the_layer_that_pads() {
    let cells = [ints("cells", &[0, 0, 1, 1, 0, 0, 1, 1])];
    let nodes = [node("Pad", &["a", "cells"], "p"), node("Tanh", &["p"], "t"), node("Add", &["p", "t"], "b")];
    assert_eq!(kinds(&between(&cells, &nodes))[..4], ["conv", "conv", "tanh", "add"]);
    let mirrored = node("Pad", &["a", "cells"], "p").message(5, Message::new().text(1, "mode").text(4, "reflect"));
    refused(&between(&cells, &[mirrored, nodes[1].clone(), nodes[2].clone()]), &["/t/Tanh (Tanh)", "mirrored"]);
}

/// Keras's Rescaling layer computes x * 2 / 255 - 1.
#[test]
fn adding_a_constant_becomes_a_depthwise_convolution() {
    let numbers = [floats("scale", &[], &[0.5]), floats("shift", &[], &[-1.0]), floats("four", &[], &[4.0])];
    let nodes = [
        node("Mul", &["scale", "a"], "m"),
        node("Add", &["m", "shift"], "s"),
        node("Neg", &["s"], "n"),
        node("Div", &["n", "four"], "b"),
    ];
    let bytes = between(&numbers, &nodes);
    assert_eq!(kinds(&bytes)[..2], ["conv", "conv"]);
    assert_eq!((values(&bytes, "b.weight"), values(&bytes, "b.bias")), (vec![-0.125; 5], vec![0.25; 5]));
}

/// tf2onnx computes some nodes in advance, but still lists the constants that these nodes read as inputs of the graph.
#[test]
fn inputs_that_no_node_reads_are_left_out() {
    let (tensors, nodes) = parts();
    let graph = tensors.iter().fold(Message::new(), |graph, tensor| graph.message(5, tensor));
    let inputs = ["x", "mean", "mean2"].map(|name| value(name, &IMAGE));
    let graph = inputs.iter().fold(graph, |graph, input| graph.message(11, input)).message(12, value("y", &[Ok(3)]));
    let with = |nodes: &[Message]| {
        let graph = nodes.iter().fold(graph.clone(), |graph, node| graph.message(1, node));
        let opset = Message::new().text(1, "").int(2, 17);
        Message::new().int(1, 8).message(7, &graph).message(8, &opset).bytes().to_vec()
    };
    assert!(network(&with(&nodes)).is_ok());
    let read = [&[node("Add", &["x", "mean"], "s")][..], &nodes].concat();
    refused(&with(&read), &["2 inputs", "(x, mean)"]);
}

/// If features are flattened from (H, W, C), the columns of the next weight must be reordered.
#[test]
fn networks_with_channels_last_input_are_read() {
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
    refused(&bytes, &["/d/Reshape (Reshape)", "[N, 5, 6, 5]", "[-1, 80]"]);
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
    assert_eq!(channels(&bytes), [Channels::shuffle(6, 2)]);
    let source: Vec<usize> = (0..6).map(|channel| Channels::shuffle(6, 2).source(channel)).collect();
    assert_eq!(source, [0, 3, 1, 4, 2, 5]);
}

/// PyTorch's exporter flattens a single image to one dimension and gathers its features again.
#[test]
fn features_flattened_to_one_dimension_are_restored() {
    let with = |order: Vec<i64>, dims: &[i64]| {
        changed(|tensors, own| {
            let bytes: Vec<u8> = order.iter().flat_map(|n| n.to_le_bytes()).collect();
            let dims = dims.iter().fold(Message::new(), |tensor, n| tensor.int(1, *n));
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
    refused(&with(vec![1, 0, 2, 3, 4], &[1, 5]), &["/p/Gather (Gather)", "features"]);
    refused(&with((0..5).collect(), &[5, 1]), &["/p/Gather (Gather)", "[5, 1]", "(N, 5)"]);
}

#[test]
fn splits_of_channels_are_read() {
    let join = node("Concat", &["q", "p"], "b");
    let half = Message::new().text(2, "q");
    let split = with_ints(with_int(node("Split", &["a"], "p"), "axis", 1), "split", &[2, 3]).join(half);
    let bytes = between(&[], &[split, join.clone()]);
    assert_eq!(kinds(&bytes)[..4], ["conv", "channels", "channels", "concat"]);
    let parts = [Channels::range(0, 2), Channels::range(2, 3)];
    assert_eq!(channels(&bytes), parts);
    let lists = [ints("one", &[1]), ints("zero", &[0]), ints("two", &[2]), ints("end", &[i64::MAX])];
    let slices =
        [node("Slice", &["a", "zero", "two", "one"], "p"), node("Slice", &["a", "two", "end", "one"], "q"), join];
    assert_eq!(channels(&between(&lists, &slices)), parts);
    let odd = with_ints(with_int(node("Split", &["a"], "b"), "axis", 1), "split", &[4]);
    refused(&between(&[], &[odd]), &["/b/Split (Split)", "5 channels", "[4]", "1 output"]);
    refused(&between(&[], &[with_int(node("Split", &["a"], "b"), "axis", 2)]), &["/b/Split (Split)", "axis 2"]);
}

#[test]
fn attention_is_refused_by_name() {
    let attention = [node("Relu", &["a"], "q"), node("MatMul", &["a", "q"], "b")];
    refused(&between(&[], &attention), &["/b/MatMul (MatMul)", "attention"]);
    let shares = [node("Softmax", &["a"], "s"), node("MatMul", &["s", "a"], "b")];
    refused(&between(&[], &shares), &["/s/Softmax (Softmax)", "attention"]);
    let masked = node("Attention", &["a", "a", "a", "a"], "b");
    refused(&between(&[], &[masked]), &["/b/Attention (Attention)", "mask"]);
}

/// A small file must not add a great number of layers, and invalid axes must not panic.
#[test]
fn class_tokens_and_axes_have_limits() {
    let sizes = [ints("flat", &[-1, 5, 16]), ints("tokens", &[1, 5, 1_000_000]), ints("twice", &[2, 2])];
    let joined = [
        node("Reshape", &["a", "flat"], "f"),
        node("ConstantOfShape", &["tokens"], "t"),
        with_int(node("Concat", &["t", "f"], "b"), "axis", 2),
    ];
    refused(&between(&sizes, &joined), &["/b/Concat (Concat)", "64 vectors"]);
    refused(&between(&sizes, &[node("Squeeze", &["a", "twice"], "b")]), &["/b/Squeeze (Squeeze)", "axis 2"]);
    let flatten = with_int(node("Flatten", &["a"], "b"), "axis", i64::MAX);
    refused(&between(&[], &[flatten]), &["/b/Flatten (Flatten)", &format!("axis {}", i64::MAX)]);
    let many = ints("many", &[0; 1000]);
    refused(&between(&[many], &[node("Unsqueeze", &["a", "many"], "b")]), &["/b/Unsqueeze (Unsqueeze)", "1004"]);
}
