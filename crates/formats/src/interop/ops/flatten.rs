//! Flattening of images to vectors.

use net::Flatten;
use serde_json::json;

use super::Attribute::Int;
use super::{Code, Layer, LayerWriter, Layers, OpMapping};
use crate::interop::onnx::axes::from_front;
use crate::interop::onnx::build::{Build, Layout, Operator, Value, View};
use crate::interop::onnx::graph::Node;

impl OpMapping for Flatten {
    fn onnx_operators() -> &'static [Operator] {
        &[("Flatten", 1, flatten)]
    }

    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        Ok(writer.output("Flatten", x, &[("axis", Int(1))]))
    }

    fn to_torch(&self, _: &Layer<'_>, _: &str, v: &[String]) -> Result<Code, String> {
        Ok(Code::plain(format!("torch.flatten({}, 1)", v[0])))
    }

    fn to_keras(&self, layers: &mut Layers, layer: &Layer<'_>, x: &[usize]) -> Result<usize, String> {
        Ok(layers.add(&layer.node.name, "Flatten", json!({}), x))
    }

    fn is_non_negative(&self, x: &[bool]) -> bool {
        !x.contains(&false)
    }
}

fn flatten<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["axis"])?;
    let x = build.view(node, 0)?;
    match node.int("axis", 1) {
        axis if from_front(axis, x.layout.rank()) == 1 => flat(build, node, x),
        axis => Err(format!("axis {axis} is not supported. Use axis 1, which flattens whole images")),
    }
}

/// Flattens each image to a vector.
pub(crate) fn flat<'a>(build: &mut Build<'a>, node: &Node<'a>, x: View) -> Result<Value, String> {
    let id = match x.layout {
        Layout::Flat | Layout::FlatLast(_) => return Ok(Value::Tensor(x)),
        _ => build.layer((None, node.label()), Flatten, &[x.id], Vec::new())?,
    };
    let shape = build.shapes[x.id.0];
    let channels_last = matches!(x.layout, Layout::Last | Layout::Tokens);
    let layout = if channels_last && shape.plane() > 1 { Layout::FlatLast(shape) } else { Layout::Flat };
    Ok(Value::Tensor(View { id, layout }))
}
