//! Operators on attention scores (products of queries and keys), and norms of queries and keys.

use std::rc::Rc;

use super::axes::{Axes, Size};
use super::build::{Build, Layout, Scores, Value, View};
use super::channels;
use super::function::Binary;
use super::graph::Node;
use super::tensor::Constant;
use super::terms::{Network, Spread, sum};

const SUPPORTED: &str = "supported operations are factors and a bias per head, a mask per window, and a softmax";

/// Applies a softmax to attention scores. Returns `None` for other inputs.
pub(crate) fn softmax<'a>(build: &Build<'a>, node: &Node<'a>) -> Result<Option<Value>, String> {
    let Value::Scores(scores) = build.value(node, 0)? else { return Ok(None) };
    let rank = scores.axes.axes.len() as i64;
    let axis = node.int("axis", if build.graph.opset < 13 { 1 } else { -1 });
    match (axis == -1 || axis == rank - 1) && !scores.is_softmax && !scores.transposed && node.op == "Softmax" {
        true => Ok(Some(Value::Scores(Rc::new(Scores { is_softmax: true, ..(*scores).clone() })))),
        false => Err(format!("it normalises attention scores along axis {axis}; {SUPPORTED}")),
    }
}

/// Exchanges the last two axes of attention scores. Returns `None` for other inputs.
pub(crate) fn transposed<'a>(build: &Build<'a>, node: &Node<'a>) -> Result<Option<Value>, String> {
    let Value::Scores(scores) = build.value(node, 0)? else { return Ok(None) };
    let rank = scores.axes.axes.len() as i64;
    let wanted: Vec<i64> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
    match node.ints("perm") == Some(wanted.as_slice()) {
        true => Ok(Some(Value::Scores(Rc::new(Scores { transposed: !scores.transposed, ..(*scores).clone() })))),
        false => Err("it transposes attention scores, but only their last two axes can be exchanged".into()),
    }
}

/// Reshapes the leading axes of attention scores. Returns `None` for other inputs.
pub(crate) fn reshaped<'a>(build: &Build<'a>, node: &Node<'a>, sizes: &[Size]) -> Result<Option<Value>, String> {
    let Value::Scores(scores) = build.value(node, 0)? else { return Ok(None) };
    let own = &scores.axes.axes;
    let axes = scores.axes.clone().reshaped(sizes, build.images().is_none())?;
    match axes.axes.len() >= 2 && axes.axes.ends_with(&own[own.len() - 2..]) && !scores.transposed {
        true => Ok(Some(Value::Scores(Rc::new(Scores { axes, ..(*scores).clone() })))),
        false => {
            Err("it reshapes the query and key axes of attention scores, but only the axes before them can be reshaped"
                .into())
        }
    }
}

/// Applies a binary operator to a rearranged tensor, attention scores or norms. Returns `None` for other inputs.
pub(crate) fn binary<'a>(build: &mut Build<'a>, node: &Node<'a>, of: Binary) -> Result<Option<Value>, String> {
    let values = [build.value(node, 0)?, build.value(node, 1)?];
    if let (Binary::Div, Value::Norms(id, axes, at)) = (of, &values[1]) {
        return match build.axes(node, 0)? == (*id, axes.clone()) {
            true => Ok(Some(Value::Arranged(*id, Axes { unit: axes.axes.get(*at).cloned(), ..axes.clone() }))),
            false => Err("it divides a tensor by the norms of a different tensor".into()),
        };
    }
    let (at, constant) = match &values {
        [_, Value::Constant(constant)] => (0, constant.clone()),
        [Value::Constant(constant), _] => (1, constant.clone()),
        _ => return Ok(None),
    };
    let factor = match (of, at, constant.scalar()) {
        (Binary::Mul, _, Some(factor)) => Some(factor),
        (Binary::Div, 0, Some(divisor)) => Some(1.0 / divisor),
        _ => None,
    };
    match (&values[at], factor) {
        (Value::Scores(scores), factor) => changed(build, node, of, scores, (at, &constant), factor).map(Some),
        (Value::Norms(..), _) if of == Binary::Max => limited(&values[at], constant.scalar()).map(Some),
        (Value::Arranged(id, axes), Some(factor)) => {
            Ok(Some(Value::Arranged(*id, Axes { factor: axes.factor * factor, ..axes.clone() })))
        }
        (Value::Arranged(id, axes), None)
            if axes.has_last(build.shapes[id.0].c)
                && axes.pads == [0; 4]
                && constant.values.len() == build.shapes[id.0].c
                && constant.dims.last() == Some(&constant.values.len()) =>
        {
            let x = View { id: *id, layout: Layout::Tokens };
            let made = channels::apply(build, node, of, channels::Operands { x, at, constant: &constant })?;
            let Value::Tensor(View { id, .. }) = made else { return Ok(Some(made)) };
            build.settled(node.label(), id, axes.clone()).map(Some)
        }
        _ => Ok(None),
    }
}

/// Multiplies attention scores by a constant, or adds a constant.
fn changed<'a>(
    build: &mut Build<'a>,
    node: &Node<'a>,
    of: Binary,
    scores: &Scores,
    (at, constant): (usize, &Rc<Constant>),
    factor: Option<f64>,
) -> Result<Value, String> {
    let refuse = || format!("it changes attention scores; {SUPPORTED}");
    if scores.is_softmax || scores.transposed {
        return Err(refuse());
    }
    let mut scores = scores.clone();
    let spread = Spread::new(constant, &scores.axes, build.images().is_none())?;
    match (of, factor) {
        (_, Some(factor)) if scores.terms.is_empty() => scores.factor *= factor,
        (Binary::Mul, None) if scores.terms.is_empty() && spread.is_of_outer() && !spread.is_of_windows() => {
            let values = spread.outer_values();
            scores.terms.factors = Some(match scores.terms.factors.take() {
                Some(own) => own.iter().zip(values).map(|(a, b)| a * b).collect(),
                None => values.into(),
            });
        }
        (Binary::Add, None) => {
            build.take(size_of::<f32>().saturating_mul(spread.count()))?;
            let values = spread.values();
            match spread.is_of_windows() {
                true => sum(&mut scores.terms.mask, values),
                false => {
                    sum(&mut scores.terms.bias, values);
                    scores.terms.network = network(build, node.inputs[1 - at])?.map(Rc::new);
                }
            }
        }
        _ => return Err(refuse()),
    }
    Ok(Value::Scores(Rc::new(scores)))
}

/// Number of nodes to search backwards from a position bias for the ReLU of its network.
const MOST_STEPS: usize = 16;

/// Finds the linear layers before and after the ReLU in a network that computes a constant.
fn network<'a>(build: &mut Build<'a>, mut name: &'a str) -> Result<Option<Network>, String> {
    let (graph, mut weight) = (build.graph, None);
    for _ in 0..MOST_STEPS {
        // the search counts against the memory budget, so that a small file cannot take a lot of time
        build.take(size_of_val(&graph.nodes[..]) / MOST_STEPS)?;
        let Some(node) = graph.nodes.iter().find(|node| node.outputs.first() == Some(&name)) else { return Ok(None) };
        match (node.op, &node.inputs[..]) {
            ("Relu", [input]) => {
                let (Value::Constant(units), Some(weight)) = (build.named(input)?, weight) else { return Ok(None) };
                return Ok(Some(Network { units, weight }));
            }
            ("MatMul", [input, other]) if weight.is_none() => {
                let Value::Constant(constant) = build.named(other)? else { return Ok(None) };
                (name, weight) = (input, Some(constant));
            }
            (_, inputs) => {
                let computed = |input: &&&str| {
                    graph.nodes.iter().any(|node| node.outputs.contains(input) && !node.inputs.is_empty())
                };
                let Some(input) = inputs.iter().find(computed) else { return Ok(None) };
                name = input;
            }
        }
    }
    Ok(None)
}

/// Reads a node that computes norms of queries or keys along the channels in each head.
pub(crate) fn norms<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["axes", "keepdims", "noop_with_empty_axes"])?;
    let (id, axes) = build.axes(node, 0)?;
    match build.numbers(node, 1, "axes")?.as_deref() {
        Some([axis]) if node.int("keepdims", 1) != 0 && axes.unit.is_none() && axes.factor == 1.0 => {
            let at = axes.at(*axis)?;
            Ok(Value::Norms(id, axes, at))
        }
        _ => Err("only norms over the channels of heads in attention are supported, with keepdims=1".into()),
    }
}

/// Largest supported lower limit for norms. PyTorch uses 1e-12.
const LARGEST_LIMIT: f64 = 1e-6;

/// Applies a lower limit to norms.
pub(crate) fn limited(norms: &Value, least: Option<f64>) -> Result<Value, String> {
    match least {
        Some(least) if (0.0..=LARGEST_LIMIT).contains(&least) => Ok(norms.clone()),
        Some(least) => {
            Err(format!("its lower limit for norms is {least}, but only limits up to {LARGEST_LIMIT} are supported"))
        }
        None => {
            Err("it limits norms by a list of numbers or from above, but only a small lower limit is supported".into())
        }
    }
}
