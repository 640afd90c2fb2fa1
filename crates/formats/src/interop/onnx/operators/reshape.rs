//! Operators that move or select values: reshapes, transpositions and splits.

use net::{Channels, Id};

use super::size;
use crate::interop::onnx::axes::{Axes, Size, from_front};
use crate::interop::onnx::build::{Build, Fill, Layout, Operator, Value, View};
use crate::interop::onnx::graph::Node;
use crate::interop::onnx::scores;
use crate::interop::ops::flatten::flat;

pub(super) const OPERATORS: &[Operator] = &[
    ("Expand", 2, expand),
    ("Gather", 2, gather),
    ("Reshape", 2, reshape),
    ("SpaceToDepth", 1, space_to_depth),
    ("Split", 2, split),
    ("Squeeze", 2, squeeze),
    ("Transpose", 1, transpose),
    ("Unsqueeze", 2, unsqueeze),
];

/// Returns the target shape of a reshape.
fn wanted<'a>(build: &Build<'a>, node: &Node<'a>) -> Result<Vec<Size>, String> {
    match build.value(node, 1)? {
        Value::Constant(constant) if constant.dims.len() == 1 && constant.dims[0] <= 8 => {
            Ok(constant.ints().into_iter().map(Size::Number).collect())
        }
        Value::Sizes(sizes) => Ok(sizes),
        _ => Err("its shape depends on the images (a dynamic shape); only the number of images may vary".into()),
    }
}

fn reshape<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["allowzero"])?;
    let sizes = wanted(build, node)?;
    let copies = node.int("allowzero", 0) == 0;
    match build.computed(node, 0)? {
        Value::Sizes(own) if sizes == [Size::Number(-1)] => return Ok(Value::sizes(own)),
        Value::Size(own) if [[Size::Number(-1)], [Size::Number(1)]].iter().any(|list| sizes == list) => {
            return Ok(Value::sizes(vec![own]));
        }
        Value::Scores(own) => {
            let sizes = if copies { copied(&sizes, &own.axes.sizes()) } else { sizes };
            return scores::reshaped(build, node, &sizes)?.ok_or_else(|| "it reads no products".into());
        }
        value @ (Value::Arranged(..) | Value::Padded(..)) => {
            let axes = match value {
                Value::Arranged(_, axes) => axes,
                _ => build.axes(node, 0)?.1,
            };
            let sizes = if copies { copied(&sizes, &axes.sizes()) } else { sizes };
            return rearranged(build, node, |axes, varies| axes.reshaped(&sizes, varies));
        }
        _ => {}
    }
    let view = build.view(node, 0)?;
    let x = build.shapes[view.id.0];
    let size = |n: usize| Size::Number(n as i64);
    let own: Vec<Size> = [Size::N].into_iter().chain(view.layout.dims(x).into_iter().map(size)).collect();
    let sizes = if copies { copied(&sizes, &own) } else { sizes };
    let is_reordered = view.layout.is_reordered();
    match sizes.get(1..).unwrap_or_default() {
        // PyTorch's exporter flattens a single image to one dimension, then gathers the features again
        [] if sizes == [Size::Number(-1)] && x.plane() == 1 && !is_reordered => Ok(Value::List(view)),
        [all] if [Size::Number(-1), size(x.elems())].contains(all) => flat(build, node, view),
        [c, Size::Number(1), Size::Number(1)]
            if x.plane() == 1 && !is_reordered && [Size::Number(-1), size(x.c)].contains(c) =>
        {
            Ok(Value::Tensor(View { layout: Layout::Image, ..view }))
        }
        _ => rearranged(build, node, |axes, varies| axes.reshaped(&sizes, varies)),
    }
}

/// Moves the pixels of each square to the channels, row by row.
fn space_to_depth<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["blocksize"])?;
    let size = node.int("blocksize", 0);
    rearranged(build, node, |axes, varies| {
        let [n, Size::Number(channels), Size::Number(rows), Size::Number(columns)] = axes.sizes()[..] else {
            return Err("it expects 4 dimensions".into());
        };
        let [rows, columns] = [rows, columns].map(|extent| extent.checked_div(size).unwrap_or(0));
        let all = size.checked_mul(size).and_then(|square| square.checked_mul(channels)).unwrap_or(0);
        let [all, channels, rows, columns, size] = [all, channels, rows, columns, size].map(Size::Number);
        let split = axes.reshaped(&[n, channels, rows, size, columns, size], varies)?;
        split.transposed(&[0, 3, 5, 1, 2, 4])?.reshaped(&[n, all, rows, columns], varies)
    })
}

/// Changes the dimensions of a tensor. `change` gets the dimensions, and if the number of images may vary.
fn rearranged<'a>(
    build: &mut Build<'a>,
    node: &Node<'a>,
    change: impl FnOnce(Axes, bool) -> Result<Axes, String>,
) -> Result<Value, String> {
    let varies = build.images().is_none();
    let (id, axes) = build.axes(node, 0)?;
    let axes = change(axes, varies)?;
    build.settled(node.label(), id, axes)
}

/// Replaces each size of 0 by the size of the input in the same position.
fn copied(sizes: &[Size], own: &[Size]) -> Vec<Size> {
    let size = |(place, size): (usize, &Size)| match own.get(place) {
        Some(own) if *size == Size::Number(0) => *own,
        _ => *size,
    };
    sizes.iter().enumerate().map(size).collect()
}

/// Reads the repetition of a weight for each image, as in a class token. The other dimensions must not change.
fn expand<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&[])?;
    if let norms @ Value::Norms(..) = build.value(node, 0)? {
        return Ok(norms);
    }
    let (x, sizes) = (build.constant(node, 0)?, wanted(build, node)?);
    let same = |(own, size): (&usize, &Size)| [1, -1, *own as i64].map(Size::Number).contains(size);
    let rest = sizes.get(1..).unwrap_or_default();
    let each = x.dims.first() == Some(&1) && x.dims.len() == sizes.len() && x.dims[1..].iter().zip(rest).all(same);
    match each && sizes[0] == Size::N {
        true => Ok(Value::Constant(x)),
        false => Err(format!("it expands a weight of {:?}; supported is its repetition for each image", x.dims)),
    }
}

/// Returns the axes of a node, from its input or its attribute, as indices below `rank`.
fn axes<'a>(build: &Build<'a>, node: &Node<'a>, rank: usize) -> Result<Vec<i64>, String> {
    let axes = build.numbers(node, 1, "axes")?.unwrap_or_default();
    let mut axes: Vec<i64> = axes.into_iter().map(|axis| from_front(axis, rank)).collect();
    axes.sort_unstable();
    Ok(axes)
}

fn squeeze<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["axes"])?;
    if let Value::Sizes(sizes) = build.value(node, 0)?
        && sizes.len() == 1
    {
        return Ok(Value::size(sizes[0]));
    }
    let rank = build.axes(node, 0)?.1.axes.len();
    let axes = axes(build, node, rank)?;
    if axes.is_empty() {
        return Err(
            "without axes, it would also remove the batch dimension of a single image; state axes 2 and 3, or use x.flatten(1)"
                .into(),
        );
    }
    let view = build.value(node, 0)?;
    if let Value::Tensor(view @ View { layout: Layout::Image, .. }) = view
        && build.shapes[view.id.0].plane() == 1
        && axes == [2, 3]
    {
        return flat(build, node, view);
    }
    rearranged(build, node, |own, _| own.squeezed(&axes))
}

fn unsqueeze<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["axes"])?;
    if let Value::Size(size) = build.value(node, 0)? {
        return Ok(Value::sizes(vec![size]));
    }
    let given = axes(build, node, 0)?;
    let rank = build.axes(node, 0)?.1.axes.len() + given.len();
    let axes = axes(build, node, rank)?;
    rearranged(build, node, |own, _| own.unsqueezed(&axes))
}

fn transpose<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["perm"])?;
    let perm = node.ints("perm").unwrap_or_default();
    if let Some(turned) = scores::transposed(build, node)? {
        return Ok(turned);
    }
    match build.value(node, 0)? {
        Value::Padded(x, padding) if padding.fill != Fill::Zeros => {
            let layout = match (x.layout, perm) {
                (Layout::Image, [0, 2, 3, 1]) => Layout::Last,
                (Layout::Last, [0, 3, 1, 2]) => Layout::Image,
                (layout @ (Layout::Image | Layout::Last), [0, 1, 2, 3]) => layout,
                (layout, perm) => {
                    return Err(format!("perm {perm:?} of padded {} is not supported", layout.text()));
                }
            };
            Ok(Value::Padded(View { layout, ..x }, padding))
        }
        _ => rearranged(build, node, |axes, _| axes.transposed(perm)),
    }
}

/// Selects an index of a dimension, or sizes from the result of a Shape node. Also reads the Gather nodes that
/// [`parted`] describes.
fn gather<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["axis"])?;
    match build.computed(node, 0)? {
        Value::Sizes(sizes) => size::gathered(build, node, &sizes),
        Value::List(view) => parted(build, node, view),
        _ => {
            let at = build.listed(node, 1)?;
            let axis = node.int("axis", 0);
            match (&at.dims[..], &at.ints()[..]) {
                ([], [index]) => rearranged(build, node, |axes, _| axes.selected(axis, *index)),
                ([_], indices) => picked(build, node, axis, indices),
                _ => Err("it gathers indices that are neither a single index nor a list".into()),
            }
        }
    }
}

/// Selects indices along an axis that contains positions.
fn picked<'a>(build: &mut Build<'a>, node: &Node<'a>, axis: i64, indices: &[i64]) -> Result<Value, String> {
    let (id, axes) = build.axes(node, 0)?;
    let size = axes.size(axis)?;
    let index = |index: &i64| usize::try_from(from_front(*index, size)).ok();
    let indices: Option<Vec<usize>> = indices.iter().map(index).collect();
    let indices = indices.ok_or("it gathers indices out of range")?;
    build.take(size_of::<u32>() * (axes.count()? + indices.len()))?;
    let axes = axes.picked(axis, &indices)?;
    build.settled(node.label(), id, axes)
}

/// Reads a Gather node that turns a one-dimensional tensor into images again, if the indices keep the order of the
/// features.
fn parted<'a>(build: &Build<'a>, node: &Node<'a>, view: View) -> Result<Value, String> {
    let at = build.listed(node, 1)?;
    let features = build.shapes[view.id.0].c;
    let layout = match at.dims[..] {
        [_, c] if c == features => Layout::Flat,
        [_, c, 1, 1] if c == features => Layout::Image,
        _ => return Err(format!("its indices have the shape {:?}, expected (N, {features})", at.dims)),
    };
    match at.ints().into_iter().eq(0..at.values.len() as i64) {
        true => Ok(Value::Tensor(View { layout, ..view })),
        false => Err("its indices change the order of the features; only indices that keep it are supported".into()),
    }
}

/// Adds one layer for each output.
fn split<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["axis", "num_outputs", "split"])?;
    let axis = node.int("axis", 0);
    if let Value::Arranged(id, axes) = build.computed(node, 0)? {
        return split_axis(build, node, id, &axes);
    }
    let x = build.view(node, 0)?;
    if !x.layout.has_channels_at(axis) || matches!(x.layout, Layout::Flat | Layout::FlatLast(_)) {
        return Err(format!("it splits {} along axis {axis}; only channels can be split", x.layout.text()));
    }
    let mut views = Vec::new();
    let mut from = 0;
    for (size, name) in part_sizes(build, node, build.shapes[x.id.0].c)?.into_iter().zip(&node.outputs) {
        let part = build.layer_on((None, name), Channels::range(from, size), x, Vec::new())?;
        views.push(Value::Tensor(part));
        from += size;
    }
    outputs(build, node, views)
}

/// Splits a tensor with rearranged dimensions.
fn split_axis<'a>(build: &mut Build<'a>, node: &Node<'a>, id: Id, axes: &Axes) -> Result<Value, String> {
    let axis = node.int("axis", 0);
    let whole = axes.size(axis)?;
    let mut parts = Vec::new();
    let mut from = 0;
    for (size, name) in part_sizes(build, node, whole)?.into_iter().zip(&node.outputs) {
        let part = axes.clone().sliced(axis, from..from + size)?;
        parts.push(build.settled(name, id, part)?);
        from += size;
    }
    outputs(build, node, parts)
}

/// Stores the second and later outputs in `build` and returns the first.
fn outputs<'a>(build: &mut Build<'a>, node: &Node<'a>, parts: Vec<Value>) -> Result<Value, String> {
    let mut parts = parts.into_iter();
    let first = parts.next().ok_or("it has no outputs")?;
    for (name, part) in node.outputs.iter().skip(1).zip(parts) {
        build.set(node, name, part);
    }
    Ok(first)
}

/// Returns the size of each output of a Split node.
fn part_sizes<'a>(build: &Build<'a>, node: &Node<'a>, whole: usize) -> Result<Vec<usize>, String> {
    let parts = node.outputs.len().max(1);
    let sizes = match build.numbers(node, 1, "split")? {
        Some(sizes) => sizes.into_iter().map(|n| usize::try_from(n).unwrap_or(0)).collect(),
        None => {
            let each = whole.div_ceil(parts);
            (0..parts).map(|part| each.min(whole.saturating_sub(part * each))).collect::<Vec<_>>()
        }
    };
    let total = sizes.iter().try_fold(0usize, |sum, n| sum.checked_add(*n));
    if sizes.len() != parts || total != Some(whole) || sizes.contains(&0) {
        let outputs = base::text::plural(parts, "output");
        return Err(format!(
            "it splits {whole} channels into {sizes:?}, but it has {outputs}; expected a size above 0 for each output, {whole} in total"
        ));
    }
    Ok(sizes)
}
