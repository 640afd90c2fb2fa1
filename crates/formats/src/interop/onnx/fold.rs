//! Constant folding: computes nodes whose inputs are all constants, before the importer tries to read them as layers.
//!
//! Exporters compute weights and shapes in the graph, for example zeros with `ConstantOfShape` or the shape of a bias with `Reshape`.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::axes::{axis_index, axis_order, from_front};
use super::build::{Build, Value};
use super::graph::Node;
use super::tensor::{Constant, DEEPEST, Values, element_count};

/// Computes one operator from its inputs. An omitted input is `None`.
type Fold = fn(&Node<'_>, &[Option<Rc<Constant>>]) -> Result<Constant, String>;

/// The operators that can be folded.
const FOLDS: &[(&str, Fold)] = &[
    ("Abs", |_, inputs| map(first(inputs)?, f64::abs, i64::checked_abs)),
    ("Add", |_, inputs| binary(inputs, |a, b| a + b, i64::checked_add)),
    ("Ceil", |_, inputs| map(first(inputs)?, f64::ceil, Some)),
    ("Clip", clip),
    ("Concat", concat),
    ("ConstantOfShape", filled),
    ("Div", |_, inputs| binary(inputs, |a, b| a / b, i64::checked_div)),
    ("Equal", |_, inputs| binary(inputs, |a, b| f64::from(a == b), |a, b| Some((a == b).into()))),
    ("Exp", |_, inputs| map(first(inputs)?, f64::exp, |_| None)),
    ("Expand", expand),
    ("Flatten", flatten),
    ("Floor", |_, inputs| map(first(inputs)?, f64::floor, Some)),
    ("Gather", gather),
    ("GatherND", gather_vectors),
    ("MatMul", product_of_matrices),
    ("Max", |_, inputs| binary(inputs, f64::max, |a, b| Some(a.max(b)))),
    ("Min", |_, inputs| binary(inputs, f64::min, |a, b| Some(a.min(b)))),
    ("Mod", modulo),
    ("Mul", |_, inputs| binary(inputs, |a, b| a * b, i64::checked_mul)),
    ("Neg", |_, inputs| map(first(inputs)?, |x| -x, i64::checked_neg)),
    ("Not", |_, inputs| map(first(inputs)?, |x| f64::from(x == 0.0), |n| Some((n == 0).into()))),
    ("Pow", |_, inputs| binary(inputs, f64::powf, |a, b| a.checked_pow(b.try_into().ok()?))),
    ("Range", counted),
    ("Reciprocal", |_, inputs| map(first(inputs)?, f64::recip, |_| None)),
    ("ReduceProd", product),
    ("Relu", |_, inputs| map(first(inputs)?, |x| x.max(0.0), |n| Some(n.max(0)))),
    ("Reshape", reshape),
    ("ScatterND", scatter),
    ("Shape", shape),
    ("Sigmoid", |_, inputs| map(first(inputs)?, |x| 1.0 / (1.0 + (-x).exp()), |_| None)),
    ("Slice", slice),
    ("Sqrt", |_, inputs| map(first(inputs)?, f64::sqrt, |_| None)),
    ("Squeeze", squeeze),
    ("Sub", |_, inputs| binary(inputs, |a, b| a - b, i64::checked_sub)),
    ("Transpose", transpose),
    ("Unsqueeze", unsqueeze),
    ("Where", chosen),
];

/// Operators that may expand their first input into a list of elements. Any operator may expand its later inputs.
const LISTING: [&str; 4] = ["ConstantOfShape", "ReduceProd", "ScatterND", "Slice"];

/// Returns true if [`fold`] supports the operator.
pub(super) fn is_folded(op: &str) -> bool {
    FOLDS.iter().any(|(name, _)| *name == op)
}

/// Computes a node if its operator is in [`FOLDS`], it has inputs, and all of them are constants. Otherwise returns `None`.
///
/// # Errors
/// Fails if the operator does not accept the inputs, or if the result exceeds the memory limit for the file.
pub(super) fn fold<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Option<Value>, String> {
    let Some((_, compute)) = FOLDS.iter().find(|(name, _)| *name == node.op) else { return Ok(None) };
    let mut inputs = Vec::with_capacity(node.inputs.len());
    for at in 0..node.inputs.len() {
        inputs.push(match Build::has(node, at) {
            false => None,
            true => match build.value(node, at)? {
                Value::Constant(constant) => Some(constant),
                _ => return Ok(None),
            },
        });
    }
    if inputs.is_empty() {
        return Ok(None);
    }
    // check the memory limit before values are allocated: first for repeated values that the operator may expand
    for (at, constant) in inputs.iter().enumerate() {
        if let Some(Values::Same(_, count)) = constant.as_ref().map(|constant| &constant.values)
            && (at > 0 || LISTING.contains(&node.op))
        {
            build.take(count.saturating_mul(2 * size_of::<i64>()))?;
        }
    }
    let expected = size_of::<f32>().saturating_mul(elements_made(node, &inputs)?);
    build.take(expected)?;
    let constant = compute(node, &inputs)?;
    elements(&constant.dims)?;
    match constant.values {
        // it counts when it becomes a weight, but its reader allocates it before that
        Values::Same(_, count) => build.fits(size_of::<f32>().saturating_mul(count))?,
        _ => build.take(constant.values.bytes().saturating_sub(expected))?,
    }
    Ok(Some(Value::Constant(Rc::new(constant))))
}

/// Returns the number of elements in the result, or an upper bound, for operators that can return much more than their inputs. Returns 0
/// for other operators.
fn elements_made(node: &Node<'_>, inputs: &[Option<Rc<Constant>>]) -> Result<usize, String> {
    Ok(match node.op {
        "Expand" => elements(&broadcast(&first(inputs)?.dims, &sizes(&input(inputs, 1)?.ints())?)?)?,
        "Add" | "Div" | "Equal" | "Max" | "Min" | "Mod" | "Mul" | "Pow" | "Sub" if inputs.len() == 2 => {
            elements(&broadcast(&first(inputs)?.dims, &input(inputs, 1)?.dims)?)?
        }
        "Concat" => inputs.iter().flatten().fold(0, |sum: usize, part| sum.saturating_add(part.values.len())),
        "Gather" => gathered_elements(first(inputs)?, input(inputs, 1)?, node.int("axis", 0))?,
        "GatherND" => gathered_elements(first(inputs)?, input(inputs, 1)?, 0)?,
        "Where" => {
            let dims = broadcast(&first(inputs)?.dims, &input(inputs, 1)?.dims)?;
            elements(&broadcast(&dims, &input(inputs, 2)?.dims)?)?
        }
        "Range" => count(inputs)?.saturating_mul(2),
        // multiplications count against the memory budget, so that a small file cannot take a lot of time
        "MatMul" => {
            let columns = input(inputs, 1)?.dims.last().copied().unwrap_or(1);
            first(inputs)?.values.len().saturating_mul(columns)
        }
        _ => 0,
    })
}

fn first(inputs: &[Option<Rc<Constant>>]) -> Result<&Constant, String> {
    input(inputs, 0)
}

fn input(inputs: &[Option<Rc<Constant>>], at: usize) -> Result<&Constant, String> {
    inputs.get(at).and_then(Option::as_deref).ok_or_else(|| format!("it has no input number {}", at + 1))
}

/// Returns the integers of input number `at`. In older opsets, they are in the attribute `name` instead. Returns `None` if the node has
/// neither.
fn numbers(node: &Node<'_>, inputs: &[Option<Rc<Constant>>], at: usize, name: &str) -> Option<Vec<i64>> {
    let given = inputs.get(at).and_then(Option::as_deref).map(Constant::ints);
    given.or_else(|| node.ints(name).map(<[i64]>::to_vec))
}

/// Converts integers to the sizes of a tensor.
fn sizes(ints: &[i64]) -> Result<Vec<usize>, String> {
    let sizes: Option<Vec<usize>> = ints.iter().map(|n| usize::try_from(*n).ok()).collect();
    sizes.filter(|sizes| sizes.len() <= DEEPEST).ok_or_else(|| match ints.len() > DEEPEST {
        true => format!("a shape with {} dimensions is not supported, only up to {DEEPEST}", ints.len()),
        false => format!("the shape {ints:?} has a negative size"),
    })
}

fn elements(dims: &[usize]) -> Result<usize, String> {
    element_count(dims).ok_or_else(|| format!("the shape {dims:?} has too many elements"))
}

/// Gathers the elements of `constant` at the given indices.
fn picked(constant: &Constant, dims: Vec<usize>, places: impl Iterator<Item = usize>) -> Constant {
    let values = match &constant.values {
        Values::Floats(values) => Values::Floats(places.map(|at| values[at]).collect()),
        Values::Ints(values) => Values::Ints(places.map(|at| values[at]).collect()),
        Values::Same(value, _) => Values::Same(*value, dims.iter().product()),
    };
    Constant { dims, values }
}

/// Reshapes the values. The number of elements must not change.
fn shaped(constant: &Constant, dims: Vec<usize>) -> Result<Constant, String> {
    match elements(&dims)? == constant.values.len() && dims.len() <= DEEPEST {
        true => Ok(Constant { dims, values: constant.values.clone() }),
        false => Err(format!("a weight of the shape {:?} cannot be reshaped to {dims:?}", constant.dims)),
    }
}

/// Applies a function to each value. `of_ints` computes the function exactly for integers, and returns `None` if the
/// result is not an i64.
fn map(x: &Constant, f: impl Fn(f64) -> f64, of_ints: impl Fn(i64) -> Option<i64>) -> Result<Constant, String> {
    let values = match &x.values {
        Values::Floats(values) => Values::Floats(values.iter().map(|x| f(f64::from(*x)) as f32).collect()),
        Values::Ints(values) => {
            let of_int = |n: i64| {
                let wrong = || format!("its result for the integer {n} is not an int64. Cast the input to float32");
                of_ints(n).ok_or_else(wrong)
            };
            Values::Ints(values.iter().map(|n| of_int(*n)).collect::<Result<_, _>>()?)
        }
        Values::Same(value, count) => Values::Same(f(f64::from(*value)) as f32, *count),
    };
    Ok(Constant { dims: x.dims.clone(), values })
}

/// Returns the shape that two shapes broadcast to.
fn broadcast(a: &[usize], b: &[usize]) -> Result<Vec<usize>, String> {
    let rank = a.len().max(b.len());
    let size = |dims: &[usize], at: usize| (at + dims.len()).checked_sub(rank).map_or(1, |at| dims[at]);
    (0..rank)
        .map(|at| match (size(a, at), size(b, at)) {
            (n, m) if n == m || m == 1 => Ok(n),
            (1, m) => Ok(m),
            _ => Err(format!("weights of the shapes {a:?} and {b:?} cannot be broadcast to one shape")),
        })
        .collect()
}

/// Returns the source index for each element when a tensor of shape `from` is broadcast to shape `to`.
fn places(from: &[usize], to: &[usize]) -> impl Iterator<Item = usize> + use<> {
    let mut strides = vec![0; to.len()];
    let mut stride = 1;
    for (at, n) in from.iter().enumerate().rev() {
        strides[at + to.len() - from.len()] = if *n == 1 { 0 } else { stride };
        stride *= n;
    }
    walk(to.to_vec(), strides)
}

/// Returns the offsets of all elements of a tensor with this shape and these strides, in C order.
fn walk(dims: Vec<usize>, strides: Vec<usize>) -> impl Iterator<Item = usize> {
    let count: usize = dims.iter().product();
    (0..count).map(move |mut element| {
        let mut place = 0;
        for (n, stride) in dims.iter().zip(&strides).rev() {
            place += element % n * stride;
            element /= n;
        }
        place
    })
}

fn binary(
    inputs: &[Option<Rc<Constant>>],
    f: impl Fn(f64, f64) -> f64,
    of_ints: impl Fn(i64, i64) -> Option<i64>,
) -> Result<Constant, String> {
    if inputs.len() != 2 {
        return Err(format!("it has {}; two are supported", base::text::plural(inputs.len(), "input")));
    }
    let (a, b) = (first(inputs)?, input(inputs, 1)?);
    let dims = broadcast(&a.dims, &b.dims)?;
    let pairs = places(&a.dims, &dims).zip(places(&b.dims, &dims));
    let values = match (&a.values, &b.values) {
        (Values::Ints(a), Values::Ints(b)) => {
            let ints: Option<Vec<i64>> = pairs.map(|(i, j)| of_ints(a[i], b[j])).collect();
            Values::Ints(ints.ok_or("its integer arithmetic overflows or divides by zero")?)
        }
        (a, b) => Values::Floats(pairs.map(|(i, j)| f(a.float(i).into(), b.float(j).into()) as f32).collect()),
    };
    Ok(Constant { dims, values })
}

/// Computes the remainder, which has the sign of the divisor.
fn modulo(node: &Node<'_>, inputs: &[Option<Rc<Constant>>]) -> Result<Constant, String> {
    if node.int("fmod", 0) != 0 {
        return Err("fmod=1 is not supported".into());
    }
    binary(inputs, |a, b| a - b * (a / b).floor(), |a, b| a.checked_rem_euclid(b).filter(|_| b > 0))
}

fn clip(node: &Node<'_>, inputs: &[Option<Rc<Constant>>]) -> Result<Constant, String> {
    let given = |at: usize| inputs.get(at).and_then(Option::as_deref).filter(|bound| bound.values.len() == 1);
    let float = |at: usize, name: &str, usual: f64| {
        let stated = || if node.has(name) { f64::from(node.float(name, 0.0)) } else { usual };
        given(at).and_then(Constant::scalar).unwrap_or_else(stated)
    };
    let int = |at: usize, usual: i64| given(at).map_or(usual, |bound| bound.ints()[0]);
    let (least, most) = (float(1, "min", f64::NEG_INFINITY), float(2, "max", f64::INFINITY));
    let (least_int, most_int) = (int(1, i64::MIN), int(2, i64::MAX));
    map(first(inputs)?, |x| x.max(least).min(most), |n| Some(n.max(least_int).min(most_int)))
}

fn product(node: &Node<'_>, inputs: &[Option<Rc<Constant>>]) -> Result<Constant, String> {
    node.only(&["axes", "keepdims", "noop_with_empty_axes"])?;
    let x = first(inputs)?;
    let axes = numbers(node, inputs, 1, "axes").unwrap_or_default();
    let axes = axes.into_iter().map(|at| axis_index(at, x.dims.len())).collect::<Result<BTreeSet<usize>, _>>()?;
    if (!axes.is_empty() && axes.len() != x.dims.len()) || (axes.is_empty() && node.int("noop_with_empty_axes", 0) != 0)
    {
        return Err("products over some of the axes are not supported, only products over all axes".into());
    }
    let product = x.ints().iter().try_fold(1i64, |product, n| product.checked_mul(*n));
    let product = product.ok_or("the product of the integers in its input is not an int64")?;
    let dims = if node.int("keepdims", 1) != 0 { vec![1; x.dims.len()] } else { Vec::new() };
    Ok(Constant { dims, values: Values::Ints(vec![product]) })
}

fn filled(node: &Node<'_>, inputs: &[Option<Rc<Constant>>]) -> Result<Constant, String> {
    node.only(&["value"])?;
    let dims = sizes(&first(inputs)?.ints())?;
    let count = elements(&dims)?;
    let value = node.tensor("value").map(|value| value.constant()).transpose()?;
    let values = match value.as_ref().map(|value| &value.values) {
        None => Values::Same(0.0, count),
        Some(Values::Floats(values)) if values.len() == 1 => Values::Same(values[0], count),
        Some(Values::Ints(values)) if values.len() == 1 && count <= DEEPEST => Values::Ints(vec![values[0]; count]),
        Some(Values::Ints(values)) if values.len() == 1 => Values::Same(values[0] as f32, count),
        Some(values) => return Err(format!("its value must be a single number, got {} numbers", values.len())),
    };
    Ok(Constant { dims, values })
}

fn expand(_: &Node<'_>, inputs: &[Option<Rc<Constant>>]) -> Result<Constant, String> {
    let x = first(inputs)?;
    let dims = broadcast(&x.dims, &sizes(&input(inputs, 1)?.ints())?)?;
    let places = places(&x.dims, &dims);
    Ok(picked(x, dims, places))
}

fn reshape(node: &Node<'_>, inputs: &[Option<Rc<Constant>>]) -> Result<Constant, String> {
    node.only(&["allowzero", "shape"])?;
    let x = first(inputs)?;
    let wanted = numbers(node, inputs, 1, "shape").ok_or("it has no shape")?;
    let copies = node.int("allowzero", 0) == 0;
    let copied = |(at, n): (usize, i64)| match n {
        0 if copies => x.dims.get(at).map_or(0, |n| *n as i64),
        n => n,
    };
    let wanted: Vec<i64> = wanted.into_iter().enumerate().map(copied).collect();
    let known = sizes(&wanted.iter().copied().filter(|n| *n != -1).collect::<Vec<_>>())?;
    let rest = x.values.len().checked_div(elements(&known)?).unwrap_or(0);
    shaped(x, wanted.iter().map(|n| if *n == -1 { rest } else { *n as usize }).collect())
}

fn flatten(node: &Node<'_>, inputs: &[Option<Rc<Constant>>]) -> Result<Constant, String> {
    let x = first(inputs)?;
    let at = node.int("axis", 1);
    let at = if at == x.dims.len() as i64 { x.dims.len() } else { axis_index(at, x.dims.len())? };
    let (rows, columns) = x.dims.split_at(at);
    shaped(x, vec![elements(rows)?, elements(columns)?])
}

fn transpose(node: &Node<'_>, inputs: &[Option<Rc<Constant>>]) -> Result<Constant, String> {
    node.only(&["perm"])?;
    let x = first(inputs)?;
    let rank = x.dims.len();
    let order = node.ints("perm").map_or_else(|| Ok((0..rank).rev().collect()), |perm| axis_order(perm, rank))?;
    let mut strides = vec![1; rank];
    (0..rank.saturating_sub(1)).rev().for_each(|at| strides[at] = strides[at + 1] * x.dims[at + 1]);
    let dims: Vec<usize> = order.iter().map(|at| x.dims[*at]).collect();
    let places = walk(dims.clone(), order.iter().map(|at| strides[*at]).collect());
    Ok(picked(x, dims, places))
}

fn concat(node: &Node<'_>, inputs: &[Option<Rc<Constant>>]) -> Result<Constant, String> {
    node.only(&["axis"])?;
    let parts: Vec<&Constant> = (0..inputs.len()).map(|at| input(inputs, at)).collect::<Result<_, _>>()?;
    let at = axis_index(node.int("axis", 0), parts[0].dims.len())?;
    let others = |part: &Constant| [&part.dims[..at], &part.dims[at + 1..]].concat();
    if let Some(part) = parts.iter().find(|part| part.dims.len() <= at || others(part) != others(parts[0])) {
        return Err(format!(
            "weights of the shapes {:?} and {:?} cannot be joined along axis {at}",
            parts[0].dims, part.dims
        ));
    }
    let mut dims = parts[0].dims.clone();
    dims[at] = parts.iter().map(|part| part.dims[at]).sum();
    let rows: usize = dims[..at].iter().product();
    let values = match parts.iter().all(|part| matches!(part.values, Values::Ints(_))) {
        true => Values::Ints(join_rows(rows, &parts, Values::int)),
        false => Values::Floats(join_rows(rows, &parts, Values::float)),
    };
    Ok(Constant { dims, values })
}

/// Joins matrices with `rows` rows next to each other. Each matrix is stored row by row.
fn join_rows<T>(rows: usize, parts: &[&Constant], element: fn(&Values, usize) -> T) -> Vec<T> {
    let mut joined = Vec::new();
    for row in 0..rows {
        for Constant { values, .. } in parts {
            let length = values.len() / rows;
            joined.extend((row * length..(row + 1) * length).map(|at| element(values, at)));
        }
    }
    joined
}

fn gather(node: &Node<'_>, inputs: &[Option<Rc<Constant>>]) -> Result<Constant, String> {
    node.only(&["axis"])?;
    gathered(first(inputs)?, input(inputs, 1)?, node.int("axis", 0))
}

/// Returns the number of elements that [`gathered`] returns.
fn gathered_elements(x: &Constant, at: &Constant, along: i64) -> Result<usize, String> {
    let size = x.dims[axis_index(along, x.dims.len())?];
    Ok(x.values.len().checked_div(size).unwrap_or(0).saturating_mul(at.values.len()))
}

fn gathered(x: &Constant, at: &Constant, along: i64) -> Result<Constant, String> {
    let along = axis_index(along, x.dims.len())?;
    let places: Vec<usize> =
        at.ints().iter().map(|place| axis_index(*place, x.dims[along])).collect::<Result<_, _>>()?;
    let inner: usize = x.dims[along + 1..].iter().product();
    let rows: usize = x.dims[..along].iter().product();
    let row = x.dims[along] * inner;
    let all = (0..rows).flat_map(|outer| places.iter().map(move |place| outer * row + place * inner));
    let dims = [&x.dims[..along], &at.dims, &x.dims[along + 1..]].concat();
    Ok(picked(x, dims, all.flat_map(|from| from..from + inner)))
}

/// Gathers along the first axis. The last dimension of the indices must be 1.
fn gather_vectors(node: &Node<'_>, inputs: &[Option<Rc<Constant>>]) -> Result<Constant, String> {
    node.only(&["batch_dims"])?;
    let at = input(inputs, 1)?;
    match at.dims.split_last() {
        Some((1, outer)) if node.int("batch_dims", 0) == 0 => gathered(first(inputs)?, &shaped(at, outer.to_vec())?, 0),
        _ => Err("only single indices along the first axis are supported".into()),
    }
}

/// Replaces parts of a tensor. The last dimension of `indices` is the number of axes that an index covers.
fn scatter(node: &Node<'_>, inputs: &[Option<Rc<Constant>>]) -> Result<Constant, String> {
    let (x, at, updates) = (first(inputs)?, input(inputs, 1)?, input(inputs, 2)?);
    let Some((depth, outer)) = at.dims.split_last().filter(|(depth, _)| **depth <= x.dims.len()) else {
        return Err(format!("its indices have the shape {:?} for a tensor of {:?}", at.dims, x.dims));
    };
    if node.has("reduction") && !["", "none"].contains(&node.text("reduction")) {
        return Err("only reduction=none is supported".into());
    }
    let (own, inner) = x.dims.split_at(*depth);
    let size = elements(inner)?;
    if updates.dims != [outer, inner].concat() {
        return Err(format!("its updates have the shape {:?}, expected {:?}", updates.dims, [outer, inner].concat()));
    }
    let (indices, mut values, updates) = (at.ints(), x.floats(), updates.floats());
    for (number, index) in indices.chunks(*depth.max(&1)).enumerate() {
        let mut place = 0;
        for (at, size) in index.iter().zip(own) {
            place = place * size + axis_index(*at, *size)?;
        }
        values[place * size..][..size].copy_from_slice(&updates[number * size..][..size]);
    }
    let values = match x.values {
        Values::Ints(_) => Values::Ints(values.into_iter().map(|value| value as i64).collect()),
        _ => Values::Floats(values),
    };
    Ok(Constant { dims: x.dims.clone(), values })
}

fn chosen(_: &Node<'_>, inputs: &[Option<Rc<Constant>>]) -> Result<Constant, String> {
    let [condition, a, b] = [first(inputs)?, input(inputs, 1)?, input(inputs, 2)?];
    let dims = broadcast(&broadcast(&condition.dims, &a.dims)?, &b.dims)?;
    let pairs = places(&a.dims, &dims).zip(places(&b.dims, &dims));
    let choices = places(&condition.dims, &dims).map(|at| condition.values.float(at) != 0.0).zip(pairs);
    let values = match (&a.values, &b.values) {
        (Values::Ints(a), Values::Ints(b)) => {
            Values::Ints(choices.map(|(choice, (i, j))| if choice { a[i] } else { b[j] }).collect())
        }
        (a, b) => {
            Values::Floats(choices.map(|(choice, (i, j))| if choice { a.float(i) } else { b.float(j) }).collect())
        }
    };
    Ok(Constant { dims, values })
}

/// Returns the number of integers in a range.
fn count(inputs: &[Option<Rc<Constant>>]) -> Result<usize, String> {
    let number = |at: usize| match &input(inputs, at)?.values {
        Values::Ints(values) if values.len() == 1 => Ok(i128::from(values[0])),
        _ => Err("only ranges of integers are supported".to_string()),
    };
    let (start, end, step) = (number(0)?, number(1)?, number(2)?);
    let length =
        if step > 0 { (end - start + step - 1).checked_div(step) } else { (start - end - step - 1).checked_div(-step) };
    usize::try_from(length.ok_or("its step is 0")?.max(0)).map_err(|e| e.to_string())
}

fn counted(_: &Node<'_>, inputs: &[Option<Rc<Constant>>]) -> Result<Constant, String> {
    let (start, step, count) = (first(inputs)?.ints()[0], input(inputs, 2)?.ints()[0], count(inputs)?);
    let values = (0..count as i64).map(|at| start.wrapping_add(at.wrapping_mul(step))).collect();
    Ok(Constant { dims: vec![count], values: Values::Ints(values) })
}

/// Multiplies a tensor and a matrix.
fn product_of_matrices(_: &Node<'_>, inputs: &[Option<Rc<Constant>>]) -> Result<Constant, String> {
    let (a, b) = (first(inputs)?, input(inputs, 1)?);
    let (Some((inner, outer)), [rows, columns]) = (a.dims.split_last(), &b.dims[..]) else {
        return Err("the second weight must be a matrix".into());
    };
    if inner != rows || *inner == 0 {
        return Err(format!("weights with the shapes {:?} and {:?} cannot be multiplied", a.dims, b.dims));
    }
    let [x, y] = [a, b].map(|matrix| move |at: usize| f64::from(matrix.values.float(at)));
    let dot = |row: usize, column: usize| -> f32 {
        (0..*inner).map(|at| x(row * inner + at) * y(at * columns + column)).sum::<f64>() as f32
    };
    let values = (0..a.values.len() / inner).flat_map(|row| (0..*columns).map(move |column| (row, column)));
    let values = values.map(|(row, column)| dot(row, column)).collect();
    Ok(Constant { dims: [outer, &[*columns]].concat(), values: Values::Floats(values) })
}

fn shape(node: &Node<'_>, inputs: &[Option<Rc<Constant>>]) -> Result<Constant, String> {
    node.only(&["end", "start"])?;
    let dims: Vec<i64> = first(inputs)?.dims.iter().map(|n| *n as i64).collect();
    let part = dims[range(node.int("start", 0), node.int("end", i64::MAX), dims.len())].to_vec();
    Ok(Constant { dims: vec![part.len()], values: Values::Ints(part) })
}

/// Converts a slice's start and end, which may be negative, to a range within `length`.
pub(super) fn range(start: i64, end: i64, length: usize) -> std::ops::Range<usize> {
    let place = |at: i64| from_front(at, length).clamp(0, length as i64) as usize;
    let (start, end) = (place(start), place(end));
    start..end.max(start)
}

fn slice(node: &Node<'_>, inputs: &[Option<Rc<Constant>>]) -> Result<Constant, String> {
    let x = first(inputs)?;
    let list = |at: usize, name: &str| numbers(node, inputs, at, name);
    let (Some(starts), Some(ends)) = (list(1, "starts"), list(2, "ends")) else {
        return Err("it has no starts or no ends".into());
    };
    let axes = list(3, "axes").unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = list(4, "steps").unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        let [ends, axes, steps] = [ends, axes, steps].map(|list| list.len());
        return Err(format!(
            "its starts, ends, axes and steps must have equal lengths, got {}, {ends}, {axes} and {steps}",
            starts.len()
        ));
    }
    let mut picks: Vec<Vec<usize>> = x.dims.iter().map(|n| (0..*n).collect()).collect();
    for (((start, end), along), step) in starts.into_iter().zip(ends).zip(axes).zip(steps) {
        let along = axis_index(along, x.dims.len())?;
        picks[along] = stepped(start, end, step, x.dims[along])?;
    }
    let dims: Vec<usize> = picks.iter().map(Vec::len).collect();
    let places = (0..dims.iter().product()).map(|mut element: usize| {
        let (mut place, mut stride) = (0, 1);
        for (pick, length) in picks.iter().zip(&x.dims).rev() {
            place += pick[element % pick.len()] * stride;
            element /= pick.len();
            stride *= length;
        }
        place
    });
    Ok(picked(x, dims.clone(), places))
}

/// Returns the indices that a slice with a step takes from an axis of this length. Negative steps go backwards.
fn stepped(start: i64, end: i64, step: i64, length: usize) -> Result<Vec<usize>, String> {
    let n = length as i64;
    let size = usize::try_from(step.unsigned_abs()).map_err(|e| e.to_string())?;
    match step {
        0 => Err("its step is 0".into()),
        1.. => Ok(range(start, end, length).step_by(size).collect()),
        _ => {
            let [start, end] = [start, end].map(|at| from_front(at, length).clamp(-1, n - 1));
            Ok((end + 1..=start).rev().step_by(size).map(|at| at as usize).collect())
        }
    }
}

fn squeeze(node: &Node<'_>, inputs: &[Option<Rc<Constant>>]) -> Result<Constant, String> {
    node.only(&["axes"])?;
    let x = first(inputs)?;
    let axes: Vec<usize> = match numbers(node, inputs, 1, "axes") {
        Some(axes) => axes.into_iter().map(|at| axis_index(at, x.dims.len())).collect::<Result<_, _>>()?,
        None => (0..x.dims.len()).filter(|at| x.dims[*at] == 1).collect(),
    };
    let kept = (0..x.dims.len()).filter(|at| !axes.contains(at));
    shaped(x, kept.map(|at| x.dims[at]).collect())
}

fn unsqueeze(node: &Node<'_>, inputs: &[Option<Rc<Constant>>]) -> Result<Constant, String> {
    node.only(&["axes"])?;
    let x = first(inputs)?;
    let axes = numbers(node, inputs, 1, "axes").ok_or("it has no axes")?;
    let rank = x.dims.len() + axes.len();
    let axes: Vec<usize> = axes.into_iter().map(|at| axis_index(at, rank)).collect::<Result<_, _>>()?;
    let mut own = x.dims.iter();
    let dims =
        (0..rank).map(|at| if axes.contains(&at) { Some(1) } else { own.next().copied() }).collect::<Option<Vec<_>>>();
    shaped(x, dims.ok_or("one of its axes occurs twice")?)
}

#[cfg(test)]
mod tests {
    use super::stepped;

    /// The expected values are Python's slices of range(5).
    #[test]
    fn slices_step_forwards_and_backwards() {
        let of = |start, end, step| stepped(start, end, step, 5).unwrap();
        assert_eq!(of(-1, i64::MIN, -1), [4, 3, 2, 1, 0]);
        assert_eq!(of(3, 0, -2), [3, 1]);
        assert_eq!(of(0, i64::MAX, 2), [0, 2, 4]);
        assert_eq!(of(1, -1, 1), [1, 2, 3]);
        assert_eq!(of(9, 1, -1), [4, 3, 2]);
        assert!(of(2, 4, -1).is_empty() && of(4, 2, 1).is_empty());
        assert!(stepped(0, 1, 0, 5).is_err() && stepped(0, 0, -1, 0).unwrap().is_empty());
    }
}
