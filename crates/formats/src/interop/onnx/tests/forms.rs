//! Variants of nodes that the ONNX standard allows. The importer must compute each of them as the standard says, or
//! report that it is not supported.

use net::{Activation, Op};

use super::*;

/// Adds an integer attribute to the node.
pub fn with_int(node: Message, name: &str, value: i64) -> Message {
    node.message(5, Message::new().text(1, name).int(3, value).int(20, 2))
}

/// Adds a list of integers as an attribute.
pub fn with_ints(node: Message, name: &str, values: &[i64]) -> Message {
    let list = values.iter().fold(Message::new().text(1, name), |list, value| list.int(8, *value));
    node.message(5, list.int(20, 7))
}

/// Adds a string attribute.
fn with_text(node: Message, name: &str, text: &str) -> Message {
    node.message(5, Message::new().text(1, name).text(4, text).int(20, 3))
}

/// Returns the small network with `nodes` instead of its ReLU. They must compute b from a.
pub fn between(tensors: &[Message], nodes: &[Message]) -> Vec<u8> {
    changed(|all, own| {
        all.extend_from_slice(tensors);
        own.splice(1..2, nodes.to_vec());
    })
}

/// Returns the kinds of the operations in the network.
pub fn kinds(bytes: &[u8]) -> Vec<&'static str> {
    network(bytes).unwrap().net.nodes.iter().map(|node| node.op.kind()).collect()
}

#[test]
fn inputs_that_an_operator_does_not_read_are_refused() {
    let numbers = [floats("zero", &[], &[0.0]), floats("most", &[], &[0.7])];
    for op in ["Max", "Min"] {
        let bytes = between(&numbers, &[node(op, &["a", "zero", "most"], "b")]);
        refused(&bytes, &[&format!("/b/{op} ({op})"), "3 inputs", "only two", &format!("one {op}")]);
        assert_eq!(kinds(&between(&numbers, &[node(op, &["a"], "b")])), ["conv", "avgpool", "flatten", "linear"]);
    }
    let relu = between(&numbers, &[node("Relu", &["a", "zero"], "b")]);
    refused(&relu, &["/b/Relu (Relu)", "2 inputs", "at most 1"]);
    // omitted optional inputs
    assert!(network(&between(&numbers, &[node("Clip", &["a", "zero", ""], "b")])).is_ok());
    assert!(network(&between(&numbers, &[node("Relu", &["a", "", ""], "b")])).is_ok());
}

/// Returns the padding of a 3x3 layer after a Pad node that pads 4 x 4 images. `auto` is the layer's `auto_pad`.
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

/// `auto_pad` depends on the size after the Pad node. With 4 + 2 rows, stride 2 needs one more row and stride 3 none.
/// If the Pad node were ignored, 4 rows would need one and two more.
#[test]
fn auto_pad_counts_the_cells_of_a_pad_node() {
    let both = [0, 0, 1, 1, 0, 0, 1, 1];
    for (op, weight) in [("Conv", &["own.weight"][..]), ("AveragePool", &[])] {
        assert_eq!(padded(op, weight, "SAME_UPPER", 2, &both), [1, 1, 2, 2], "{op}");
        assert_eq!(padded(op, weight, "SAME_LOWER", 2, &both), [2, 2, 1, 1], "{op}");
        assert_eq!(padded(op, weight, "SAME_UPPER", 3, &both), [1, 1, 1, 1], "{op}");
        assert_eq!(padded(op, weight, "SAME_UPPER", 2, &[0, 0, 0, 1, 0, 0, 0, 0]), [0, 2, 1, 1], "{op}");
    }
}

/// Returns the small network with these nodes after its Gemm. The output of the Gemm is z.
fn behind(nodes: &[Message]) -> Vec<u8> {
    changed(|_, own| {
        own.truncate(4);
        own.push(node("Gemm", &["d", "fc.weight"], "z"));
        own.extend_from_slice(nodes);
    })
}

#[test]
fn a_softmax_is_left_out_only_at_the_end() {
    for op in ["Softmax", "LogSoftmax"] {
        for axis in [1, -1] {
            assert!(network(&behind(&[with_int(node(op, &["z"], "y"), "axis", axis)])).is_ok(), "{op} {axis}");
        }
        assert!(network(&behind(&[node(op, &["z"], "y")])).is_ok(), "{op}");
        let across = behind(&[with_int(node(op, &["z"], "y"), "axis", 0)]);
        refused(&across, &[&format!("/y/{op} ({op})"), "axis 0", "vectors (N, F)", "axis 1"]);
        let read = behind(&[node(op, &["z"], "y"), node("Mul", &["z", "y"], "t")]);
        refused(&read, &[&format!("/y/{op} ({op})"), "/t/Mul (Mul)"]);
        let further = [node(op, &["z"], "s"), node("Identity", &["s"], "y")];
        assert!(network(&behind(&further)).is_ok(), "{op}");
        let unread = behind(&[node(op, &["z"], "s"), node("Identity", &["s"], "t"), node("Identity", &["z"], "y")]);
        refused(&unread, &[&format!("/s/{op} ({op})"), "output of the"]);
    }
}

#[test]
fn a_sigmoid_is_left_out_only_at_the_end() {
    let ends = [
        vec![node("Sigmoid", &["z"], "y")],
        vec![node("Sigmoid", &["z"], "s"), node("Identity", &["s"], "y")],
        vec![node("Sigmoid", &["z"], "s"), node("Flatten", &["s"], "y")],
    ];
    for nodes in ends {
        let bytes = behind(&nodes);
        let all = kinds(&bytes);
        assert!(all.starts_with(&["conv", "avgpool", "flatten", "linear"]) && !all.contains(&"sigmoid"), "{all:?}");
        let notes = network(&bytes).unwrap().notes;
        assert!(notes.iter().any(|note| note.contains("(Sigmoid) at the end is left out")), "{notes:?}");
    }
    let middle = between(&[], &[node("Sigmoid", &["a"], "b")]);
    assert_eq!(kinds(&middle), ["conv", "sigmoid", "avgpool", "flatten", "linear"]);
}

#[test]
fn a_softmax_of_images_runs_over_channels() {
    let of =
        |axis| changed(|_, own| *own = [&own[..3], &[with_int(node("Softmax", &["c"], "y"), "axis", axis)]].concat());
    for axis in [1, -3] {
        assert!(network(&of(axis)).is_ok(), "{axis}");
    }
    for axis in [0, 2, 3, -1] {
        refused(&of(axis), &["/y/Softmax (Softmax)", &format!("axis {axis} "), "images (N, C, H, W) of 5"]);
    }
}

/// With `ceil_mode`, a pool drops windows that begin in its own padding at the end, but not windows that begin in the
/// padding of a Pad node.
#[test]
fn pools_that_round_up_keep_the_windows_in_a_pad() {
    let pool = |cells: &[i64], kernel, stride, ceil| {
        let pool = with_ints(node("AveragePool", &["p"], "b"), "kernel_shape", &[kernel, kernel]);
        let pool = with_int(with_ints(pool, "strides", &[stride, stride]), "ceil_mode", ceil);
        between(&[ints("cells", cells)], &[node("Pad", &["a", "cells"], "p"), pool])
    };
    let shapes = |bytes: &[u8]| network(bytes).unwrap().net.shapes().unwrap()[2];
    let (end, around) = ([0, 0, 0, 0, 0, 0, 2, 2], [0, 0, 1, 1, 0, 0, 1, 1]);
    // with 6 rows, the third window begins in row 4, which is the first row of the padding
    refused(&pool(&end, 3, 2, 1), &["/b/AveragePool (AveragePool)", "output 5x3x3", "output 5x2x2", "ceil_mode=False"]);
    assert_eq!(shapes(&pool(&end, 3, 2, 0)), Shape::image(5, 2, 2));
    assert_eq!(shapes(&pool(&end, 3, 3, 1)), Shape::image(5, 2, 2));
    // with padding on all sides, the third window begins in the last row of the image
    assert_eq!(shapes(&pool(&around, 3, 2, 1)), Shape::image(5, 3, 3));
}

/// Returns a network with a layer normalisation as separate nodes. `first` and `second` are the axes of its two means.
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
        refused(&formula(&[-1], second, kept), &["/v/ReduceMean (ReduceMean)", "last axis", "keepdims=1"]);
    }
    refused(&formula(&[2], &[-1], 1), &["/m/ReduceMean (ReduceMean)", "axes [2]", "images (N, H, W, C)"]);
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
    // a factor of 1 adds no layer
    assert!(!kinds(&factor(9)).contains(&"scale"));
    refused(&factor(8), &["/i/Cast (Cast)", "to text"]);
    let tensor = between(&[], &[with_int(node("Cast", &["a"], "b"), "to", 7)]);
    refused(&tensor, &["/b/Cast (Cast)", "rounds", "to int64"]);
}

#[test]
fn the_bias_of_a_gemm_has_one_number_per_class() {
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
    // one number for each image instead of each class
    let images = with(&[3, 1], &[0.5, 1.5, 2.5]);
    refused(&images, &["/y/Gemm (Gemm)", "its C", "[3, 1]", "[3]"]);
}

#[test]
fn unsupported_activations_are_named_with_a_remedy() {
    let bounds = [floats("least", &[], &[-1.0]), floats("most", &[], &[1.0])];
    for (op, inputs) in
        [("Softplus", &["a"][..]), ("Erf", &["a"]), ("Clip", &["a", "least", "most"]), ("Max", &["a", "most"])]
    {
        let bytes = between(&bounds, &[node(op, inputs, "b")]);
        refused(&bytes, &["/c/GlobalAveragePool (GlobalAveragePool)", &format!("/b/{op} ({op})"), "SiLU"]);
    }
    let joined = [node("Exp", &["a"], "e"), node("Tanh", &["a"], "t"), node("Max", &["e", "t"], "b")];
    refused(&between(&[], &joined), &["/c/GlobalAveragePool (GlobalAveragePool)", "/e/Exp (Exp)", "SiLU"]);
}

#[test]
fn unsupported_types_and_domains_are_named_with_a_remedy() {
    let graph = |kind: i64| {
        let tensor = IMAGE.iter().fold(Message::new(), |shape, _| shape.message(1, Message::new().int(1, 4)));
        let tensor = Message::new().message(1, Message::new().int(1, kind).message(2, &tensor));
        let graph = Message::new()
            .message(1, node("Relu", &["x"], "y"))
            .message(11, Message::new().text(1, "x").message(2, &tensor));
        let opset = Message::new().text(1, "").int(2, 17);
        Message::new()
            .int(1, 8)
            .message(7, graph.message(12, Message::new().text(1, "y")))
            .message(8, &opset)
            .bytes()
            .to_vec()
    };
    for (kind, name) in [(10, "float16"), (11, "float64"), (16, "bfloat16")] {
        refused(&graph(kind), &["input x", name, "expected float32", "model.float()"]);
    }
    refused(&graph(2), &["input x", "uint8", "expected float32", "--preprocess"]);
    let foreign = between(&[], &[node("Relu", &["a"], "b").text(7, "com.microsoft")]);
    refused(&foreign, &["/b/Relu (Relu)", "\"com.microsoft\"", "runtime"]);
}

#[test]
fn sizes_of_zero_keep_the_input_size() {
    let with = |shape: &[i64], allow: i64| {
        changed(|tensors, own| {
            tensors.push(ints("shape", shape));
            own[3] = with_int(node("Reshape", &["c", "shape"], "d"), "allowzero", allow);
        })
    };
    for shape in [&[-1, 0][..], &[0, 0], &[0, -1], &[-1, 5]] {
        assert_eq!(kinds(&with(shape, 0)), ["conv", "avgpool", "flatten", "linear"], "{shape:?}");
    }
    refused(&with(&[-1, 0], 1), &["/d/Reshape (Reshape)", "[N, 5, 1, 1] to [-1, 0]"]);
    let squeezed = changed(|_, own| own[3] = node("Squeeze", &["c"], "d"));
    refused(&squeezed, &["/d/Squeeze (Squeeze)", "without axes", "axes 2 and 3"]);
}

fn transposed(input: &str, perm: &[i64], output: &str) -> Message {
    with_ints(node("Transpose", &[input], output), "perm", perm)
}

/// The graph has the features of a vector in the order (H, W, C), the network in the order (C, H, W).
#[test]
fn features_in_another_order_are_refused() {
    let tensors = [ints("flat", &[0, -1]), ints("square", &[0, 80, 1, 1]), floats("w", &[3, 80, 1, 1], &[0.5; 240])];
    let of = |more: &[Message]| {
        changed(|all, own| {
            all.extend_from_slice(&tensors);
            own.truncate(2);
            own.extend([transposed("b", &[0, 2, 3, 1], "t"), node("Reshape", &["t", "flat"], "f")]);
            own.extend_from_slice(more);
        })
    };
    let conv = [node("Reshape", &["f", "square"], "q"), node("Conv", &["q", "w"], "r"), node("Flatten", &["r"], "y")];
    refused(&of(&conv), &["/q/Reshape (Reshape)"]);
    refused(&of(&[node("Identity", &["f"], "y")]), &["output y", "channels last"]);
}

#[test]
fn parts_of_the_images_and_past_keys_are_refused() {
    let bounds = [ints("from", &[0]), ints("to", &[i64::MAX]), ints("axis", &[0]), ints("step", &[2])];
    let slice = node("Slice", &["a", "from", "to", "axis", "step"], "b");
    refused(&between(&bounds, &[slice]), &["/b/Slice (Slice)", "in steps of [2, 1, 1, 1]"]);
    let past = [floats("past", &[1, 1, 1, 5], &[0.5; 5])];
    let attention = node("Attention", &["a", "a", "a", "", "past"], "b");
    refused(&between(&past, &[attention]), &["/b/Attention (Attention)", "5 inputs"]);
}

/// Quotients of integers are truncated: 11 / 2 * 16 = 80.
#[test]
fn arithmetic_with_32_bit_integers_is_exact() {
    let int32 = |name: &str, values: [i32; 2]| {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Message::new().int(1, 2).int(2, 6).text(8, name).raw(9, &bytes)
    };
    let bytes = changed(|all, own| {
        all.extend([int32("p", [0, 11]), int32("q", [1, 2]), int32("r", [1, 16])]);
        all.push(floats("wide", &[80, 3], &[0.5; 240]));
        own.truncate(2);
        own.extend([
            node("Div", &["p", "q"], "half"),
            node("Mul", &["half", "r"], "product"),
            with_int(node("Cast", &["product"], "shape"), "to", 7),
            node("Reshape", &["b", "shape"], "d"),
            node("Gemm", &["d", "wide"], "y"),
        ]);
    });
    assert_eq!(kinds(&bytes), ["conv", "flatten", "linear"]);
}

/// Rows of images as sequences, (N, 4, 4, C) to (4 N, -1, C): the graph then reads 4 columns and not 16 positions.
#[test]
fn a_product_with_the_number_of_images_is_not_this_number() {
    let scalar = |name: &str, value: i64| Message::new().int(2, 7).text(8, name).raw(9, &value.to_le_bytes());
    let size = |of: &str, at: &str, output: &str| [node("Gather", &[of, at], output)];
    let join = |inputs: &[&str], output: &str| with_int(node("Concat", inputs, output), "axis", 0);
    let bytes = changed(|all, own| {
        all.extend([scalar("zero", 0), scalar("one", 1), scalar("rows", 4)]);
        all.extend([ints("front", &[0]), ints("open", &[-1]), ints("channels", &[5]), ints("row", &[4])]);
        let last = own.split_off(2);
        own.extend([transposed("b", &[0, 2, 3, 1], "t"), node("Shape", &["t"], "sizes")]);
        own.extend(size("sizes", "zero", "n"));
        own.extend([node("Mul", &["n", "rows"], "sequences"), node("Unsqueeze", &["sequences", "front"], "s")]);
        own.extend([join(&["s", "open", "channels"], "apart"), node("Reshape", &["t", "apart"], "r")]);
        own.push(node("Shape", &["r"], "sizes of rows"));
        own.extend(size("sizes of rows", "one", "columns"));
        own.extend([node("Unsqueeze", &["columns", "front"], "w"), node("Unsqueeze", &["n", "front"], "images")]);
        own.extend([join(&["images", "row", "w", "channels"], "back"), node("Reshape", &["r", "back"], "q")]);
        own.extend([transposed("q", &[0, 3, 1, 2], "v"), node("GlobalAveragePool", &["v"], "c")]);
        own.extend_from_slice(&last[1..]);
    });
    assert_eq!(kinds(&bytes), ["conv", "avgpool", "flatten", "linear"]);
}
