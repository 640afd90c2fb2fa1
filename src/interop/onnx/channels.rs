//! Products and sums with one number of the file for each channel: a scale of its own, or a part of the layer before.

use super::build::Build;
use super::function::Binary;
use super::graph::Node;
use super::tensor::Constant;
use super::value::{Layout, Value, View};
use crate::nn::spec::{Init, LayerScale, Op};

/// A tensor and the numbers that meet it.
pub(super) struct Operands<'a> {
    pub x: View,
    /// Whether the tensor is the first operand (0) or the second.
    pub at: usize,
    pub constant: &'a Constant,
}

/// What comes of a tensor and one number for each of its channels.
pub(super) fn apply<'a>(
    build: &mut Build<'a>,
    node: &Node<'a>,
    of: Binary,
    Operands { x, at, constant }: Operands<'_>,
) -> Result<Value, String> {
    let channels = build.shapes[x.id.0].c;
    let dims: Vec<usize> = constant.dims.iter().copied().skip_while(|n| *n == 1).collect();
    let fits = match x.layout {
        Layout::Image => dims == [channels, 1, 1],
        Layout::Last | Layout::Flat => dims == [channels],
    };
    if !fits {
        let (shape, dims) = (build.shapes[x.id.0], &constant.dims);
        return Err(format!(
            "a weight of {dims:?} meets {} of {shape}; supported is one number for each channel",
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
        (Binary::Add, _) => shift(build, x, values),
        (Binary::Sub, 0) => {
            values.iter_mut().for_each(|value| *value = -*value);
            shift(build, x, values)
        }
        _ => Err("of a tensor and weights, sums and products are supported".into()),
    }
}

/// The layer that makes the tensor, if this node alone reads it: its weights are not those that others want.
fn before<'b>(build: &'b mut Build<'_>, x: View) -> Option<(&'b mut Op, String)> {
    if !build.has_one_reader(x.id) {
        return None;
    }
    let place = build.maker(x.id)?;
    let layer = &mut build.net.nodes[place];
    Some((&mut layer.op, layer.name.clone()))
}

/// Part of a normalisation of each sample before, else a layer with a learned scale.
fn scale<'a>(build: &mut Build<'a>, node: &Node<'a>, x: View, at: usize, values: Vec<f32>) -> Result<Value, String> {
    if let Some((Op::GroupNorm(_) | Op::LayerNorm(_), name)) = before(build, x) {
        for (_, _, own) in build.weights.get_mut(&name).into_iter().flatten() {
            own.iter_mut().zip(&values).for_each(|(own, factor)| *own *= factor);
        }
        return finite(build, &name).map(|()| Value::Tensor(x));
    }
    let start = if values.iter().all(|value| *value == values[0]) { values[0] } else { 1.0 };
    let weights = vec![("layer_scale", vec![values.len()], values)];
    let weight = node.inputs[1 - at];
    // a name that is no path of a module is no better than that of the node
    let id = build.layer((Some(weight), node.label()), LayerScale(start), &[x.id], weights)?;
    Ok(Value::Tensor(View { id, ..x }))
}

/// Part of the bias of the layer before.
fn shift(build: &mut Build<'_>, x: View, values: Vec<f32>) -> Result<Value, String> {
    let wrong = "it adds weights to what is no convolution, linear layer or normalisation of its own; no layer here does that alone";
    let (op, name) = before(build, x).ok_or(wrong)?;
    match op {
        Op::Conv(conv) if !conv.relu => *conv = conv.clone().bias_from(Init::UniformFanIn),
        Op::Linear(linear) if !linear.relu => *linear = linear.clone().bias_from(Init::UniformFanIn),
        Op::GroupNorm(_) | Op::LayerNorm(_) => {}
        Op::Norm(norm) if !norm.residual && !norm.relu => {}
        _ => return Err(wrong.into()),
    }
    let weights = build.weights.entry(name.clone()).or_default();
    match weights.iter_mut().find(|weight| weight.0 == "bias") {
        Some((_, _, own)) => own.iter_mut().zip(&values).for_each(|(own, more)| *own += more),
        None => weights.push(("bias", vec![values.len()], values)),
    }
    finite(build, &name).map(|()| Value::Tensor(x))
}

/// Refuses values that are none, or too large, once weights were changed.
fn finite(build: &Build<'_>, name: &str) -> Result<(), String> {
    let weights = build.weights.get(name).into_iter().flatten();
    match weights.flat_map(|weight| &weight.2).find(|value| !value.is_finite()) {
        Some(odd) => Err(format!("it makes a weight of layer {name} {odd}; training cannot start from that")),
        None => Ok(()),
    }
}
