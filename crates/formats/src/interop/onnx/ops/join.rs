//! Tensors one after another, and sizes.

use net::{Concat, Id};

use crate::interop::onnx::build::Build;
use crate::interop::onnx::graph::Node;
use crate::interop::onnx::handler::{ANY, Operator};
use crate::interop::onnx::value::{Layout, Value, View};

pub(super) const OPERATORS: &[Operator] = &[("Concat", ANY, concat)];

fn concat<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["axis"])?;
    if !matches!(build.value(node, 0)?, Value::Tensor(_) | Value::Function(..)) {
        return sizes(build, node);
    }
    let views = (0..node.inputs.len()).map(|at| build.view(node, at)).collect::<Result<Vec<View>, _>>()?;
    let (layout, axis) = (views[0].layout, node.int("axis", 1));
    if let Some(other) = views.iter().find(|view| view.layout != layout) {
        return Err(format!("it joins {} and {}", layout.text(), other.layout.text()));
    }
    let channels = match layout {
        Layout::Image => [1, -3].contains(&axis),
        Layout::Last => [3, -1].contains(&axis),
        Layout::Flat => [1, -1].contains(&axis),
        Layout::FlatLast(_) => false,
    };
    if !channels {
        return Err(format!("axis {axis} of {}: only channels can be joined", layout.text()));
    }
    let inputs: Vec<Id> = views.iter().map(|view| view.id).collect();
    let id = build.layer((None, node.label()), Concat, &inputs, Vec::new())?;
    Ok(Value::Tensor(View { id, layout }))
}

/// Most sizes: those of a tensor.
const MOST_SIZES: usize = 8;

/// Sizes for a reshape.
fn sizes<'a>(build: &Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    let mut all = Vec::new();
    for at in 0..node.inputs.len() {
        match build.value(node, at)? {
            Value::Sizes(sizes) => all.extend(sizes),
            Value::Constant(constant) if constant.dims.len() == 1 && constant.dims[0] <= MOST_SIZES => {
                all.extend(constant.ints().into_iter().map(Some));
            }
            _ => return Err("it joins what is neither tensors nor their sizes".into()),
        }
        if all.len() > MOST_SIZES {
            return Err(format!("it joins more than {MOST_SIZES} sizes, and no tensor has as many"));
        }
    }
    Ok(Value::sizes(all))
}
