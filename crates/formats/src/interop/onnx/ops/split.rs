//! The Split operator, for channels.

use crate::interop::onnx::build::Build;
use crate::interop::onnx::channels;
use crate::interop::onnx::graph::Node;
use crate::interop::onnx::handler::Operator;
use crate::interop::onnx::value::{Layout, Value, View};

pub(super) const OPERATORS: &[Operator] = &[("Split", 2, split)];

/// Adds one layer for each output. Stores the second and later outputs in `build` and returns the first.
fn split<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["axis", "num_outputs", "split"])?;
    let x = build.view(node, 0)?;
    let axis = node.int("axis", 0);
    let of_channels = match x.layout {
        Layout::Image => [1, -3].contains(&axis),
        Layout::Last => [3, -1].contains(&axis),
        Layout::Flat | Layout::FlatLast(_) => false,
    };
    if !of_channels {
        return Err(format!("it splits {} along axis {axis}; only channels can be split", x.layout.text()));
    }
    let (channels, parts) = (build.shapes[x.id.0].c, node.outputs.len().max(1));
    let sizes = match build.numbers(node, 1, "split")? {
        Some(sizes) => sizes.into_iter().map(|n| usize::try_from(n).unwrap_or(0)).collect(),
        None => {
            let each = channels.div_ceil(parts);
            (0..parts).map(|part| each.min(channels.saturating_sub(part * each))).collect::<Vec<_>>()
        }
    };
    let total = sizes.iter().try_fold(0usize, |sum, n| sum.checked_add(*n));
    if sizes.len() != parts || total != Some(channels) || sizes.contains(&0) {
        return Err(format!("it splits {channels} channels into {sizes:?} for {parts} outputs"));
    }
    let mut views = Vec::new();
    let mut from = 0;
    for (size, name) in sizes.iter().zip(&node.outputs) {
        let id = channels::picked_as(build, name, x, &(from..from + size).collect::<Vec<_>>())?;
        views.push(View { id, ..x });
        from += size;
    }
    for (name, view) in node.outputs.iter().zip(&views).skip(1) {
        build.set(node, name, Value::Tensor(*view));
    }
    views.first().map(|view| Value::Tensor(*view)).ok_or_else(|| "it has no outputs".into())
}
