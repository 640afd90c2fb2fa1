//! Pools, and means over the plane.

use net::{Flatten, OpSpec, Pool, PoolKind, Shape};

use crate::interop::onnx::build::Build;
use crate::interop::onnx::graph::Node;
use crate::interop::onnx::handler::Operator;
use crate::interop::onnx::moments;
use crate::interop::onnx::value::{Layout, Padding, Value, View};
use crate::interop::onnx::windows::{Sizes, pads};

pub(super) const OPERATORS: &[Operator] = &[
    ("AveragePool", 1, average),
    ("GlobalAveragePool", 1, |build, node| whole(build, node, PoolKind::Avg)),
    ("GlobalMaxPool", 1, |build, node| whole(build, node, PoolKind::Max)),
    ("MaxPool", 1, max),
    ("ReduceMean", 2, mean),
];

fn average<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["auto_pad", "ceil_mode", "count_include_pad", "dilations", "kernel_shape", "pads", "strides"])?;
    let counts = node.int("count_include_pad", 0) != 0;
    let (x, before) = match build.value(node, 0)? {
        Value::Padded(view, padding) if view.layout == Layout::Image && !padding.mirrored => (view, padding),
        _ => (build.image(node, 0)?, Padding::NONE),
    };
    let (image, sizes) = (before.around(build.shapes[x.id.0]), Sizes::of_pool(node)?);
    let own = pads(node, image, &sizes)?;
    // zeros that came before count as cells of the image
    if before != Padding::NONE && own != [0; 4] && !counts {
        return Err("its input is padded with zeros that count, and it adds cells that do not".into());
    }
    let all: [usize; 4] = std::array::from_fn(|side| own[side] + before.cells[side]);
    let counted = all != [0; 4] && (counts || before != Padding::NONE);
    let kind = if counted { PoolKind::AvgCountPad } else { PoolKind::Avg };
    let pool = pool(node, kind, &sizes, all)?;
    if before == Padding::NONE {
        return made(build, node, x, pool);
    }
    let apart = Pool { pads: own, ..pool.clone() }.output(&[image])?;
    merged(build, node, x, pool, apart)
}

/// A pool that has the cells of a Pad before it as its own. Rounding up drops windows that begin in a pool's own cells, but none that begin
/// in those of an image: only where no fewer windows are left than `apart` are the two the same.
fn merged<'a>(build: &mut Build<'a>, node: &Node<'a>, x: View, pool: Pool, apart: Shape) -> Result<Value, String> {
    let y = pool.output(&[build.shapes[x.id.0]])?;
    if y != apart {
        return Err(format!(
            "its ceil_mode has windows that begin in the cells of the Pad before it ({apart}), and the pool with these cells as its own \
             drops them ({y}); export the network with ceil_mode=False"
        ));
    }
    made(build, node, x, pool)
}

fn max<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "storage_order", "strides"])?;
    if node.outputs.len() > 1 {
        return Err("its second output, the places of the maxima, is not supported".into());
    }
    let (x, before) = match build.value(node, 0)? {
        // after a ReLU no value is below zero, so zero padding does not change the maximum
        Value::Padded(view, padding)
            if view.layout == Layout::Image && !padding.mirrored && build.is_non_negative(view.id) =>
        {
            (view, padding)
        }
        _ => (build.image(node, 0)?, Padding::NONE),
    };
    let (image, sizes) = (before.around(build.shapes[x.id.0]), Sizes::of_pool(node)?);
    let own = pads(node, image, &sizes)?;
    let all = std::array::from_fn(|side| own[side] + before.cells[side]);
    let pool = pool(node, PoolKind::Max, &sizes, all)?;
    if before == Padding::NONE {
        return made(build, node, x, pool);
    }
    let apart = Pool { pads: own, ..pool.clone() }.output(&[image])?;
    merged(build, node, x, pool, apart)
}

fn pool(node: &Node<'_>, kind: PoolKind, sizes: &Sizes, pads: [usize; 4]) -> Result<Pool, String> {
    if sizes.dilation != [1, 1] {
        return Err(format!("dilations {:?} of a pool", sizes.dilation));
    }
    let ceil = node.int("ceil_mode", 0) != 0;
    Ok(Pool { kind, window: Some(sizes.kernel), stride: sizes.stride, pads, ceil, bins: None })
}

fn made<'a>(build: &mut Build<'a>, node: &Node<'a>, x: View, pool: Pool) -> Result<Value, String> {
    let id = build.layer((None, node.label()), pool, &[x.id], Vec::new())?;
    Ok(Value::Tensor(View { id, ..x }))
}

fn whole<'a>(build: &mut Build<'a>, node: &Node<'a>, kind: PoolKind) -> Result<Value, String> {
    node.only(&[])?;
    let x = build.image(node, 0)?;
    let id = build.layer((None, node.label()), Pool { kind, ..Pool::global() }, &[x.id], Vec::new())?;
    Ok(Value::Tensor(View { id, ..x }))
}

/// Over height and width.
fn mean<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["axes", "keepdims", "noop_with_empty_axes"])?;
    let axes = match build.given(node, 1)? {
        Some(axes) => axes.ints(),
        None => node.ints("axes").map(<[i64]>::to_vec).unwrap_or_default(),
    };
    let (x, part) = match build.value(node, 0)? {
        Value::Moment(view, of) => (view, Some(of)),
        _ => (build.view(node, 0)?, None),
    };
    let rank = x.layout.rank();
    let mut axes: Vec<i64> =
        axes.iter().map(|axis| if *axis < 0 { axis.saturating_add(rank) } else { *axis }).collect();
    axes.sort_unstable();
    let channels = axes == [rank - 1] && node.int("keepdims", 1) == 1;
    if channels || part.is_some() {
        return moments::mean(x, part, channels);
    }
    let plane = match x.layout {
        Layout::Image => axes == [2, 3],
        Layout::Last => axes == [1, 2],
        Layout::Flat | Layout::FlatLast(_) => false,
    };
    if !plane {
        return Err(format!("means over {axes:?} of {}; supported are those over height and width", x.layout.text()));
    }
    let mut id = build.layer((None, node.label()), Pool::global(), &[x.id], Vec::new())?;
    let mut layout = x.layout;
    if node.int("keepdims", 1) == 0 {
        id = build.layer((None, node.label()), Flatten, &[id], Vec::new())?;
        layout = Layout::Flat;
    }
    Ok(Value::Tensor(View { id, layout }))
}
