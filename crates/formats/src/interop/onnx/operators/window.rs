//! Pad and Slice: padding and strides that become part of the following layer.

use net::Channels;

use crate::interop::onnx::axes::{Size, has_images, index_within};
use crate::interop::onnx::build::{Build, Fill, Layout, Operator, Padding, Value, View};
use crate::interop::onnx::fold::range;
use crate::interop::onnx::graph::Node;
use crate::interop::ops::shortcut::shortcut;

pub(super) const OPERATORS: &[Operator] = &[("Pad", 4, pad), ("Slice", 5, slice)];

/// Largest number of cells on one side.
const MOST: i64 = 1 << 12;

/// Returns the dimension, 0 to 3, that an axis stands for. Negative axes count from the end.
fn dimension(axis: i64) -> Result<usize, String> {
    index_within(axis, 4).ok_or_else(|| format!("its axes contain {axis}; expected -4 to 3"))
}

/// Returns one number per dimension: the numbers in `given` for the dimensions in `axes`, and those in `usual` for the
/// others.
fn each(given: Option<Vec<i64>>, axes: &[i64], usual: [i64; 4]) -> Result<[i64; 4], String> {
    let Some(given) = given else { return Ok(usual) };
    let mut all = usual;
    if given.len() != axes.len() {
        return Err(format!(
            "the number of its starts, ends or steps is {}, but the number of its axes is {}",
            given.len(),
            axes.len()
        ));
    }
    for (axis, number) in axes.iter().zip(given) {
        all[dimension(*axis)?] = number;
    }
    Ok(all)
}

/// Reads a slice: every n-th row and column, a range of channels, a crop, or a range of sizes.
fn slice<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["axes", "ends", "starts"])?;
    if let Value::Sizes(sizes) = build.value(node, 0)? {
        return of_sizes(build, node, &sizes);
    }
    let x = match build.computed(node, 0)? {
        Value::Arranged(..) | Value::Padded(..) | Value::Tensor(View { layout: Layout::Tokens | Layout::Last, .. }) => {
            return of_axes(build, node);
        }
        _ => build.image(node, 0)?,
    };
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
    let steps = each(build.numbers(node, 4, "steps")?, &axes, [1; 4])?;
    let all = starts == [0; 4]
        && ends[1..].iter().zip(&whole[1..]).all(|(end, size)| end >= size)
        && ends[0] >= i64::from(i32::MAX);
    let whole_plane = starts[2..] == [0, 0] && ends[2..].iter().zip(&whole[2..]).all(|(end, size)| end >= size);
    match steps {
        [1, 1, 1, 1] if all => Ok(Value::Tensor(x)),
        [1, 1, down, across] if all && down == across && (1..=MOST).contains(&down) => {
            Ok(Value::Strided(x, down as usize))
        }
        [1, 1, 1, 1] if starts[0] == 0 && ends[0] >= whole[0].min(i64::from(i32::MAX)) && whole_plane => {
            let part = range(starts[1], ends[1], shape.c);
            let channels = Channels::range(part.start, part.len());
            build.layer_on((None, node.label()), channels, x, Vec::new()).map(Value::Tensor)
        }
        [1, 1, 1, 1] if starts[..2] == [0, 0] && ends[0] >= i64::from(i32::MAX) && ends[1] >= whole[1] => {
            let (rows, columns) = (range(starts[2], ends[2], shape.h), range(starts[3], ends[3], shape.w));
            cropped(build, node, x, [rows.start, columns.start, shape.h - rows.end, shape.w - columns.end], [0; 4])
        }
        _ => Err(format!(
            "it takes a part of {shape} (from {starts:?} in steps of {steps:?}); only parts of the channels, crops, and rows and columns \
             at a regular step, are supported"
        )),
    }
}

/// Reads a slice of a tensor that is not an image.
fn of_axes<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    let (id, mut own) = build.axes(node, 0)?;
    let list = |at: usize, name: &str| build.numbers(node, at, name);
    let (Some(starts), Some(ends)) = (list(1, "starts")?, list(2, "ends")?) else {
        return Err("it has no starts or no ends".into());
    };
    let axes = list(3, "axes")?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = list(4, "steps")?.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] || steps.iter().any(|step| *step < 1) {
        return Err("its starts, ends and axes must have equal lengths, and its steps must be at least 1".into());
    }
    for (((start, end), axis), step) in starts.into_iter().zip(ends).zip(axes).zip(steps) {
        let is_whole = (start, step) == (0, 1) && end >= i64::from(i32::MAX);
        if build.images().is_none() && has_images(&own.axes[own.at(axis)?]) && !is_whole {
            return Err("it takes a part of the images; a network must treat all images alike".into());
        }
        let part = range(start, end, own.size(axis)?);
        let step = usize::try_from(step).unwrap_or(usize::MAX);
        let sliced = if step == 1 { own.clone().sliced(axis, part.clone()) } else { Err(String::new()) };
        own = match sliced {
            Ok(sliced) => sliced,
            Err(why) => {
                build.take(size_of::<u32>() * own.count()?)?;
                let picked = own.picked(axis, &part.step_by(step).collect::<Vec<usize>>());
                picked.map_err(|picked| if why.is_empty() { picked } else { why })?
            }
        };
    }
    build.settled(node.label(), id, own)
}

/// Largest number of cells that a crop removes on one side. It limits the kernel size of the convolution.
const MOST_CROPPED: usize = 8;

/// Removes cells at the edges and adds zeros.
fn cropped<'a>(
    build: &mut Build<'a>,
    node: &Node<'a>,
    x: View,
    crop: [usize; 4],
    zeros: [usize; 4],
) -> Result<Value, String> {
    if crop.iter().any(|cells| *cells > MOST_CROPPED) {
        return Err(format!(
            "it crops {crop:?} cells at top, left, bottom and right, but at most {MOST_CROPPED} are supported"
        ));
    }
    let id = build.framed(node.label(), x.id, crop, zeros)?;
    Ok(Value::Tensor(View { id, ..x }))
}

/// Reads a slice of a tensor's sizes.
fn of_sizes<'a>(build: &Build<'a>, node: &Node<'a>, sizes: &[Size]) -> Result<Value, String> {
    let one = |at: usize, name: &str| match build.numbers(node, at, name)?.as_deref() {
        Some([number]) => Ok(*number),
        _ => Err::<_, String>("its bounds must be single numbers".into()),
    };
    let part = range(one(1, "starts")?, one(2, "ends")?, sizes.len());
    if Build::has(node, 4) && build.constant(node, 4)?.scalar() != Some(1.0) {
        return Err("it selects sizes of a tensor with a step other than 1".into());
    }
    Ok(Value::sizes(sizes[part].to_vec()))
}

fn pad<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["mode", "pads", "value"])?;
    let pads = build.numbers(node, 1, "pads")?.ok_or("it has no pads")?;
    let axes = build.numbers(node, 3, "axes")?.unwrap_or_else(|| (0..4).collect());
    let (before, after) = pads.split_at(pads.len() / 2);
    if pads.len() != 2 * axes.len() || pads.iter().any(|n| !(-MOST..=MOST).contains(n)) {
        return Err(format!("its pads must be two numbers from -{MOST} to {MOST} for each axis, got {pads:?}"));
    }
    let mut all = [[0; 2]; 4];
    for (at, axis) in axes.iter().enumerate() {
        all[dimension(*axis)?] = [before[at], after[at]];
    }
    let value = match build.given(node, 2)? {
        Some(value) => value.scalar().ok_or("its value must be a single number")?,
        None => node.float("value", 0.0).into(),
    };
    let fill = match node.text("mode") {
        "reflect" => Fill::Mirrored,
        "" | "constant" if value == 0.0 => Fill::Zeros,
        "" | "constant" if value <= f32::MIN.into() => Fill::Lowest,
        mode => {
            let mode = if mode.is_empty() { "constant" } else { mode };
            return Err(format!(
                "it pads with mode \"{mode}\" and value {value}; expected zeros, -infinity or mirrored cells"
            ));
        }
    };
    let added = |cells: i64| cells.max(0) as usize;
    let last = match build.value(node, 0)? {
        Value::Tensor(x) | Value::Function(x, _) | Value::Padded(x, _) => x.layout == Layout::Last,
        _ => false,
    };
    match if last { [all[0], all[3], all[1], all[2]] } else { all } {
        [[0, 0], [0, 0], down, across] => {
            let x = if last { build.view(node, 0)? } else { build.image(node, 0)? };
            let sides = [down[0], across[0], down[1], across[1]];
            let (cells, crop) = (sides.map(added), sides.map(|cells| added(-cells)));
            match fill {
                _ if sides == [0; 4] => Ok(Value::Tensor(x)),
                _ if crop == [0; 4] => Ok(Value::Padded(x, Padding { cells, fill })),
                Fill::Zeros => cropped(build, node, x, crop, cells),
                _ => Err(format!("its pads {pads:?} are negative, which is supported only for zeros")),
            }
        }
        [[0, 0], channels, [0, 0], [0, 0]]
            if !last && fill == Fill::Zeros && channels.iter().all(|cells| *cells >= 0) =>
        {
            shortcut(build, node, channels.map(added))
        }
        _ => Err(format!("pads {pads:?} are not supported, only padding of height and width, or of channels")),
    }
}
