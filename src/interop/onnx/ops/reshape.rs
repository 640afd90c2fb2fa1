//! Other shapes for the same numbers: vectors of images, channels first or last, groups of channels.

use std::rc::Rc;

use crate::interop::onnx::build::Build;
use crate::interop::onnx::graph::Node;
use crate::interop::onnx::handler::Operator;
use crate::interop::onnx::tensor::{Constant, Values};
use crate::interop::onnx::value::{Groups, Layout, Value, View};
use crate::nn::spec::{Flatten, GroupNorm, Shape};

pub(super) const OPERATORS: &[Operator] = &[
    ("Flatten", 1, flatten),
    ("Reshape", 2, reshape),
    ("Squeeze", 2, squeeze),
    ("Transpose", 1, transpose),
    ("Unsqueeze", 2, unsqueeze),
];

fn flatten<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["axis"])?;
    let x = build.view(node, 0)?;
    let rank = if x.layout == Layout::Flat { 2 } else { 4 };
    match node.int("axis", 1) {
        axis if axis == 1 || axis + rank == 1 => flat(build, node, x),
        axis => Err(format!("axis {axis}: only all of an image can be joined, by axis 1")),
    }
}

/// A vector for each image.
fn flat<'a>(build: &mut Build<'a>, node: &Node<'a>, x: View) -> Result<Value, String> {
    let id = match x.layout {
        Layout::Flat => return Ok(Value::Tensor(x)),
        Layout::Last if build.shapes[x.id.0].plane() > 1 => {
            return Err(
                "it joins images (N, H, W, C), which lie in another order here; transpose them to (N, C, H, W) before"
                    .into(),
            );
        }
        _ => build.layer((None, node.label()), Flatten, &[x.id], Vec::new())?,
    };
    Ok(Value::Tensor(View { id, layout: Layout::Flat }))
}

/// The wanted sizes, each known or the number of images.
fn wanted<'a>(build: &Build<'a>, node: &Node<'a>) -> Result<Vec<Option<i64>>, String> {
    match build.value(node, 1)? {
        Value::Constant(constant) if constant.dims.len() == 1 && constant.dims[0] <= 8 => {
            Ok(constant.ints().into_iter().map(Some).collect())
        }
        Value::Sizes(sizes) => Ok(sizes),
        _ => Err("its shape depends on the images (a dynamic shape); only the number of images may be open".into()),
    }
}

fn reshape<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["allowzero"])?;
    let sizes = wanted(build, node)?;
    let refuse = |x: Shape| {
        let shown: Vec<String> = sizes.iter().map(|n| n.map_or("N".into(), |n| n.to_string())).collect();
        Err(format!(
            "from {x} to [{}]; supported are vectors (N, -1), images of one pixel, and groups of channels",
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
    let view = build.view(node, 0)?;
    let x = build.shapes[view.id.0];
    let size = |n: usize| Some(n as i64);
    let sizes = if node.int("allowzero", 0) == 0 { copied(&sizes, view, x) } else { sizes.clone() };
    match sizes.get(1..).unwrap_or_default() {
        [all] if [Some(-1), size(x.elems())].contains(all) => flat(build, node, view),
        [groups, Some(-1)] if view.layout != Layout::Last => {
            let count = groups.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0 && x.c.is_multiple_of(*n));
            match count {
                Some(count) => Ok(Value::Grouped(view, Groups { count, normed: None })),
                None => refuse(x),
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

/// A size of 0 is that of the input at the same place.
fn copied(sizes: &[Option<i64>], view: View, x: Shape) -> Vec<Option<i64>> {
    let own = match view.layout {
        Layout::Image => vec![x.c, x.h, x.w],
        Layout::Last => vec![x.h, x.w, x.c],
        Layout::Flat => vec![x.elems()],
    };
    let places = [None].into_iter().chain(own.into_iter().map(Some)).chain(std::iter::repeat(None));
    let size = |(size, own): (&Option<i64>, Option<usize>)| match own {
        Some(own) if *size == Some(0) => Some(own as i64),
        _ => *size,
    };
    sizes.iter().zip(places).map(size).collect()
}

/// Axes of a node, as input or as attribute, counted from the front of `rank` dimensions.
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
        Value::Sizes(sizes) if sizes.len() == 1 => return Ok(Value::Size(sizes[0])),
        _ => {}
    }
    let x = build.image(node, 0)?;
    let axes = axes(build, node, 4)?;
    if axes.is_empty() {
        return Err(
            "without axes, which takes the dimension of a single image, too; state axes 2 and 3, as x.flatten(1) does"
                .into(),
        );
    }
    if build.shapes[x.id.0].plane() != 1 || axes != [2, 3] {
        return Err(format!("axes {axes:?}; supported are height and width of one pixel"));
    }
    flat(build, node, x)
}

fn unsqueeze<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["axes"])?;
    if let Value::Size(size) = build.value(node, 0)? {
        return Ok(Value::Sizes(vec![size]));
    }
    if let Value::Constant(constant) = build.value(node, 0)?
        && constant.dims.is_empty()
    {
        return Ok(Value::Sizes(constant.ints().into_iter().map(Some).collect()));
    }
    if let Value::Constant(constant) = build.value(node, 0)? {
        return wider(build, node, &constant);
    }
    let x = build.view(node, 0)?;
    let axes = axes(build, node, 4)?;
    if x.layout != Layout::Flat || axes != [2, 3] {
        return Err(format!("axes {axes:?} of {}; supported are height and width of vectors", x.layout.text()));
    }
    Ok(Value::Tensor(View { layout: Layout::Image, ..x }))
}

/// A weight with dimensions of one.
fn wider<'a>(build: &mut Build<'a>, node: &Node<'a>, constant: &Constant) -> Result<Value, String> {
    let count = build.constant(node, 1).map_or(0, |axes| axes.ints().len());
    let mut dims = constant.dims.clone();
    for axis in axes(build, node, (dims.len() + count) as i64)? {
        let place = usize::try_from(axis).ok().filter(|axis| *axis <= dims.len() && dims.len() < 8);
        dims.insert(place.ok_or("its axes are not those of its input")?, 1);
    }
    build.take(constant.values.bytes())?;
    Ok(Value::Constant(Rc::new(Constant { dims, values: constant.values.clone() })))
}

/// A matrix whose rows become columns.
fn across(build: &mut Build<'_>, constant: &Constant) -> Result<Value, String> {
    let &[rows, columns] = constant.dims.as_slice() else { return Err("of a weight, matrices are supported".into()) };
    build.take(constant.values.bytes())?;
    let from = constant.floats();
    let values = (0..columns).flat_map(|c| (0..rows).map(move |r| r * columns + c)).map(|at| from[at]).collect();
    Ok(Value::Constant(Rc::new(Constant { dims: vec![columns, rows], values: Values::Floats(values) })))
}

/// Channels last, or second again.
fn transpose<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["perm"])?;
    if let Value::Constant(constant) = build.value(node, 0)? {
        return match node.ints("perm") {
            None | Some([1, 0]) => across(build, &constant),
            Some(perm) => Err(format!("{perm:?} of a weight; matrices are supported")),
        };
    }
    let x = build.view(node, 0)?;
    let layout = match (x.layout, node.ints("perm").unwrap_or_default()) {
        (Layout::Image, [0, 2, 3, 1]) => Layout::Last,
        (Layout::Last, [0, 3, 1, 2]) => Layout::Image,
        (layout, [0, 1, 2, 3]) if layout != Layout::Flat => layout,
        (layout, perm) => {
            return Err(format!("{perm:?} of {}; channels may come last, or second again", layout.text()));
        }
    };
    Ok(Value::Tensor(View { layout, ..x }))
}
