//! Operators that move or select values: reshapes, transpositions and splits. Also sizes of tensors, from which
//! exporters compute the target shape of a reshape.

use net::{Channels, GroupNorm, Shape};

use crate::interop::onnx::build::{Blocks, Build, Groups, Layout, Operator, Value, View};
use crate::interop::onnx::channels;
use crate::interop::onnx::fold::range;
use crate::interop::onnx::graph::Node;
use crate::interop::ops::flatten::flat;

pub(super) const OPERATORS: &[Operator] = &[
    ("Gather", 2, gather),
    ("Reshape", 2, reshape),
    ("Shape", 1, shape),
    ("Split", 2, split),
    ("Squeeze", 2, squeeze),
    ("Transpose", 1, transpose),
    ("Unsqueeze", 2, unsqueeze),
];

/// Returns the target shape of a reshape. `None` is the number of images.
fn wanted<'a>(build: &Build<'a>, node: &Node<'a>) -> Result<Vec<Option<i64>>, String> {
    match build.value(node, 1)? {
        Value::Constant(constant) if constant.dims.len() == 1 && constant.dims[0] <= 8 => {
            Ok(constant.ints().into_iter().map(Some).collect())
        }
        Value::Sizes(sizes) => Ok(sizes),
        _ => Err("its shape depends on the images (a dynamic shape); only the number of images may vary".into()),
    }
}

fn reshape<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["allowzero"])?;
    let sizes = wanted(build, node)?;
    let refuse = |x: Shape| {
        let shown: Vec<String> = sizes.iter().map(|n| n.map_or("N".into(), |n| n.to_string())).collect();
        Err(format!(
            "it reshapes {x} to [{}]; supported are vectors (N, -1), images of one pixel, and groups of channels",
            shown.join(", ")
        ))
    };
    if let Value::Grouped(view, Groups { count, normed: Some(eps) }) = build.value(node, 0)? {
        let x = build.shapes[view.id.0];
        let back = [x.c, x.h, x.w].map(|n| Some(n as i64));
        let rest = sizes.get(1..).unwrap_or_default();
        let flat = view.layout == Layout::Flat && [[Some(-1)], [back[0]]].iter().any(|own| rest == own);
        if !flat && rest != back {
            return refuse(x);
        }
        let [scale, bias] = [("weight", 1.0), ("bias", 0.0)].map(|(field, n)| (field, vec![x.c], vec![n; x.c]));
        let norm = GroupNorm { groups: count, eps };
        let id = build.layer((None, node.label()), norm, &[view.id], vec![scale, bias])?;
        return Ok(Value::Tensor(View { id, ..view }));
    }
    if let Value::Blocks(view, Blocks { count, exchanged: true }) = build.value(node, 0)? {
        let x = build.shapes[view.id.0];
        let fits = are_sizes(sizes.get(1..).unwrap_or_default(), [x.c, x.h, x.w]);
        return if fits { channels::picked(build, node, view, Channels::shuffle(x.c, count)) } else { refuse(x) };
    }
    let view = build.view(node, 0)?;
    let x = build.shapes[view.id.0];
    let size = |n: usize| Some(n as i64);
    let sizes = if node.int("allowzero", 0) == 0 { copied(&sizes, view, x) } else { sizes.clone() };
    match sizes.get(1..).unwrap_or_default() {
        // PyTorch's exporter flattens a single image to one dimension, then gathers the features again
        [] if sizes == [Some(-1)] && x.plane() == 1 => Ok(Value::List(view)),
        [all] if [Some(-1), size(x.elems())].contains(all) => flat(build, node, view),
        [groups, Some(-1)] if view.layout != Layout::Last => {
            let count = groups.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0 && x.c.is_multiple_of(*n));
            match count {
                Some(count) => Ok(Value::Grouped(view, Groups { count, normed: None })),
                None => refuse(x),
            }
        }
        [Some(count), c, h, w] if view.layout == Layout::Image => {
            let count = usize::try_from(*count).ok().filter(|n| *n > 0 && x.c.is_multiple_of(*n));
            match count {
                Some(count) if are_sizes(&[*c, *h, *w], [x.c / count, x.h, x.w]) => blocks(view, count),
                _ => refuse(x),
            }
        }
        [c, Some(1), Some(1)] if x.plane() == 1 && [Some(-1), size(x.c)].contains(c) => {
            Ok(Value::Tensor(View { layout: Layout::Image, ..view }))
        }
        [c, h, w] if view.layout == Layout::Image && [*c, *h, *w] == [size(x.c), size(x.h), size(x.w)] => {
            Ok(Value::Tensor(view))
        }
        _ => refuse(x),
    }
}

/// Splits channels into blocks. This is the first step of a channel shuffle.
fn blocks(view: View, count: usize) -> Result<Value, String> {
    Ok(Value::Blocks(view, Blocks { count, exchanged: false }))
}

/// Returns true if the sizes of a reshape are `own`. A size of -1 matches any size.
fn are_sizes(sizes: &[Option<i64>], own: [usize; 3]) -> bool {
    sizes.len() == 3 && sizes.iter().zip(own).all(|(size, own)| [Some(-1), Some(own as i64)].contains(size))
}

/// Replaces each size of 0 by the size of the input in the same position.
fn copied(sizes: &[Option<i64>], view: View, x: Shape) -> Vec<Option<i64>> {
    let own = view.layout.dims(x);
    let places = [None].into_iter().chain(own.into_iter().map(Some)).chain(std::iter::repeat(None));
    let size = |(size, own): (&Option<i64>, Option<usize>)| match own {
        Some(own) if *size == Some(0) => Some(own as i64),
        _ => *size,
    };
    sizes.iter().zip(places).map(size).collect()
}

/// Returns the axes of a node, from its input or its attribute, as indices below `rank`.
fn axes<'a>(build: &Build<'a>, node: &Node<'a>, rank: i64) -> Result<Vec<i64>, String> {
    let given = build.given(node, 1)?.map(|axes| axes.ints());
    let axes = given.or_else(|| node.ints("axes").map(<[i64]>::to_vec)).unwrap_or_default();
    let mut axes: Vec<i64> =
        axes.into_iter().map(|axis| if axis < 0 { axis.saturating_add(rank) } else { axis }).collect();
    axes.sort_unstable();
    Ok(axes)
}

fn squeeze<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["axes"])?;
    match build.value(node, 0)? {
        Value::Sizes(sizes) if sizes.len() == 1 => return Ok(Value::size(sizes[0])),
        _ => {}
    }
    let x = build.image(node, 0)?;
    let axes = axes(build, node, 4)?;
    if axes.is_empty() {
        return Err(
            "without axes, it would also remove the batch dimension of a single image; state axes 2 and 3, or use x.flatten(1)"
                .into(),
        );
    }
    if build.shapes[x.id.0].plane() != 1 || axes != [2, 3] {
        return Err(format!("axes {axes:?} are not supported, only height and width of images with one pixel"));
    }
    flat(build, node, x)
}

fn unsqueeze<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["axes"])?;
    if let Value::Size(size) = build.value(node, 0)? {
        return Ok(Value::sizes(vec![size]));
    }
    let x = build.view(node, 0)?;
    let axes = axes(build, node, 4)?;
    if x.layout != Layout::Flat || axes != [2, 3] {
        return Err(format!(
            "axes {axes:?} of {} are not supported, only new axes 2 and 3 of vectors",
            x.layout.text()
        ));
    }
    Ok(Value::Tensor(View { layout: Layout::Image, ..x }))
}

/// Reads a transposition that moves the channels to the end or back to the second dimension, that changes nothing, or
/// that is a step of a channel shuffle.
fn transpose<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["perm"])?;
    if let Value::Blocks(view, Blocks { count, exchanged: false }) = build.value(node, 0)?
        && node.ints("perm") == Some(&[0, 2, 1, 3, 4])
    {
        return Ok(Value::Blocks(view, Blocks { count, exchanged: true }));
    }
    let (x, padding) = match build.value(node, 0)? {
        Value::Padded(x, padding) => (x, Some(padding)),
        _ => (build.view(node, 0)?, None),
    };
    let layout = match (x.layout, node.ints("perm").unwrap_or_default()) {
        (Layout::Image, [0, 2, 3, 1]) => Layout::Last,
        (Layout::Last, [0, 3, 1, 2]) => Layout::Image,
        (layout @ (Layout::Image | Layout::Last), [0, 1, 2, 3]) => layout,
        (layout, perm) => {
            return Err(format!(
                "perm {perm:?} of {} is not supported; channels can only move to the end or back to the second dimension",
                layout.text()
            ));
        }
    };
    let x = View { layout, ..x };
    Ok(padding.map_or(Value::Tensor(x), |padding| Value::Padded(x, padding)))
}

/// Returns the sizes of a tensor. The number of images is unknown.
fn shape<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["end", "start"])?;
    let view = build.view(node, 0)?;
    let rest = view.layout.dims(build.shapes[view.id.0]);
    let all: Vec<Option<i64>> = [None].into_iter().chain(rest.into_iter().map(|n| Some(n as i64))).collect();
    let part = range(node.int("start", 0), node.int("end", i64::MAX), all.len());
    Ok(Value::sizes(all[part].to_vec()))
}

/// Selects one or more sizes from the result of a Shape node. Also reads the Gather nodes that [`parted`] describes.
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
        let size = usize::try_from(from_front).ok().and_then(|at| sizes.get(at)).copied();
        size.ok_or_else(|| format!("its index {at} is out of range: the tensor has {} sizes", sizes.len()))
    };
    let picked = at.ints().into_iter().map(one).collect::<Result<Vec<_>, _>>()?;
    Ok(match (at.dims.as_slice(), picked.as_slice()) {
        ([], [one]) => Value::size(*one),
        ([_], _) => Value::sizes(picked),
        (shape, _) => return Err(format!("its indices must be a number or a list, got the shape {shape:?}")),
    })
}

/// Reads a Gather node that turns a one-dimensional tensor into images again, if the indices keep the order of the
/// features.
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
        false => Err("its indices change the order of the features; only indices that keep it are supported".into()),
    }
}

/// Largest number of sizes in a list.
const MOST_SIZES: usize = 8;

/// Concatenates sizes for a reshape.
pub(crate) fn joined_sizes<'a>(build: &Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    let mut all = Vec::new();
    for at in 0..node.inputs.len() {
        match build.value(node, at)? {
            Value::Sizes(sizes) => all.extend(sizes),
            Value::Constant(constant) if constant.dims.len() == 1 && constant.dims[0] <= MOST_SIZES => {
                all.extend(constant.ints().into_iter().map(Some));
            }
            _ => return Err("it can join only tensors or sizes of tensors".into()),
        }
        if all.len() > MOST_SIZES {
            return Err(format!("it joins more than {MOST_SIZES} sizes, but no tensor has as many"));
        }
    }
    Ok(Value::sizes(all))
}

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
        let outputs = base::text::plural(parts, "output");
        return Err(format!(
            "it splits {channels} channels into {sizes:?}, but it has {outputs}; expected a size above 0 for each output, {channels} in \
             total"
        ));
    }
    let mut views = Vec::new();
    let mut from = 0;
    for (size, name) in sizes.iter().zip(&node.outputs) {
        let id = build.layer((None, name), Channels::range(from, *size), &[x.id], Vec::new())?;
        views.push(View { id, ..x });
        from += size;
    }
    for (name, view) in node.outputs.iter().zip(&views).skip(1) {
        build.set(node, name, Value::Tensor(*view));
    }
    views.first().map(|view| Value::Tensor(*view)).ok_or_else(|| "it has no outputs".into())
}
