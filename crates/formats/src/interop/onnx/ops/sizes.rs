//! Sizes of tensors, out of which exporters put the shape of a reshape together.

use crate::interop::onnx::build::Build;
use crate::interop::onnx::fold::range;
use crate::interop::onnx::graph::Node;
use crate::interop::onnx::handler::Operator;
use crate::interop::onnx::value::{Layout, Value, View};

pub(super) const OPERATORS: &[Operator] = &[("Gather", 2, gather), ("Shape", 1, shape)];

/// All sizes of a tensor; the number of images is not known.
fn shape<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["end", "start"])?;
    let view = build.view(node, 0)?;
    let rest = view.layout.dims(build.shapes[view.id.0]);
    let all: Vec<Option<i64>> = [None].into_iter().chain(rest.into_iter().map(|n| Some(n as i64))).collect();
    let part = range(node.int("start", 0), node.int("end", i64::MAX), all.len());
    Ok(Value::sizes(all[part].to_vec()))
}

/// Gathers one or more sizes of a shape.
fn gather<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["axis"])?;
    let sizes = match build.value(node, 0)? {
        Value::Sizes(sizes) => sizes,
        Value::List(view) => return parted(build, node, view),
        _ => return Err("it gathers from a tensor of the network; only sizes and weights are supported".into()),
    };
    let at = build.constant(node, 1)?;
    let one = |at: i64| {
        let from_front = if at < 0 { at.saturating_add(sizes.len() as i64) } else { at };
        usize::try_from(from_front).ok().and_then(|at| sizes.get(at)).copied().ok_or("its index is beyond the sizes")
    };
    let picked = at.ints().into_iter().map(one).collect::<Result<Vec<_>, _>>()?;
    Ok(match (at.dims.as_slice(), picked.as_slice()) {
        ([], [one]) => Value::size(*one),
        ([_], _) => Value::sizes(picked),
        _ => return Err("its indices must be a number or a list".into()),
    })
}

/// Splits a one-dimensional tensor into images again, if the indices keep the order of the features.
fn parted<'a>(build: &Build<'a>, node: &Node<'a>, view: View) -> Result<Value, String> {
    let at = build.constant(node, 1)?;
    let features = build.shapes[view.id.0].c;
    let layout = match at.dims[..] {
        [_, c] if c == features => Layout::Flat,
        [_, c, 1, 1] if c == features => Layout::Image,
        _ => return Err(format!("its indices have the shape {:?}, expected (N, {features})", at.dims)),
    };
    match at.ints().into_iter().eq(0..at.values.len() as i64) {
        true => Ok(Value::Tensor(View { layout, ..view })),
        false => Err("its indices mix the features of images".into()),
    }
}
