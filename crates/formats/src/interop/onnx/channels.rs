//! Operators that become part of other layers: products and sums with one constant per channel, casts, and layer
//! normalisation that is stored as a formula.

use std::rc::Rc;

use half::{bf16, f16};
use net::{Activation, Init, LayerNorm, LayerScale, Norm, Op, PositionEmbedding, Shape};

use super::build::{Build, Layout, Moment, Value, View, each_channel};
use super::function::Binary;
use super::graph::Node;
use super::tensor::{Constant, Values, number, type_name};
use crate::interop::number::Number;

/// A tensor and a constant, the operands of a binary operator.
pub(crate) struct Operands<'a> {
    pub x: View,
    /// Position of the tensor, 0 or 1.
    pub at: usize,
    pub constant: &'a Constant,
}

/// Applies a binary operator to a tensor and a constant with one number per channel.
pub(crate) fn apply<'a>(
    build: &mut Build<'a>,
    node: &Node<'a>,
    of: Binary,
    Operands { x, at, constant }: Operands<'_>,
) -> Result<Value, String> {
    let channels = build.shapes[x.id.0].c;
    let dims: Vec<usize> = constant.dims.iter().copied().skip_while(|n| *n == 1).collect();
    let fits = match x.layout {
        Layout::Image => dims == [channels, 1, 1],
        Layout::Last | Layout::Tokens | Layout::Flat => dims == [channels],
        Layout::FlatLast(_) | Layout::Arranged(_) => false,
    };
    if of == Binary::Add && !fits && is_embedding(build.shapes[x.id.0], x.layout, &dims) {
        return embedding(build, node, x, constant.floats());
    }
    if !fits {
        let (shape, dims) = (build.shapes[x.id.0], &constant.dims);
        return Err(format!(
            "a weight of {dims:?} is combined with {} of {shape}; only one number for each channel is supported",
            x.layout.text()
        ));
    }
    let mut values = constant.floats();
    match (of, at) {
        (Binary::Mul, _) => scale(build, node, x, at, values),
        (Binary::Div, 0) => {
            values.iter_mut().for_each(|value| *value = 1.0 / *value);
            scale(build, node, x, at, values)
        }
        (Binary::Add, _) => shift(build, node, x, values),
        (Binary::Sub, 0) => {
            values.iter_mut().for_each(|value| *value = -*value);
            shift(build, node, x, values)
        }
        _ => Err("a tensor and a weight can only be added or multiplied".into()),
    }
}

/// Returns true if a constant has a number for each position and channel.
fn is_embedding(x: Shape, layout: Layout, dims: &[usize]) -> bool {
    match layout {
        Layout::Image => dims == [x.c, x.h, x.w],
        Layout::Tokens => dims == [x.plane(), x.c],
        Layout::Last | Layout::Flat | Layout::FlatLast(_) | Layout::Arranged(_) => false,
    }
}

/// Adds a position embedding.
fn embedding<'a>(build: &mut Build<'a>, node: &Node<'a>, x: View, values: Vec<f32>) -> Result<Value, String> {
    let shape = build.shapes[x.id.0];
    let values = match x.layout {
        Layout::Image => {
            (0..shape.plane()).flat_map(|p| values.iter().skip(p).step_by(shape.plane())).copied().collect()
        }
        _ => values,
    };
    let weights = vec![("pos_embedding", vec![shape.plane(), shape.c], values)];
    build.layer_on((None, node.label()), PositionEmbedding::default(), x, weights).map(Value::Tensor)
}

/// Returns the layer that computes the tensor, if only the current node reads it. Otherwise its weights must not
/// change, because other nodes need the original output.
fn before<'b>(build: &'b mut Build<'_>, x: View) -> Option<(&'b mut Op, String)> {
    if !build.has_one_reader(x.id) {
        return None;
    }
    let place = build.maker(x.id)?;
    let layer = &mut build.net.nodes[place];
    Some((&mut layer.op, layer.name.clone()))
}

/// Multiplies each channel by a constant. Merges the factors into a normalisation before it, or adds a layer-scale
/// layer.
fn scale<'a>(build: &mut Build<'a>, node: &Node<'a>, x: View, at: usize, values: Vec<f32>) -> Result<Value, String> {
    let norm = before(build, x).filter(|(op, _)| match op {
        Op::GroupNorm(_) | Op::LayerNorm(_) => true,
        Op::Norm(norm) => is_alone(norm),
        _ => false,
    });
    if let Some((_, name)) = norm {
        let affine = build.weights.get_mut(&name).into_iter().flatten().filter(|weight| AFFINE.contains(&weight.0));
        for (_, _, own) in affine {
            own.iter_mut().zip(&values).for_each(|(own, factor)| *own *= factor);
        }
        return finite(build, &name).map(|()| Value::Tensor(x));
    }
    let start = if values.iter().all(|value| *value == values[0]) { values[0] } else { 1.0 };
    let weights = vec![("layer_scale", vec![values.len()], values)];
    let weight = node.inputs[1 - at];
    // If the weight's name is not a module path, the layer gets the node's name.
    build.layer_on((Some(weight), node.label()), LayerScale(start), x, weights).map(Value::Tensor)
}

/// Names of the scale and shift tensors of a normalization layer.
const AFFINE: [&str; 2] = ["weight", "bias"];

/// Returns true if no residual sum and no ReLU are merged into the batch norm.
fn is_alone(norm: &Norm) -> bool {
    !norm.residual && !norm.relu
}

/// Adds one number per channel to the bias of the layer that computes `x`. If that is not possible, adds a depthwise 1x1 convolution.
fn shift<'a>(build: &mut Build<'a>, node: &Node<'a>, x: View, values: Vec<f32>) -> Result<Value, String> {
    let biased = match before(build, x) {
        Some((Op::LayerScale(_), name)) => return scaled_and_shifted(build, x, &name, values),
        Some((Op::GroupNorm(_) | Op::LayerNorm(_), name)) => Some(name),
        Some((Op::Norm(norm), name)) => is_alone(norm).then_some(name),
        Some((op, name)) => gains_bias(op).then_some(name),
        None => None,
    };
    let Some(name) = biased else {
        let (conv, weights) = each_channel(vec![1.0; values.len()], values);
        return build.layer_on((None, node.label()), conv, x, weights).map(Value::Tensor);
    };
    add_bias(build, &name, values);
    finite(build, &name).map(|()| Value::Tensor(x))
}

/// Adds a bias to a convolution or linear layer without ReLU. Returns false for other layers, which it does not change.
fn gains_bias(op: &mut Op) -> bool {
    match op {
        Op::Conv(conv) if !conv.relu => *conv = conv.clone().bias_from(Init::UniformFanIn),
        Op::Linear(linear) if !linear.relu => *linear = linear.clone().bias_from(Init::UniformFanIn),
        _ => return false,
    }
    true
}

fn add_bias(build: &mut Build<'_>, name: &str, values: Vec<f32>) {
    let weights = build.weights.entry(name.to_string()).or_default();
    match weights.iter_mut().find(|weight| weight.0 == "bias") {
        Some((_, _, own)) => own.iter_mut().zip(&values).for_each(|(own, more)| *own += more),
        None => weights.push(("bias", vec![values.len()], values)),
    }
}

/// Merges a batch norm that the file stores as a multiplication and an addition. The multiplication has already become the layer-scale
/// layer `name`. Both are merged into the convolution or linear layer before them. If there is no such layer, or if it has a ReLU or
/// another reader, they become a depthwise convolution.
fn scaled_and_shifted(build: &mut Build<'_>, x: View, name: &str, shift: Vec<f32>) -> Result<Value, String> {
    let place = build.maker(x.id).ok_or("no node computes its input")?;
    let scale: Vec<f32> = build.weights.remove(name).into_iter().flatten().flat_map(|weight| weight.2).collect();
    let from = View { id: build.net.nodes[place].inputs[0], ..x };
    let weighted = before(build, from).and_then(|(op, name)| gains_bias(op).then_some(name));
    let Some(weighted) = weighted else {
        let (conv, weights) = each_channel(scale, shift);
        build.net.nodes[place].op = conv.into();
        build.weights.insert(name.to_string(), weights);
        return finite(build, name).map(|()| Value::Tensor(x));
    };
    for (_, _, own) in build.weights.get_mut(&weighted).into_iter().flatten() {
        let each = own.len() / scale.len();
        own.chunks_exact_mut(each.max(1))
            .zip(&scale)
            .for_each(|(row, factor)| row.iter_mut().for_each(|w| *w *= factor));
    }
    add_bias(build, &weighted, shift);
    build.net.nodes[place].op = Activation::Identity.into();
    finite(build, &weighted).map(|()| Value::Tensor(x))
}

/// Checks that all weights of a layer are finite after a change.
fn finite(build: &Build<'_>, name: &str) -> Result<(), String> {
    let weights = build.weights.get(name).into_iter().flatten();
    match weights.flat_map(|weight| &weight.2).find(|value| !value.is_finite()) {
        Some(odd) => Err(format!("it changes a weight of layer {name} to {odd}; training cannot start from it")),
        None => Ok(()),
    }
}

pub(crate) fn cast<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["saturate", "to"])?;
    let kind = node.int("to", 1);
    let to =
        number(kind).ok_or_else(|| format!("it casts to {}, but only numeric types are supported", type_name(kind)))?;
    let value = build.value(node, 0)?;
    match (&value, to) {
        (Value::Constant(constant), _) => of_constant(build, constant, to, kind),
        (Value::Sizes(_) | Value::Size(_), Number::I64 | Number::I32 | Number::F32 | Number::F64) => Ok(value),
        (Value::Sizes(_) | Value::Size(_), _) => Err(format!(
            "it casts sizes of a tensor to {}, which may be too small for them. Cast them to int64",
            type_name(kind)
        )),
        (_, Number::F32 | Number::F64 | Number::F16 | Number::Bf16) => Ok(value),
        _ => Err(format!("it rounds a tensor of the network to {}. Remove the node", type_name(kind))),
    }
}

/// Converts a constant to another type with the rounding of the ONNX standard. If the values do not change, the result
/// shares them.
fn of_constant(build: &mut Build<'_>, constant: &Rc<Constant>, to: Number, kind: i64) -> Result<Value, String> {
    if matches!((&constant.values, to), (Values::Floats(_) | Values::Same(..), Number::F32 | Number::F64)) {
        return Ok(Value::Constant(constant.clone()));
    }
    build.take(size_of::<i64>() * constant.values.len())?;
    let values = match to {
        Number::F32 | Number::F64 => Values::Floats(constant.floats()),
        Number::F16 => floats(constant, |x| f16::from_f32(x).to_f32()),
        Number::Bf16 => floats(constant, |x| bf16::from_f32(x).to_f32()),
        Number::Bool => Values::Ints(match &constant.values {
            Values::Ints(values) => values.iter().map(|n| i64::from(*n != 0)).collect(),
            Values::Floats(_) | Values::Same(..) => constant.floats().iter().map(|x| i64::from(*x != 0.0)).collect(),
        }),
        Number::U8 => whole(constant, 0, u8::MAX.into(), kind)?,
        Number::U16 => whole(constant, 0, u16::MAX.into(), kind)?,
        Number::U32 => whole(constant, 0, u32::MAX.into(), kind)?,
        Number::I8 => whole(constant, i8::MIN.into(), i8::MAX.into(), kind)?,
        Number::I16 => whole(constant, i16::MIN.into(), i16::MAX.into(), kind)?,
        Number::I32 => whole(constant, i32::MIN.into(), i32::MAX.into(), kind)?,
        Number::I64 => whole(constant, i64::MIN, i64::MAX, kind)?,
        // integers are stored as i64
        Number::U64 => whole(constant, 0, i64::MAX, kind)?,
    };
    Ok(Value::Constant(Rc::new(Constant { dims: constant.dims.clone(), values })))
}

fn floats(constant: &Constant, round: impl Fn(f32) -> f32) -> Values {
    Values::Floats(constant.floats().into_iter().map(round).collect())
}

/// Truncates values to integers. Fails for numbers outside the range of the type, because the standard does not define
/// their result.
fn whole(constant: &Constant, least: i64, most: i64, kind: i64) -> Result<Values, String> {
    let fits = |n: i128| i64::try_from(n).ok().filter(|n| (least..=most).contains(n));
    let wrong = |shown: String| {
        format!("it casts {shown} to {}, which cannot represent this number. Cast to float32", type_name(kind))
    };
    let values: Result<Vec<i64>, String> = match &constant.values {
        Values::Floats(_) | Values::Same(..) => constant
            .floats()
            .iter()
            .map(|x| x.is_finite().then(|| fits(x.trunc() as i128)).flatten().ok_or_else(|| wrong(x.to_string())))
            .collect(),
        Values::Ints(values) => {
            values.iter().map(|n| fits(i128::from(*n)).ok_or_else(|| wrong(n.to_string()))).collect()
        }
    };
    values.map(Values::Ints)
}

// Layer normalisation as a formula, (x - mean) / sqrt(mean((x - mean)²) + eps). Exporters write it for opsets below 17.
// The layer is added when the division is read.

const UNKNOWN: &str = "it computes with means over channels, but is not the formula of a layer normalisation";

/// Returns the mean of a tensor or of a part of the formula. `channels` is true if the mean is over channels that come
/// last and keeps their dimension.
pub(crate) fn mean(x: View, of: Option<Moment>, channels: bool) -> Result<Value, String> {
    match (x.layout, of) {
        _ if !channels => {
            Err("a layer normalisation must have both of its means over the last axis, with keepdims=1".into())
        }
        (Layout::Last | Layout::Tokens | Layout::Flat, None) => Ok(Value::Moment(x, Moment::Mean)),
        (_, Some(Moment::Squared)) => Ok(Value::Moment(x, Moment::Variance)),
        _ => {
            Err(format!("means over the last axis of {} are supported only in a layer normalisation", x.layout.text()))
        }
    }
}

/// Returns the square root of a part of the formula.
pub(crate) fn root(x: View, of: Moment) -> Result<Value, String> {
    match of {
        Moment::Shifted(eps) => Ok(Value::Moment(x, Moment::Deviation(eps))),
        _ => Err(UNKNOWN.into()),
    }
}

/// Applies a binary operator to a part of the formula. Returns `None` if no operand is a part of the formula.
pub(crate) fn binary<'a>(build: &mut Build<'a>, node: &Node<'a>, of: Binary) -> Result<Option<Value>, String> {
    let (a, b) = (build.value(node, 0)?, build.value(node, 1)?);
    let made = match (of, &a, &b) {
        (Binary::Mul, Value::Moment(x, Moment::Centered), Value::Moment(y, Moment::Centered)) if x == y => {
            Value::Moment(*x, Moment::Squared)
        }
        (Binary::Pow, Value::Moment(x, Moment::Centered), Value::Constant(two)) if two.scalar() == Some(2.0) => {
            Value::Moment(*x, Moment::Squared)
        }
        (Binary::Add, Value::Moment(x, Moment::Variance), Value::Constant(eps))
        | (Binary::Add, Value::Constant(eps), Value::Moment(x, Moment::Variance)) => {
            let eps = eps.scalar().map(|eps| eps as f32).filter(|eps| *eps > 0.0 && eps.is_finite());
            Value::Moment(*x, Moment::Shifted(eps.ok_or(UNKNOWN)?))
        }
        (Binary::Div, Value::Moment(x, Moment::Centered), Value::Moment(y, Moment::Deviation(eps))) if x == y => {
            norm(build, node, *x, *eps)?
        }
        (Binary::Sub, _, Value::Moment(x, Moment::Mean)) if build.view(node, 0)? == *x => {
            Value::Moment(*x, Moment::Centered)
        }
        (_, Value::Moment(..), _) | (_, _, Value::Moment(..)) => return Err(UNKNOWN.into()),
        _ => return Ok(None),
    };
    Ok(Some(made))
}

/// Adds a layer normalisation. Its scale and shift follow in the graph as separate nodes, so they are 1 and 0 here.
fn norm<'a>(build: &mut Build<'a>, node: &Node<'a>, x: View, eps: f32) -> Result<Value, String> {
    let channels = build.shapes[x.id.0].c;
    let [scale, bias] = [("weight", 1.0), ("bias", 0.0)].map(|(field, n)| (field, vec![channels], vec![n; channels]));
    build.layer_on((None, node.label()), LayerNorm { eps }, x, vec![scale, bias]).map(Value::Tensor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interop::onnx::build::Layout;
    use crate::interop::onnx::graph::Graph;
    use net::Shape;

    fn made(values: Values, kind: i64) -> Result<Values, String> {
        let graph = Graph::default();
        let mut build = Build::new(
            &graph,
            "net",
            ("x", Shape::image(1, 1, 1), Layout::Image),
            0,
            crate::interop::ops::is_non_negative,
        );
        let constant = Rc::new(Constant { dims: vec![values.len()], values });
        match of_constant(&mut build, &constant, number(kind).unwrap(), kind)? {
            Value::Constant(constant) => Ok(constant.values.clone()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn casts_convert_numbers_to_their_type() {
        let floats = || Values::Floats(vec![2.7, -2.7, 0.0]);
        for kind in [3, 5, 6, 7] {
            assert_eq!(made(floats(), kind).unwrap(), Values::Ints(vec![2, -2, 0]), "{kind}");
        }
        assert_eq!(made(floats(), 9).unwrap(), Values::Ints(vec![1, 1, 0]));
        for kind in [1, 11] {
            assert_eq!(made(floats(), kind).unwrap(), floats());
            assert_eq!(made(Values::Ints(vec![3, -1]), kind).unwrap(), Values::Floats(vec![3.0, -1.0]));
        }
        let near = Values::Floats(vec![1.0 + 1.0 / 4096.0, 70_000.0]);
        assert_eq!(made(near.clone(), 10).unwrap(), Values::Floats(vec![1.0, f32::INFINITY]));
        assert_eq!(made(near, 16).unwrap(), Values::Floats(vec![1.0, 70_144.0]));
    }

    #[test]
    fn casts_of_numbers_out_of_range_are_refused() {
        for (value, kind, name) in
            [(300.0, 2, "300 to uint8"), (-1.0, 2, "-1 to uint8"), (3e9, 6, "to int32"), (1e20, 7, "to int64")]
        {
            let error = made(Values::Floats(vec![value]), kind).unwrap_err();
            assert!(error.contains(name), "{error}");
        }
        assert!(made(Values::Floats(vec![f32::NAN]), 7).unwrap_err().contains("NaN to int64"));
        assert!(made(Values::Ints(vec![256]), 2).unwrap_err().contains("256 to uint8"));
        assert!(made(Values::Ints(vec![-1]), 13).unwrap_err().contains("-1 to uint64"));
    }
}
