//! Concatenation along the channels.

use net::{Concat, Id};
use serde_json::json;

use super::Attribute::Int;
use super::class_token::class_token;
use super::{Code, Layer, LayerWriter, Layers, OpMapping};
use crate::interop::onnx::axes::Axes;
use crate::interop::onnx::build::{ANY, Build, Layout, Operator, Value, View};
use crate::interop::onnx::graph::Node;
use crate::interop::onnx::operators::size::joined_sizes;

impl OpMapping for Concat {
    fn onnx_operators() -> &'static [Operator] {
        &[("Concat", ANY, concat)]
    }

    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        Ok(writer.output("Concat", x, &[("axis", Int(1))]))
    }

    fn to_torch(&self, _: &Layer<'_>, _: &str, v: &[String]) -> Result<Code, String> {
        Ok(Code::plain(format!("torch.cat(({}), 1)", v.join(", ") + if v.len() == 1 { "," } else { "" })))
    }

    fn to_keras(&self, layers: &mut Layers, layer: &Layer<'_>, x: &[usize]) -> Result<usize, String> {
        let axis = if layer.flat { 1 } else { 3 };
        Ok(layers.add(&layer.node.name, "Concatenate", json!({"axis": axis}), x))
    }

    fn is_non_negative(&self, x: &[bool]) -> bool {
        !x.contains(&false)
    }
}

/// Largest number of parts that a node may join.
const MOST_PARTS: usize = 64;

fn is_tensor(value: &Value) -> bool {
    matches!(value, Value::Tensor(_) | Value::Arranged(..) | Value::Function(..))
}

fn concat<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["axis"])?;
    match build.computed(node, 0)? {
        Value::Arranged(..) => return joined(build, node),
        Value::Tensor(_) => {}
        Value::Constant(_) if is_tensor(&build.value(node, node.inputs.len() - 1)?) => {
            return class_token(build, node);
        }
        _ => return joined_sizes(build, node),
    }
    let views = (0..node.inputs.len()).map(|at| build.view(node, at)).collect::<Result<Vec<View>, _>>()?;
    let (layout, axis) = (views[0].layout, node.int("axis", 1));
    if let Some(other) = views.iter().find(|view| view.layout != layout) {
        return Err(format!("it cannot join {} and {}", layout.text(), other.layout.text()));
    }
    if !layout.has_channels_at(axis) || matches!(layout, Layout::FlatLast(_)) {
        return Err(format!("it cannot join {} along axis {axis}; only channels can be joined", layout.text()));
    }
    let inputs: Vec<Id> = views.iter().map(|view| view.id).collect();
    let id = build.layer((None, node.label()), Concat, &inputs, Vec::new())?;
    Ok(Value::Tensor(View { id, layout }))
}

/// Joins parts of the same tensor. The parts are positions that move for shifted windows, or neighbouring pixels that
/// become channels.
fn joined<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    let refuse = "it joins rearranged tensors, but only parts of the same tensor can be joined, along positions or as pixels of squares";
    if node.inputs.len() > MOST_PARTS {
        return Err(format!("it joins more than {MOST_PARTS} rearranged tensors"));
    }
    let mut parts: Vec<Axes> = Vec::new();
    let mut tensor = None;
    for at in 0..node.inputs.len() {
        let (id, axes) = build.axes(node, at)?;
        if tensor.is_some_and(|other| other != id) {
            return Err(refuse.into());
        }
        // each part is copied twice
        build.take(2 * size_of::<u32>() * axes.count()?)?;
        tensor = Some(id);
        parts.push(axes);
    }
    let (id, axis) = (tensor.ok_or(refuse)?, node.int("axis", 1));
    if let Some(axes) = Axes::joined(&parts, axis) {
        return build.settled(node.label(), id, axes);
    }
    let (first, x) = (parts[0].clone(), build.shapes[id.0]);
    let at = first.at(axis)?;
    let whole = |axes: &Axes| {
        axes.pads == first.pads && axes.has_last(x.c) && at + 1 == axes.axes.len() && axes.sizes() == first.sizes()
    };
    let pixels = parts.iter().map(Axes::places).collect::<Result<Vec<_>, _>>()?;
    match first.squares(x, &pixels) {
        Some(size) if parts.iter().all(whole) => build.merged_pixels(node.label(), id, (first, at), size),
        _ => Err(refuse.into()),
    }
}
