//! Sums of tensors. `Mean` is imported as a sum followed by a factor.

use net::{Activation, Add};
use serde_json::json;

use super::{Code, Layer, LayerWriter, Layers, OpMapping};
use crate::interop::onnx::build::{ANY, Build, Operator, Value, View};
use crate::interop::onnx::function::Binary;
use crate::interop::onnx::graph::Node;
use crate::interop::onnx::operators::element::binary;

impl OpMapping for Add {
    fn onnx_operators() -> &'static [Operator] {
        &[
            ("Add", 2, |build, node| binary(build, node, Binary::Add)),
            ("Mean", ANY, |build, node| {
                let sum = sum(build, node)?;
                let share = Activation::Scale(1.0 / node.inputs.len() as f32);
                build.layer_on((None, node.label()), share, sum, Vec::new()).map(Value::Tensor)
            }),
            ("Sum", ANY, |build, node| match node.inputs.len() {
                2 => binary(build, node, Binary::Add),
                _ => sum(build, node).map(Value::Tensor),
            }),
        ]
    }

    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        Ok(writer.output("Add", x, &[]))
    }

    fn to_torch(&self, _: &Layer<'_>, _: &str, v: &[String]) -> Result<Code, String> {
        Ok(Code::plain(format!("{} + {}", v[0], v[1])))
    }

    fn to_keras(&self, layers: &mut Layers, layer: &Layer<'_>, x: &[usize]) -> Result<usize, String> {
        Ok(layers.add(&layer.node.name, "Add", json!({}), x))
    }

    fn is_non_negative(&self, x: &[bool]) -> bool {
        !x.contains(&false)
    }
}

fn sum<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<View, String> {
    node.only(&[])?;
    let mut sum = build.view(node, 0)?;
    for at in 1..node.inputs.len() {
        let next = build.view(node, at)?;
        sum = build.pair(node.label(), Binary::Add, [sum, next])?;
    }
    Ok(sum)
}
