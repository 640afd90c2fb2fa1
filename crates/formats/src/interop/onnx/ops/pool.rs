//! Pools, means over the plane, cells around a tensor (padding), and every so many-th of its cells, for the layer that follows.

use net::{Flatten, OpSpec, Pool, PoolKind, Shape, Shortcut};

use crate::interop::onnx::build::{Build, Layout, Operator, Padding, Value, View};
use crate::interop::onnx::channels;
use crate::interop::onnx::fold::range;
use crate::interop::onnx::graph::Node;
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
        Value::Padded(..) => {
            return Err(
                "a max pool of an image padded with zeros is supported only after ReLU; here values may be negative"
                    .into(),
            );
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
        return channels::mean(x, part, channels);
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

pub(super) const WINDOW_OPERATORS: &[Operator] = &[("Pad", 4, pad), ("Slice", 5, slice)];

/// Most cells on one side.
const MOST: i64 = 1 << 12;

/// Spreads the numbers for some axes over all four dimensions. The remaining dimensions get their number in `usual`.
fn each(given: Option<Vec<i64>>, axes: &[i64], usual: [i64; 4]) -> Result<[i64; 4], String> {
    let Some(given) = given else { return Ok(usual) };
    let mut all = usual;
    if given.len() != axes.len() {
        return Err(format!("{} numbers for {} axes", given.len(), axes.len()));
    }
    for (axis, number) in axes.iter().zip(given) {
        let axis =
            usize::try_from(if *axis < 0 { axis.saturating_add(4) } else { *axis }).ok().filter(|axis| *axis < 4);
        all[axis.ok_or("its axes are not those of images")?] = number;
    }
    Ok(all)
}

/// Every so many-th row and column from the first.
fn slice<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["axes", "ends", "starts"])?;
    if let Value::Sizes(sizes) = build.value(node, 0)? {
        return of_sizes(build, node, &sizes);
    }
    let x = build.image(node, 0)?;
    let shape = build.shapes[x.id.0];
    let [starts, ends] = [(1, "starts"), (2, "ends")].map(|(at, name)| build.numbers(node, at, name));
    let (starts, ends) = (starts?, ends?);
    let axes = match build.numbers(node, 3, "axes")? {
        Some(axes) => axes,
        None => (0..starts.as_ref().map_or(0, Vec::len).min(4) as i64).collect(),
    };
    let whole = [i64::MAX, shape.c as i64, shape.h as i64, shape.w as i64];
    let starts = each(starts, &axes, [0; 4])?;
    let ends = each(ends, &axes, whole)?;
    let steps = each(build.given(node, 4)?.map(|steps| steps.ints()), &axes, [1; 4])?;
    let all = starts == [0; 4]
        && ends[1..].iter().zip(&whole[1..]).all(|(end, size)| end >= size)
        && ends[0] >= i64::from(i32::MAX);
    let whole_plane = starts[2..] == [0, 0] && ends[2..].iter().zip(&whole[2..]).all(|(end, size)| end >= size);
    match steps {
        [1, 1, 1, 1] if all => Ok(Value::Tensor(x)),
        [1, 1, down, across] if all && down == across && (1..=MOST).contains(&down) => {
            Ok(Value::Strided(x, down as usize))
        }
        [_, 1, 1, 1] if starts[0] == 0 && ends[0] >= whole[0].min(i64::from(i32::MAX)) && whole_plane => {
            let part = range(starts[1], ends[1], shape.c);
            channels::picked(build, node, x, &part.collect::<Vec<_>>())
        }
        _ => Err(format!(
            "it takes a part of {shape} (from {starts:?} in steps of {steps:?}); only parts of the channels, and rows and columns at a \
             regular step, are supported"
        )),
    }
}

/// Some of the sizes of a tensor.
fn of_sizes<'a>(build: &Build<'a>, node: &Node<'a>, sizes: &[Option<i64>]) -> Result<Value, String> {
    let one = |at: usize, name: &str| match build.numbers(node, at, name)?.as_deref() {
        Some([number]) => Ok(*number),
        _ => Err::<_, String>("its bounds must be single numbers".into()),
    };
    let part = range(one(1, "starts")?, one(2, "ends")?, sizes.len());
    if Build::has(node, 4) && build.constant(node, 4)?.scalar() != Some(1.0) {
        return Err("steps through the sizes of a tensor".into());
    }
    Ok(Value::sizes(sizes[part].to_vec()))
}

fn pad<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["mode", "pads", "value"])?;
    let pads = build.numbers(node, 1, "pads")?.ok_or("it has no pads")?;
    let axes = build.given(node, 3)?.map_or_else(|| (0..4).collect(), |axes| axes.ints());
    let (before, after) = pads.split_at(pads.len() / 2);
    if pads.len() != 2 * axes.len() || pads.iter().any(|n| !(0..=MOST).contains(n)) {
        return Err(format!("its pads must be two numbers from 0 to {MOST} for each axis, got {pads:?}"));
    }
    let mut all = [[0; 2]; 4];
    for (at, axis) in axes.iter().enumerate() {
        let axis =
            usize::try_from(if *axis < 0 { axis.saturating_add(4) } else { *axis }).ok().filter(|axis| *axis < 4);
        all[axis.ok_or("its axes are not those of images")?] = [before[at] as usize, after[at] as usize];
    }
    let mode = node.text("mode");
    let zeros = ["", "constant"].contains(&mode)
        && node.float("value", 0.0) == 0.0
        && build.given(node, 2)?.is_none_or(|value| value.scalar() == Some(0.0));
    if !zeros && mode != "reflect" {
        return Err("it pads with other values than zeros or mirrored cells".into());
    }
    match all {
        [[0, 0], [0, 0], down, across] => {
            let x = build.image(node, 0)?;
            let cells = [down[0], across[0], down[1], across[1]];
            Ok(if cells == [0; 4] { Value::Tensor(x) } else { Value::Padded(x, Padding { cells, mirrored: !zeros }) })
        }
        [[0, 0], channels, [0, 0], [0, 0]] if zeros => shortcut(build, node, channels),
        _ => Err(format!("pads {pads:?}; supported is padding of height and width, or of channels")),
    }
}

/// The shortcut without parameters: channels of zeros on both sides.
fn shortcut<'a>(build: &mut Build<'a>, node: &Node<'a>, [before, after]: [usize; 2]) -> Result<Value, String> {
    let (x, stride) = match build.value(node, 0)? {
        Value::Strided(view, stride) => (view, stride),
        _ => (build.image(node, 0)?, 1),
    };
    let shape: Shape = build.shapes[x.id.0];
    let shortcut = Shortcut { out_channels: shape.c + before + after, stride };
    if shortcut.before(shape) != before || x.layout != Layout::Image {
        return Err(format!(
            "{before} channels of zeros before and {after} behind; supported is the same number on both sides"
        ));
    }
    let id = build.layer((None, node.label()), shortcut, &[x.id], Vec::new())?;
    Ok(Value::Tensor(View { id, ..x }))
}
