//! Products and sums with one number of the file for each channel: a scale of its own, or a part of the layer before.

use net::{Activation, Conv, Id, Init, LayerScale, Norm, Op};

use super::build::Build;
use super::function::Binary;
use super::graph::Node;
use super::tensor::Constant;
use super::value::{Layout, Value, View};

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
        Layout::FlatLast(_) => false,
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
        (Binary::Add, _) => shift(build, node, x, values),
        (Binary::Sub, 0) => {
            values.iter_mut().for_each(|value| *value = -*value);
            shift(build, node, x, values)
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
    // a name that is no path of a module is no better than that of the node
    let id = build.layer((Some(weight), node.label()), LayerScale(start), &[x.id], weights)?;
    Ok(Value::Tensor(View { id, ..x }))
}

/// Names of the scale and shift tensors of a normalization layer.
const AFFINE: [&str; 2] = ["weight", "bias"];

/// Returns true if the batch norm has neither a fused residual sum nor a fused ReLU.
fn is_alone(norm: &Norm) -> bool {
    !norm.residual && !norm.relu
}

/// Adds one number per channel to the bias of the layer that computes `x`. If that is not possible, adds a depthwise 1x1 convolution.
fn shift<'a>(build: &mut Build<'a>, node: &Node<'a>, x: View, values: Vec<f32>) -> Result<Value, String> {
    let name = match before(build, x) {
        Some((Op::Conv(conv), name)) if !conv.relu => {
            *conv = conv.clone().bias_from(Init::UniformFanIn);
            name
        }
        Some((Op::Linear(linear), name)) if !linear.relu => {
            *linear = linear.clone().bias_from(Init::UniformFanIn);
            name
        }
        Some((Op::GroupNorm(_) | Op::LayerNorm(_), name)) => name,
        Some((Op::Norm(norm), name)) if is_alone(norm) => name,
        Some((Op::LayerScale(_), name)) => return scaled_and_shifted(build, x, &name, values),
        _ => {
            let channels = values.len();
            let weights =
                vec![("weight", vec![channels, 1, 1, 1], vec![1.0; channels]), ("bias", vec![channels], values)];
            let id = build.layer((None, node.label()), each_channel(channels), &[x.id], weights)?;
            return Ok(Value::Tensor(View { id, ..x }));
        }
    };
    add_bias(build, &name, values);
    finite(build, &name).map(|()| Value::Tensor(x))
}

fn add_bias(build: &mut Build<'_>, name: &str, values: Vec<f32>) {
    let weights = build.weights.entry(name.to_string()).or_default();
    match weights.iter_mut().find(|weight| weight.0 == "bias") {
        Some((_, _, own)) => own.iter_mut().zip(&values).for_each(|(own, more)| *own += more),
        None => weights.push(("bias", vec![values.len()], values)),
    }
}

/// Returns a depthwise 1x1 convolution, which multiplies each channel by a factor and adds a bias.
fn each_channel(channels: usize) -> Conv {
    Conv { groups: channels, ..Conv::new(channels, 1) }.bias_from(Init::UniformFanIn)
}

/// Merges a batch norm that the file stores as a multiplication and an addition. The multiplication has already become the layer-scale
/// layer `name`. Both are merged into the convolution or linear layer before them. If another node also reads that layer, they become a
/// depthwise convolution.
fn scaled_and_shifted(build: &mut Build<'_>, x: View, name: &str, shift: Vec<f32>) -> Result<Value, String> {
    let place = build.maker(x.id).ok_or("nothing makes its input")?;
    let scale: Vec<f32> = build.weights.remove(name).into_iter().flatten().flat_map(|weight| weight.2).collect();
    let from = View { id: build.net.nodes[place].inputs[0], ..x };
    let weighted = before(build, from).and_then(|(op, name)| match op {
        Op::Conv(conv) if !conv.relu => {
            *conv = conv.clone().bias_from(Init::UniformFanIn);
            Some(name)
        }
        Op::Linear(linear) if !linear.relu => {
            *linear = linear.clone().bias_from(Init::UniformFanIn);
            Some(name)
        }
        _ => None,
    });
    let Some(weighted) = weighted else {
        build.net.nodes[place].op = each_channel(shift.len()).into();
        let weights = vec![("weight", vec![shift.len(), 1, 1, 1], scale), ("bias", vec![shift.len()], shift)];
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

/// Selects channels of a tensor, in this order. There is no layer type for this, so a 1x1 convolution of zeros and ones is added.
pub(super) fn picked<'a>(build: &mut Build<'a>, node: &Node<'a>, x: View, from: &[usize]) -> Result<Value, String> {
    let id = picked_as(build, node.label(), x, from)?;
    Ok(Value::Tensor(View { id, ..x }))
}

/// Works like [`picked`], and calls the new layer `label`.
pub(super) fn picked_as(build: &mut Build<'_>, label: &str, x: View, from: &[usize]) -> Result<Id, String> {
    let channels = build.shapes[x.id.0].c;
    build.take(size_of::<f32>().saturating_mul(channels).saturating_mul(from.len()))?;
    let mut weight = vec![0.0; channels * from.len()];
    from.iter().enumerate().for_each(|(to, from)| weight[to * channels + from] = 1.0);
    let weights = vec![("weight", vec![from.len(), channels, 1, 1], weight)];
    let note =
        "1x1 convolutions of zeros and ones split or shuffle channels; `freeze.patterns` keeps them from being trained";
    if !build.notes.iter().any(|known| known == note) {
        build.notes.push(note.into());
    }
    build.layer((None, label), Conv::new(from.len(), 1), &[x.id], weights)
}

/// Refuses values that are none, or too large, once weights were changed.
fn finite(build: &Build<'_>, name: &str) -> Result<(), String> {
    let weights = build.weights.get(name).into_iter().flatten();
    match weights.flat_map(|weight| &weight.2).find(|value| !value.is_finite()) {
        Some(odd) => Err(format!("it makes a weight of layer {name} {odd}; training cannot start from that")),
        None => Ok(()),
    }
}
