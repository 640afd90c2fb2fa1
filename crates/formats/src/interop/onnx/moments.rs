//! Layer normalisation as its formula, (x - mean) / sqrt(mean((x - mean)^2) + eps), which exporters write before opset 17: the node of its
//! quotient makes the layer.

use net::LayerNorm;

use super::build::Build;
use super::function::Binary;
use super::graph::Node;
use super::value::{Layout, Moment, Value, View};

const UNKNOWN: &str = "it computes with means over channels, and is not the formula of a layer normalisation";

/// The mean of a tensor or of a part of the formula; `channels`: over channels that come last, which keep their dimension.
pub(super) fn mean(x: View, of: Option<Moment>, channels: bool) -> Result<Value, String> {
    match (x.layout, of) {
        _ if !channels => Err("a layer normalisation has both of its means over the last axis, with keepdims=1".into()),
        (Layout::Last | Layout::Flat, None) => Ok(Value::Moment(x, Moment::Mean)),
        (_, Some(Moment::Squared)) => Ok(Value::Moment(x, Moment::Variance)),
        _ => {
            Err(format!("means over the last axis of {}; supported is that of a layer normalisation", x.layout.text()))
        }
    }
}

/// A root of a part of the formula.
pub(super) fn root(x: View, of: Moment) -> Result<Value, String> {
    match of {
        Moment::Shifted(eps) => Ok(Value::Moment(x, Moment::Deviation(eps))),
        _ => Err(UNKNOWN.into()),
    }
}

/// What two values make of which one is a part of the formula; none where neither is.
pub(super) fn binary<'a>(build: &mut Build<'a>, node: &Node<'a>, of: Binary) -> Result<Option<Value>, String> {
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

/// The layer; its scale and shift follow as nodes of their own.
fn norm<'a>(build: &mut Build<'a>, node: &Node<'a>, x: View, eps: f32) -> Result<Value, String> {
    let channels = build.shapes[x.id.0].c;
    let [scale, bias] = [("weight", 1.0), ("bias", 0.0)].map(|(field, n)| (field, vec![channels], vec![n; channels]));
    let id = build.layer((None, node.label()), LayerNorm { eps }, &[x.id], vec![scale, bias])?;
    Ok(Value::Tensor(View { id, ..x }))
}
