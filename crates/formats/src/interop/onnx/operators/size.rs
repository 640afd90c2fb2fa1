//! Sizes of tensors, from which exporters compute the target shape of a reshape.

use crate::interop::onnx::axes::{Size, index_within};
use crate::interop::onnx::build::{Build, Operator, Value};
use crate::interop::onnx::fold::range;
use crate::interop::onnx::function::Binary;
use crate::interop::onnx::graph::Node;

pub(super) const OPERATORS: &[Operator] = &[("Equal", 2, equal), ("Shape", 1, shape), ("Where", 3, chosen)];

/// Returns the sizes of a tensor. The number of images is unknown.
fn shape<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["end", "start"])?;
    let all: Vec<Size> = match build.computed(node, 0)? {
        Value::Sizes(sizes) => vec![Size::Number(sizes.len() as i64)],
        Value::Arranged(_, axes) => axes.sizes(),
        Value::Scores(scores) => scores.axes.sizes(),
        Value::Padded(..) => build.axes(node, 0)?.1.sizes(),
        _ => {
            let view = build.view(node, 0)?;
            let rest = view.layout.dims(build.shapes[view.id.0]);
            [Size::N].into_iter().chain(rest.into_iter().map(|n| Size::Number(n as i64))).collect()
        }
    };
    let part = range(node.int("start", 0), node.int("end", i64::MAX), all.len());
    Ok(Value::sizes(all[part].to_vec()))
}

/// Selects one or more sizes.
pub(super) fn gathered<'a>(build: &Build<'a>, node: &Node<'a>, sizes: &[Size]) -> Result<Value, String> {
    let at = build.listed(node, 1)?;
    let one = |at: i64| {
        index_within(at, sizes.len())
            .map(|at| sizes[at])
            .ok_or_else(|| format!("its index {at} is out of range: the tensor has {} sizes", sizes.len()))
    };
    let picked = at.ints().into_iter().map(one).collect::<Result<Vec<_>, _>>()?;
    Ok(match (at.dims.as_slice(), picked.as_slice()) {
        ([], [one]) => Value::size(*one),
        ([_], _) => Value::sizes(picked),
        (shape, _) => return Err(format!("its indices must be a number or a list, got the shape {shape:?}")),
    })
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
                all.extend(constant.ints().into_iter().map(Size::Number));
            }
            _ => return Err("it can join only tensors or sizes of tensors".into()),
        }
        if all.len() > MOST_SIZES {
            return Err(format!("it joins more than {MOST_SIZES} sizes, but no tensor has as many"));
        }
    }
    Ok(Value::sizes(all))
}

/// Sizes or integers, and true if they are a list. Otherwise it is a single one.
type Numbers = (Vec<Size>, bool);

/// Returns the sizes or integers of an input. Returns `None` for other values.
fn list<'a>(build: &Build<'a>, node: &Node<'a>, at: usize) -> Result<Option<Numbers>, String> {
    Ok(match build.value(node, at)? {
        Value::Sizes(sizes) => Some((sizes, true)),
        Value::Size(size) => Some((vec![size], false)),
        Value::Constant(constant) if constant.dims.len() <= 1 && constant.values.len() <= MOST_SIZES => {
            Some((constant.ints().into_iter().map(Size::Number).collect(), constant.dims.len() == 1))
        }
        _ => None,
    })
}

/// Applies a function to each size in lists of equal length. A list of one size is repeated.
fn each<const N: usize>(lists: [Numbers; N], f: impl Fn([Size; N]) -> Result<Size, String>) -> Result<Value, String> {
    let length = lists.iter().map(|(sizes, _)| sizes.len()).max().unwrap_or(0);
    if lists.iter().any(|(sizes, _)| ![1, length].contains(&sizes.len())) {
        return Err("it combines lists of sizes with different lengths".into());
    }
    let one = |at: usize| f(std::array::from_fn(|list| lists[list].0[if lists[list].0.len() == 1 { 0 } else { at }]));
    let made = (0..length).map(one).collect::<Result<Vec<_>, _>>()?;
    Ok(match (lists.iter().any(|(_, list)| *list), made.as_slice()) {
        (false, [size]) => Value::size(*size),
        _ => Value::sizes(made),
    })
}

/// Applies a binary operator to sizes. Returns `None` if no input is a size.
pub(super) fn binary<'a>(build: &Build<'a>, node: &Node<'a>, of: Binary) -> Result<Option<Value>, String> {
    let is_size = |at| Ok::<_, String>(matches!(build.value(node, at)?, Value::Sizes(_) | Value::Size(_)));
    if node.inputs.len() != 2 || !(is_size(0)? || is_size(1)?) {
        return Ok(None);
    }
    let (Some(a), Some(b)) = (list(build, node, 0)?, list(build, node, 1)?) else {
        return Err("it combines the size of a tensor and a tensor".into());
    };
    let made = |[a, b]: [Size; 2]| {
        let times = |times: Option<i64>| times.map_or(Size::Unknown, Size::Images);
        let (a, b) = match (of, a, b) {
            (_, Size::Number(a), Size::Number(b)) => (a, b),
            (Binary::Mul, Size::Images(k), Size::Number(n)) | (Binary::Mul, Size::Number(n), Size::Images(k)) => {
                return Ok(times(k.checked_mul(n)));
            }
            (Binary::Div, Size::Images(k), Size::Number(n)) if k.checked_rem(n) == Some(0) => {
                return Ok(times(k.checked_div(n)));
            }
            (Binary::Div, Size::Images(k), Size::Images(n)) if k.checked_rem(n) == Some(0) => (k, n),
            (Binary::Add | Binary::Sub, size, Size::Number(0)) => return Ok(size),
            _ => return Ok(Size::Unknown),
        };
        let result = match of {
            Binary::Add => a.checked_add(b),
            Binary::Sub => a.checked_sub(b),
            Binary::Mul => a.checked_mul(b),
            Binary::Div => a.checked_div(b),
            Binary::Max => Some(a.max(b)),
            Binary::Min => Some(a.min(b)),
            Binary::Pow => None,
        };
        result.map(Size::Number).ok_or_else(|| format!("its result for the sizes {a} and {b} is not an int64"))
    };
    each([a, b], made).map(Some)
}

/// Compares sizes. Graphs compare them with -1, which the unknown number of images never is.
fn equal<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&[])?;
    match (list(build, node, 0)?, list(build, node, 1)?) {
        (Some(a), Some(b)) => each([a, b], |[a, b]| Ok(Size::Number(i64::from(a == b)))),
        _ => Err("it compares tensors of the network; only sizes of tensors are supported".into()),
    }
}

fn chosen<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&[])?;
    match [list(build, node, 0)?, list(build, node, 1)?, list(build, node, 2)?] {
        [Some(condition), Some(a), Some(b)] => {
            each([condition, a, b], |[condition, a, b]| Ok(if condition == Size::Number(0) { b } else { a }))
        }
        _ => Err("it chooses between tensors of the network; only sizes of tensors are supported".into()),
    }
}
