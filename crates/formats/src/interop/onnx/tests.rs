//! Tests with ONNX files that are built in memory: networks, notes and error messages of the reader.

mod exporters;
mod forms;

use std::path::Path;
use std::rc::Rc;

use loaders::protobuf::Message;
use net::{Op, Shape};

use super::build::{Build, Layout, Value};
use super::fold::fold;
use super::graph::Graph;
use super::tensor::Values;
use super::{Network, Survey, of_bytes, operators};

fn floats(name: &str, dims: &[i64], values: &[f32]) -> Message {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let dims = dims.iter().fold(Message::new(), |tensor, n| tensor.int(1, *n));
    dims.int(2, 1).text(8, name).raw(9, &bytes)
}

fn ints(name: &str, values: &[i64]) -> Message {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Message::new().int(1, values.len() as i64).int(2, 7).text(8, name).raw(9, &bytes)
}

fn node(op: &str, inputs: &[&str], output: &str) -> Message {
    let node = inputs.iter().fold(Message::new(), |node, input| node.text(1, input));
    node.text(2, output).text(3, &format!("/{output}/{op}")).text(4, op)
}

/// Describes an input or output (`ValueInfoProto`). A dimension is a size, or a name if it may vary.
fn value(name: &str, dims: &[Result<i64, &str>]) -> Message {
    let shape = dims.iter().fold(Message::new(), |shape, dim| {
        let dim = match dim {
            Ok(n) => Message::new().int(1, *n),
            Err(name) => Message::new().text(2, name),
        };
        shape.message(1, &dim)
    });
    let tensor = Message::new().int(1, 1).message(2, &shape);
    Message::new().text(1, name).message(2, Message::new().message(1, &tensor))
}

const IMAGE: [Result<i64, &str>; 4] = [Err("N"), Ok(2), Ok(4), Ok(4)];

fn model(opset: i64, input: &[Result<i64, &str>], tensors: &[Message], nodes: &[Message]) -> Vec<u8> {
    let graph = nodes.iter().fold(Message::new(), |graph, node| graph.message(1, node));
    let graph = tensors.iter().fold(graph, |graph, tensor| graph.message(5, tensor));
    let graph = graph.message(11, value("x", input)).message(12, value("y", &[Err("N"), Ok(3)]));
    Message::new().int(1, 8).message(7, &graph).message(8, Message::new().text(1, "").int(2, opset)).bytes().to_vec()
}

/// Returns the weights and nodes of a small network: convolution, ReLU, global average pool, flatten, Gemm.
fn parts() -> (Vec<Message>, Vec<Message>) {
    let weights = |n: usize| (0..n).map(|i| (i as f32).sin()).collect::<Vec<_>>();
    let tensors = vec![floats("conv.weight", &[5, 2, 1, 1], &weights(10)), floats("fc.weight", &[5, 3], &weights(15))];
    let nodes = vec![
        node("Conv", &["x", "conv.weight"], "a"),
        node("Relu", &["a"], "b"),
        node("GlobalAveragePool", &["b"], "c"),
        node("Flatten", &["c"], "d"),
        node("Gemm", &["d", "fc.weight"], "y"),
    ];
    (tensors, nodes)
}

fn survey(bytes: &[u8]) -> Result<Survey, String> {
    of_bytes(bytes, Path::new("net.onnx")).map_err(|error| error.to_string())
}

fn network(bytes: &[u8]) -> Result<Network, String> {
    survey(bytes)?.network().map_err(|error| error.to_string())
}

#[track_caller]
fn refused(bytes: &[u8], wanted: &[&str]) {
    let error = network(bytes).expect_err("a file that is refused");
    wanted.iter().for_each(|part| assert!(error.contains(part), "expected {part:?} in: {error}"));
}

/// Returns the file of the small network after a change to its weights and nodes.
fn changed(change: impl FnOnce(&mut Vec<Message>, &mut Vec<Message>)) -> Vec<u8> {
    let (mut tensors, mut nodes) = parts();
    change(&mut tensors, &mut nodes);
    model(17, &IMAGE, &tensors, &nodes)
}

#[test]
fn a_graph_becomes_layers_with_pytorchs_names() {
    let net = network(&changed(|_, _| {})).unwrap();
    let names: Vec<(&str, &str)> = net.net.nodes.iter().map(|node| (node.name.as_str(), node.op.kind())).collect();
    assert_eq!(names, [("conv", "conv"), ("c", "avgpool"), ("d", "flatten"), ("fc", "linear")]);
    let tensors: Vec<(&str, &[usize])> = net.tensors.iter().map(|t| (t.0.as_str(), &t.1[..])).collect();
    assert_eq!(tensors, [("conv.weight", &[5, 2, 1, 1][..]), ("fc.weight", &[3, 5])]);
    // the weight of this Gemm is (in, out), so it is transposed
    assert_eq!(net.tensors[1].2[1], 3f32.sin());
    assert_eq!(net.classes, 3);
    assert!(matches!(&net.net.nodes[0].op, Op::Conv(conv) if conv.relu && !conv.bias), "{:?}", net.net.nodes[0].op);
}

#[test]
fn unknown_operators_are_all_named() {
    let bytes = changed(|_, nodes| {
        nodes[1] = node("Reluu", &["a"], "b");
        nodes[3] = node("NonZero", &["c"], "d");
    });
    let survey = survey(&bytes).unwrap();
    assert_eq!((survey.nodes, survey.unsupported.len(), survey.behind), (5, 2, 2));
    refused(&bytes, &["net.onnx", "/b/Reluu (Reluu)", "\"Relu\"", "1 more"]);
    assert!(survey.unsupported[1].contains("/d/NonZero (NonZero)"), "{:?}", survey.unsupported);
}

#[test]
fn dynamic_shapes_are_named() {
    let (tensors, nodes) = parts();
    let input = [Err("N"), Ok(2), Err("height"), Ok(4)];
    refused(&model(17, &input, &tensors, &nodes), &["dimension 2", "input x", "\"height\"", "torch.randn"]);
    refused(&model(17, &[Err("N"), Ok(2)], &tensors, &nodes), &["input x", "2 dimensions"]);
    refused(&model(17, &[Err("N"), Ok(2), Ok(0), Ok(4)], &tensors, &nodes), &["dimension 2", "is 0", "1 to 65536"]);
}

#[test]
fn opsets_that_are_not_known_are_refused() {
    let (tensors, nodes) = parts();
    for opset in 7..=24 {
        assert!(network(&model(opset, &IMAGE, &tensors, &nodes)).is_ok(), "{opset}");
    }
    refused(&model(6, &IMAGE, &tensors, &nodes), &["opset 6", "7 to 24"]);
    refused(&model(25, &IMAGE, &tensors, &nodes), &["opset 25"]);
    refused(b"", &["no graph"]);
    refused(b"\x3a\xff\xff\xff\xff\x0f", &["beyond the end", "not ONNX"]);
}

#[test]
fn external_data_is_refused_by_its_name() {
    let bytes = changed(|tensors, _| {
        let entry = Message::new().text(1, "location").text(2, "net.onnx.data");
        tensors[0] = Message::new().int(1, 5).int(2, 1).text(8, "conv.weight").message(13, &entry).int(14, 1);
    });
    refused(&bytes, &["tensor conv.weight", "\"net.onnx.data\"", "external_data=False"]);
}

#[test]
fn weights_with_nan_or_infinity_are_refused() {
    for value in [f32::NAN, f32::INFINITY] {
        let bytes = changed(|tensors, _| {
            tensors[0] = floats("conv.weight", &[5, 2, 1, 1], &[&[0.0; 9][..], &[value]].concat())
        });
        refused(&bytes, &["/a/Conv (Conv)", &format!("{value} (element 9)")]);
    }
    let short = changed(|tensors, _| tensors[0] = floats("conv.weight", &[5, 2, 1, 1], &[0.0; 9]));
    refused(&short, &["conv.weight", "[5, 2, 1, 1]", "10 values", "36 bytes"]);
    let negative = changed(|tensors, _| tensors[0] = floats("conv.weight", &[5, -2, 1, 1], &[0.0; 10]));
    refused(&negative, &["conv.weight", "[5, -2, 1, 1]"]);
    let huge = changed(|tensors, _| tensors[0] = floats("conv.weight", &[i64::MAX, i64::MAX, 4, 4], &[0.0; 10]));
    refused(&huge, &["conv.weight", &format!("[{most}, {most}, 4, 4]", most = i64::MAX)]);
}

#[test]
fn errors_about_cycles_list_their_nodes() {
    let bytes = changed(|_, nodes| nodes[1] = node("Add", &["a", "d"], "b"));
    refused(&bytes, &["cycle", "/b/Add -> /d/Flatten -> /c/GlobalAveragePool -> /b/Add"]);
    let own = changed(|_, nodes| nodes[1] = node("Add", &["a", "b"], "b"));
    refused(&own, &["cycle", "/b/Add -> /b/Add"]);
    refused(&changed(|_, nodes| nodes.swap(1, 0)), &["/b/Relu", "/a/Conv", "later"]);
    refused(&changed(|_, nodes| nodes[1] = node("Relu", &["a"], "a")), &["/a/Conv", "/a/Relu", "both compute a"]);
}

#[test]
fn shape_errors_have_the_expected_and_the_actual_shape() {
    let bytes = changed(|tensors, _| tensors[0] = floats("conv.weight", &[5, 3, 1, 1], &[0.0; 15]));
    refused(&bytes, &["/a/Conv (Conv)", "weight", "[5, 2, 1, 1]", "2x4x4", "[5, 3, 1, 1]"]);
    let sum = changed(|tensors, nodes| {
        tensors.push(floats("other.weight", &[4, 2, 1, 1], &[0.0; 8]));
        nodes[1] = node("Conv", &["x", "other.weight"], "o");
        nodes.insert(2, node("Add", &["a", "o"], "b"));
    });
    refused(&sum, &["/b/Add (Add)", "5x4x4", " 4x4x4"]);
    let end = changed(|_, nodes| nodes.truncate(1));
    refused(&end, &["no node", "output y"]);
}

/// Exporters may compute the sizes of a reshape from a tensor, split a linear layer into two nodes, and end with a
/// softmax.
#[test]
fn layers_that_exporters_write_as_several_nodes_are_recognised() {
    let bytes = changed(|tensors, nodes| {
        tensors.extend([
            ints("zero", &[0]),
            ints("rest", &[-1]),
            ints("axes", &[0]),
            floats("fc.bias", &[3], &[0.5, 1.5, 2.5]),
        ]);
        nodes.truncate(3);
        nodes.extend([
            node("Shape", &["c"], "s"),
            node("Gather", &["s", "zero"], "n"),
            node("Concat", &["n", "rest"], "shape"),
            node("Reshape", &["c", "shape"], "d"),
            node("MatMul", &["d", "fc.weight"], "p"),
            node("Add", &["fc.bias", "p"], "q"),
            node("Softmax", &["q"], "y"),
        ]);
    });
    let net = network(&bytes).unwrap();
    assert_eq!(net.net.nodes.last().unwrap().op.kind(), "linear");
    let bias = net.tensors.iter().find(|tensor| tensor.0 == "fc.bias").unwrap();
    assert_eq!(bias.2, [0.5, 1.5, 2.5]);
    assert!(net.notes.iter().any(|note| note.contains("/y/Softmax (Softmax)")), "{:?}", net.notes);
}

/// Integers above 2^53 are not exact in f64.
#[test]
fn functions_of_integers_are_exact() {
    let (large, least) = (i64::MAX - 1, (1 << 53) + 1);
    for (op, inputs, expected) in [
        ("Clip", &["two", "least"][..], Ok([large, least])),
        ("Clip", &["two", "", "least"], Ok([least, -large])),
        ("Abs", &["two"], Ok([large, large])),
        ("Neg", &["two"], Ok([-large, large])),
        ("Sqrt", &["two"], Err("float32")),
        ("Neg", &["smallest"], Err("int64")),
    ] {
        let bytes = changed(|tensors, nodes| {
            tensors.extend([ints("two", &[large, -large]), ints("least", &[least]), ints("smallest", &[i64::MIN])]);
            *nodes = vec![node(op, inputs, "a")];
        });
        let graph = Graph::read(&bytes).unwrap();
        let mut build = build(&graph, bytes.len());
        match (make(&mut build, 0), expected) {
            (Ok(Value::Constant(made)), Ok(expected)) => {
                assert_eq!(made.values, Values::Ints(expected.to_vec()), "{op}")
            }
            (Err(why), Err(part)) => assert!(why.contains(part), "{op}: {why}"),
            other => panic!("{op}: {other:?}"),
        }
    }
}

/// ReduceProd keeps the reduced dimension unless `keepdims` is 0, so its result can be joined with other sizes.
#[test]
fn products_of_sizes_keep_their_dimension() {
    let joined = |inputs: &[&str]| {
        changed(|tensors, nodes| {
            tensors.extend([ints("zero", &[0]), ints("parts", &[-1, 1]), ints("axes", &[0]), ints("other", &[1])]);
            nodes.truncate(3);
            nodes.extend([
                node("Shape", &["c"], "s"),
                node("Gather", &["s", "zero"], "n"),
                node("ReduceProd", inputs, "rest"),
                node("Concat", &["n", "rest"], "shape"),
                node("Reshape", &["c", "shape"], "d"),
                node("Gemm", &["d", "fc.weight"], "y"),
            ]);
        })
    };
    for inputs in [&["parts"][..], &["parts", "axes"]] {
        let net = network(&joined(inputs)).unwrap();
        assert_eq!(net.net.nodes.last().unwrap().op.kind(), "linear");
    }
    refused(&joined(&["parts", "other"]), &["/rest/ReduceProd"]);
}

/// An Add changes the bias of the convolution only if no other node reads the convolution's output under any of its
/// names.
#[test]
fn a_tensor_with_two_names_keeps_its_weights() {
    let more = [0.5, 1.5, 2.5, 3.5, 4.5];
    let with = |op: &str, inputs: &[&str], sums: &[Message]| {
        changed(|tensors, nodes| {
            let lists = [("own", vec![-1, 5, 4, 4]), ("starts", vec![0, 0]), ("ends", vec![i64::MAX, i64::MAX])];
            tensors.extend(lists.map(|(name, list)| ints(name, &list)));
            tensors.push(floats("more", &[5, 1, 1], &more));
            nodes.splice(1..2, [&[node(op, inputs, "i")][..], sums].concat());
        })
    };
    let aliases: [(&str, &[&str]); 4] =
        [("Identity", &["a"]), ("Cast", &["a"]), ("Reshape", &["a", "own"]), ("Slice", &["a", "starts", "ends"])];
    for (op, inputs) in aliases {
        for (one, other) in [("i", "a"), ("a", "i")] {
            let sums = [node("Add", &[one, "more"], "s"), node("Add", &["s", other], "b")];
            let net = network(&with(op, inputs, &sums)).unwrap();
            let tensor = |name: &str| net.tensors.iter().find(|tensor| tensor.0 == name).map(|tensor| &tensor.2[..]);
            assert_eq!((tensor("conv.bias"), tensor("s.bias")), (None, Some(&more[..])), "{op}");
        }
        let net = network(&with(op, inputs, &[node("Add", &["i", "more"], "b")])).unwrap();
        let bias = net.tensors.iter().find(|tensor| tensor.0 == "conv.bias").unwrap();
        assert_eq!(bias.2, more, "{op}");
    }
}

/// Creates a network without layers from the graph of a file with this number of bytes.
fn build<'a>(graph: &'a Graph<'a>, file_bytes: usize) -> Build<'a> {
    let image = ("x", Shape::image(2, 4, 4), Layout::Image);
    Build::new(graph, "net", image, file_bytes, crate::interop::ops::is_non_negative)
}

/// Computes the node with this index.
fn make<'a>(build: &mut Build<'a>, at: usize) -> Result<Value, String> {
    let node = &build.graph.nodes[at];
    match fold(build, node)? {
        Some(value) => Ok(value),
        None => operators::handler(node.op).unwrap()(build, node),
    }
}

/// Nodes that only rename a weight share its memory. Nodes that compute new weights are limited.
#[test]
fn weights_take_no_more_memory_than_a_few_times_the_file() {
    let bytes = changed(|tensors, nodes| {
        tensors.push(ints("axes", &[0]));
        *nodes = vec![
            node("Identity", &["fc.weight"], "a"),
            node("Identity", &["fc.weight"], "b"),
            node("Transpose", &["fc.weight"], "c"),
            node("Unsqueeze", &["fc.weight", "axes"], "d"),
            node("ConstantOfShape", &["many"], "e"),
            node("Expand", &["axes", "many"], "f"),
        ];
        tensors.push(ints("many", &[1 << 13, 1 << 14]));
    });
    let graph = Graph::read(&bytes).unwrap();
    let mut build = build(&graph, 0);
    match [0, 1].map(|at| make(&mut build, at).unwrap()) {
        [Value::Constant(one), Value::Constant(other)] => assert!(Rc::ptr_eq(&one, &other)),
        other => panic!("{other:?}"),
    }
    // a repeated value counts only when it becomes a weight, but it must fit
    for _ in 0..2 {
        make(&mut build, 4).unwrap();
    }
    build.take(640 << 20).unwrap();
    for at in [2, 3, 4, 5] {
        let error = make(&mut build, at).unwrap_err();
        assert!(error.contains("memory"), "{error}");
    }
    let sizes = changed(|_, nodes| {
        let twice = |from: &str, to: &str| node("Concat", &[from, from], to);
        nodes.extend([node("Shape", &["c"], "s0"), twice("s0", "s1"), twice("s1", "s2")]);
    });
    refused(&sizes, &["/s2/Concat (Concat)", "8 sizes"]);
}

/// Each result counts with its own size, which can be much smaller than the product of the input sizes.
#[test]
fn gathered_and_expanded_weights_count_once() {
    let bytes = changed(|tensors, nodes| {
        let table = floats("table", &[225, 32], &[0.5; 225 * 32]);
        tensors.extend([table, ints("rows", &[7; 4096]), ints("sizes", &[225, 32])]);
        *nodes = vec![node("Gather", &["table", "rows"], "a"), node("Expand", &["table", "sizes"], "b")];
    });
    let graph = Graph::read(&bytes).unwrap();
    let mut build = build(&graph, 0);
    [0, 1].iter().for_each(|at| drop(make(&mut build, *at).unwrap()));
    build.take((640 << 20) - (1 << 20)).unwrap();
}

/// A file with a few hundred bytes can request any amount of memory. The reader refuses it before it allocates any.
#[test]
fn huge_shapes_in_small_files_are_refused() {
    let weight = |sizes: &[i64]| {
        changed(|tensors, nodes| {
            tensors.push(ints("sizes", sizes));
            nodes[0] = node("Conv", &["x", "w"], "a");
            nodes.insert(0, node("ConstantOfShape", &["sizes"], "w"));
        })
    };
    refused(&weight(&[1 << 40, 2, 1, 1]), &["/w/ConstantOfShape (ConstantOfShape)", "memory"]);
    refused(&weight(&[0, 1 << 60]), &["/w/ConstantOfShape (ConstantOfShape)", "too many elements"]);
    let joined = changed(|tensors, nodes| {
        tensors.push(ints("sizes", &[1 << 26]));
        let parts = node("Concat", &["part"; 40], "all");
        nodes.splice(0..0, [node("ConstantOfShape", &["sizes"], "part"), parts]);
    });
    refused(&joined, &["/all/Concat (Concat)", "memory"]);
    let sliced = changed(|tensors, nodes| {
        tensors.extend([floats("none", &[0, 1 << 60], &[]), ints("from", &[0]), ints("to", &[1])]);
        nodes.insert(0, node("Slice", &["none", "from", "to"], "s"));
    });
    refused(&sliced, &["/s/Slice (Slice)", "none", "too many elements"]);
}

#[test]
fn truncated_files_are_refused_or_read_differently() {
    let bytes = changed(|_, _| {});
    let good = network(&bytes).unwrap();
    for end in 0..bytes.len() {
        if let Ok(net) = network(&bytes[..end]) {
            assert_ne!(net, good, "cut at {end}");
        }
    }
}
