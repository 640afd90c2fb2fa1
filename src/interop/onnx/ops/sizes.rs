//! Sizes of tensors, out of which exporters put the shape of a reshape together.

use crate::interop::onnx::build::Build;
use crate::interop::onnx::graph::Node;
use crate::interop::onnx::handler::Operator;
use crate::interop::onnx::value::{Layout, Value};

pub(super) const OPERATORS: &[Operator] = &[("Gather", 2, gather), ("Shape", 1, shape)];

/// All sizes of a tensor; the number of images is not known.
fn shape<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["end", "start"])?;
    let view = build.view(node, 0)?;
    let x = build.shapes[view.id.0];
    let rest = match view.layout {
        Layout::Image => vec![x.c, x.h, x.w],
        Layout::Last => vec![x.h, x.w, x.c],
        Layout::Flat => vec![x.elems()],
    };
    let all: Vec<Option<i64>> = [None].into_iter().chain(rest.into_iter().map(|n| Some(n as i64))).collect();
    let length = all.len() as i64;
    let place = |at: i64| if at < 0 { at.saturating_add(length) } else { at }.clamp(0, length) as usize;
    let (start, end) = (place(node.int("start", 0)), place(node.int("end", length)));
    Ok(Value::Sizes(all.get(start..end).unwrap_or_default().to_vec()))
}

/// One of them.
fn gather<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["axis"])?;
    let Value::Sizes(sizes) = build.value(node, 0)? else {
        return Err("supported of sizes alone, not of tensors".into());
    };
    let at = build.constant(node, 1)?;
    let number = at.scalar().map(|at| if at < 0.0 { at + sizes.len() as f64 } else { at });
    let one = number.filter(|at| *at >= 0.0).and_then(|at| sizes.get(at as usize)).copied();
    let one = one.ok_or("its index is beyond the sizes")?;
    Ok(if at.dims.is_empty() { Value::Size(one) } else { Value::Sizes(vec![one]) })
}
