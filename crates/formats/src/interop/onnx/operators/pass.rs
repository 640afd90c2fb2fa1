//! Operators that change nothing in inference, and constants.

use std::rc::Rc;

use crate::interop::onnx::build::{Build, Operator, Value};
use crate::interop::onnx::channels::cast;
use crate::interop::onnx::graph::Node;
use crate::interop::onnx::scores;
use crate::interop::onnx::tensor::{Constant, Values};

pub(super) const OPERATORS: &[Operator] = &[
    ("Cast", 1, cast),
    ("Constant", 0, constant),
    ("Identity", 1, |build, node| build.value(node, 0)),
    ("LogSoftmax", 1, last),
    ("Softmax", 1, last),
];

fn constant<'a>(_: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["value", "value_float", "value_floats", "value_int", "value_ints"])?;
    let list = |dims: Vec<usize>, values| Ok(Value::Constant(Rc::new(Constant { dims, values })));
    if let Some(tensor) = node.tensor("value") {
        return Ok(Value::Constant(Rc::new(tensor.constant()?)));
    }
    match (node.floats("value_floats"), node.ints("value_ints")) {
        (Some(floats), _) => list(vec![floats.len()], Values::Floats(floats)),
        (_, Some(ints)) => list(vec![ints.len()], Values::Ints(ints.to_vec())),
        _ if node.has("value_float") => list(Vec::new(), Values::Floats(vec![node.float("value_float", 0.0)])),
        _ => list(Vec::new(), Values::Ints(vec![node.int("value_int", 0)])),
    }
}

/// Reads the softmax of attention. Removes the softmax at the end of the network, because the loss includes it.
/// Nodes that change the probabilities must not follow.
fn last<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["axis"])?;
    if let Some(weights) = scores::softmax(build, node)? {
        return Ok(weights);
    }
    end(build, node)?;
    let x = build.view(node, 0)?;
    let axis = node.int("axis", if build.graph.opset < 13 { 1 } else { -1 });
    if !x.layout.has_channels_at(axis) || build.shapes[x.id.0].plane() != 1 {
        let (layout, shape) = (x.layout.text(), build.shapes[x.id.0]);
        return Err(format!(
            "it normalises along axis {axis} of {layout} of {shape}; expected the axis of the classes: flatten before it and take axis 1"
        ));
    }
    build.notes.push(format!("{} ({}) is left out, because the loss includes it", node.label(), node.op));
    Ok(Value::Tensor(x))
}

/// Operators that keep the probabilities and at most change their shape.
const NO_CHANGE: [&str; 6] = ["Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"];

/// Fails if the softmax is not at the end of the graph.
fn end<'a>(build: &Build<'a>, node: &Node<'a>) -> Result<(), String> {
    let mut last = node;
    loop {
        let Some(output) = last.outputs.first() else { return Err("it has no output".into()) };
        let mut readers = build.graph.nodes.iter().filter(|reader| reader.inputs.contains(output));
        match (readers.next(), readers.next()) {
            (None, _) if build.graph.outputs.contains(output) => return Ok(()),
            (None, _) => {
                return Err("a softmax is supported only as an output of the graph. Remove the nodes after it".into());
            }
            // the loop ends because nodes are in execution order
            (Some(reader), None) if NO_CHANGE.contains(&reader.op) && !build.graph.outputs.contains(output) => {
                last = reader
            }
            (Some(reader), _) => {
                return Err(format!(
                    "a softmax is supported only in attention, and at the end, because the loss includes it, but node {} ({}) \
                     reads its output; remove that node",
                    reader.label(),
                    reader.op
                ));
            }
        }
    }
}
