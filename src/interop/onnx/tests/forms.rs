//! Forms of nodes that the standard allows: each is computed as it says, or refused.

use super::*;
use crate::nn::spec::Op;

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
