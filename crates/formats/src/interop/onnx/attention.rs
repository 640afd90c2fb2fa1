//! Attention, which the graph computes with several nodes, and the class token before its sequence.

use std::rc::Rc;

use net::{Attention, Channels, ClassToken, Concat, Id, Op};

use super::axes::{Axes, Axis, Dimension, Stride, channels, positions};
use super::build::{Build, Layout, Part, Scores, Value, View};
use super::channels;
use super::function::Binary;
use super::graph::Node;

const SUPPORTED: &str =
    "supported is softmax(factor * Q * K) * V over all positions, without a mask or a position bias";

impl Part {
    /// Returns the channels of a tensor with the axes `outer`, all positions, and channels of one head.
    fn new(
        build: &Build<'_>,
        (id, axes): &(Id, Axes),
        outer: &[Axis],
        place: &Axis,
        width: &Axis,
    ) -> Result<Self, String> {
        let size = |stride: &Stride| stride.size;
        let all: Vec<Stride> =
            outer.iter().flatten().filter(|stride| stride.of != Dimension::Images).copied().collect();
        let [heads, width] = [all.first().map_or(1, size), width.first().map_or(1, size)];
        let own: Vec<Stride> =
            if heads == 1 { Vec::new() } else { vec![Stride { of: Dimension::Channels, size: heads, step: width }] };
        let whole = *place == positions(build.shapes[id.0].plane()) && axes.first_position == 0;
        if !whole {
            return Err(format!("it computes attention in windows or over a part of the positions; {SUPPORTED}"));
        }
        if all != own {
            return Err("it computes attention, but the channels of each head must follow each other".into());
        }
        Ok(Self { id: *id, first_channel: axes.first_channel, heads, width })
    }

    fn channels(self) -> usize {
        self.heads * self.width
    }

    /// Returns the tensor from which a layer has selected channels, if it has.
    fn resolved(mut self, build: &Build<'_>) -> Self {
        while let Some(place) = build.maker(self.id) {
            let Op::Channels(Channels { first, groups: 1, .. }) = build.net.nodes[place].op else { break };
            self.first_channel += first;
            self.id = build.net.nodes[place].inputs[0];
        }
        self
    }
}

fn is_channels(axis: &Axis) -> bool {
    matches!(axis[..], [] | [Stride { of: Dimension::Channels, step: 1, .. }])
}

/// Multiplies two tensors of the network: queries and keys, or the weights of attention and values.
pub(crate) fn product<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    let (scores, values) = match (build.value(node, 0)?, build.value(node, 1)?) {
        (Value::Scores(scores), _) if scores.is_softmax && !scores.transposed => (scores, 1),
        (_, Value::Scores(scores)) if scores.is_softmax && scores.transposed => (scores, 0),
        (Value::Scores(_), _) | (_, Value::Scores(_)) => return Err(not_attention()),
        _ => {
            let [queries, keys] = [build.axes(node, 0)?, build.axes(node, 1)?];
            return scores(build, &queries, &keys).map(|scores| Value::Scores(Rc::new(scores)));
        }
    };
    let given = build.axes(node, values)?;
    let (id, axes) = attended(build, node, &scores, &given)?;
    build.settled(node.label(), id, axes)
}

fn not_attention() -> String {
    format!("it multiplies two tensors of the network, but is not attention; {SUPPORTED}")
}

/// Multiplies queries (..., T, C) and keys (..., C, T).
fn scores(build: &Build<'_>, queries: &(Id, Axes), keys: &(Id, Axes)) -> Result<Scores, String> {
    let ([outer @ .., place, width], [others @ .., depth, other]) = (&queries.1.axes[..], &keys.1.axes[..]) else {
        return Err(not_attention());
    };
    if outer != others || width != depth || !is_channels(width) {
        return Err(not_attention());
    }
    Ok(Scores {
        queries: Part::new(build, queries, outer, place, width)?,
        keys: Part::new(build, keys, outer, other, width)?,
        outer: outer.to_vec(),
        factor: queries.1.factor * keys.1.factor,
        is_softmax: false,
        transposed: false,
    })
}

/// Multiplies the weights of attention and values, which adds the layer. Values are (..., T, C), or (..., C, T) if the
/// weights are transposed. Returns the output with the same order of dimensions.
fn attended<'a>(
    build: &mut Build<'a>,
    node: &Node<'a>,
    scores: &Scores,
    values: &(Id, Axes),
) -> Result<(Id, Axes), String> {
    let [outer @ .., a, b] = &values.1.axes[..] else { return Err(not_attention()) };
    let (place, width) = if scores.transposed { (b, a) } else { (a, b) };
    if outer != scores.outer || !is_channels(width) {
        return Err("its values must have the same images and heads as queries and keys".into());
    }
    let part = Part::new(build, values, outer, place, width)?;
    let id = layer(build, node, scores, part, values.1.factor)?;
    let (place, width) = (positions(build.shapes[id.0].plane()), channels(part.width));
    let inner = if scores.transposed { [width, place] } else { [place, width] };
    Ok((id, Axes { axes: [outer, &inner].concat(), first_channel: 0, first_position: 0, factor: 1.0 }))
}

/// Adds attention of these queries, keys and values. A layer before it joins them if they come from several tensors.
fn layer<'a>(build: &mut Build<'a>, node: &Node<'a>, scores: &Scores, values: Part, factor: f64) -> Result<Id, String> {
    let parts = [scores.queries, scores.keys, values].map(|part| part.resolved(build));
    let queries = parts[0];
    let (heads, width, each) = (queries.heads, queries.width, queries.channels());
    let planes = parts.map(|part| (build.shapes[part.id.0].h, build.shapes[part.id.0].w));
    if parts.iter().any(|part| (part.heads, part.width) != (heads, width))
        || planes.iter().any(|plane| *plane != planes[0])
    {
        return Err(format!(
            "its queries, keys and values must have the same heads, channels and positions, got {}",
            parts.map(|part| format!("{} heads of {} channels", part.heads, part.width)).join(", ")
        ));
    }
    if factor != 1.0 {
        return Err("it multiplies the values by a number, which is not supported".into());
    }
    let follows =
        |at: usize| parts[at].id == queries.id && parts[at].first_channel == queries.first_channel + at * each;
    let mut part = |id: Id, first: usize, count: usize| match build.shapes[id.0].c == count {
        true => Ok(id),
        false => build.layer((None, node.label()), Channels::range(first, count), &[id], Vec::new()),
    };
    let x = match follows(1) && follows(2) {
        true => part(queries.id, queries.first_channel, 3 * each)?,
        false => {
            let ids = parts.iter().map(|own| part(own.id, own.first_channel, each)).collect::<Result<Vec<Id>, _>>()?;
            build.layer((None, node.label()), Concat, &ids, Vec::new())?
        }
    };
    let factor = scores.factor as f32;
    let usual = 1.0 / (width as f32).sqrt();
    let scale = ((factor - usual).abs() > 1e-5 * usual).then_some(factor);
    if !factor.is_finite() {
        return Err(format!("it multiplies the products of queries and keys by {factor}"));
    }
    build.layer((None, node.label()), Attention { scale, ..Attention::new(heads) }, &[x], Vec::new())
}

/// Reads ONNX's own operator for attention. Queries, keys and values are (N, heads, T, C / heads) or (N, T, C).
pub(crate) fn operator<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&[
        "is_causal",
        "kv_num_heads",
        "q_num_heads",
        "qk_matmul_output_mode",
        "scale",
        "softcap",
        "softmax_precision",
    ])?;
    if node.int("is_causal", 0) != 0
        || node.float("softcap", 0.0) != 0.0
        || Build::has(node, 3)
        || node.outputs.iter().skip(1).any(|name| !name.is_empty())
    {
        return Err(format!("it has a mask, or outputs besides the first; {SUPPORTED}"));
    }
    let mut parts = [build.axes(node, 0)?, build.axes(node, 1)?, build.axes(node, 2)?];
    let (flat, varies) = (parts[0].1.axes.len() == 3, build.images().is_none());
    for ((_, axes), heads) in parts.iter_mut().zip(["q_num_heads", "kv_num_heads", "kv_num_heads"]) {
        if let [images, tokens, _] = axes.sizes()[..] {
            let split = axes.clone().reshaped(&[images, tokens, Some(node.int(heads, 0)), Some(-1)], varies)?;
            *axes = split.transposed(&[0, 2, 1, 3])?;
        }
    }
    let [queries, (id, keys), values] = parts;
    let usual = 1.0 / (keys.size(-1)? as f32).sqrt();
    let keys = (id, keys.transposed(&[0, 1, 3, 2])?);
    let mut scores = scores(build, &queries, &keys)?;
    scores.factor *= f64::from(if node.has("scale") { node.float("scale", 0.0) } else { usual });
    let (id, mut axes) = attended(build, node, &scores, &values)?;
    if flat {
        let shape = build.shapes[id.0];
        let sizes = [None, Some(shape.plane() as i64), Some(shape.c as i64)];
        axes = axes.transposed(&[0, 2, 1, 3])?.reshaped(&sizes, varies)?;
    }
    build.settled(node.label(), id, axes)
}

/// Applies a softmax to the products of queries and keys. Returns `None` if the input is something else.
pub(crate) fn softmax<'a>(build: &Build<'a>, node: &Node<'a>) -> Result<Option<Value>, String> {
    let Value::Scores(scores) = build.value(node, 0)? else { return Ok(None) };
    let rank = scores.outer.len() as i64 + 2;
    let axis = node.int("axis", if build.graph.opset < 13 { 1 } else { -1 });
    match (axis == -1 || axis == rank - 1) && !scores.is_softmax && !scores.transposed && node.op == "Softmax" {
        true => Ok(Some(Value::Scores(Rc::new(Scores { is_softmax: true, ..(*scores).clone() })))),
        false => Err(format!("it normalises the products of queries and keys along axis {axis}; {SUPPORTED}")),
    }
}

/// Exchanges the last two axes of products. Returns `None` if the input is something else.
pub(crate) fn transposed<'a>(build: &Build<'a>, node: &Node<'a>) -> Result<Option<Value>, String> {
    let Value::Scores(scores) = build.value(node, 0)? else { return Ok(None) };
    let rank = scores.outer.len() as i64 + 2;
    let wanted: Vec<i64> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
    match node.ints("perm") == Some(wanted.as_slice()) {
        true => Ok(Some(Value::Scores(Rc::new(Scores { transposed: !scores.transposed, ..(*scores).clone() })))),
        false => {
            Err("it transposes the products of queries and keys; only their last two axes can be exchanged".into())
        }
    }
}

/// Applies a binary operator to a rearranged tensor or to products, and a constant. Returns `None` if there is neither.
pub(crate) fn binary<'a>(build: &mut Build<'a>, node: &Node<'a>, of: Binary) -> Result<Option<Value>, String> {
    let values = [build.value(node, 0)?, build.value(node, 1)?];
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
        (Value::Scores(scores), Some(factor)) if !scores.is_softmax => {
            Ok(Some(Value::Scores(Rc::new(Scores { factor: scores.factor * factor, ..(**scores).clone() }))))
        }
        (Value::Scores(_), _) => Err(format!("it changes the products of queries and keys; {SUPPORTED}")),
        (Value::Arranged(id, axes), Some(factor)) => {
            Ok(Some(Value::Arranged(*id, Axes { factor: axes.factor * factor, ..axes.clone() })))
        }
        (Value::Arranged(id, axes), None)
            if axes.has_last(build.shapes[id.0].c) && constant.values.len() == build.shapes[id.0].c =>
        {
            let x = View { id: *id, layout: Layout::Tokens };
            let made = channels::apply(build, node, of, channels::Operands { x, at, constant: &constant })?;
            let Value::Tensor(View { id, .. }) = made else { return Ok(Some(made)) };
            build.settled(node.label(), id, axes.clone()).map(Some)
        }
        _ => Ok(None),
    }
}

/// Largest number of tokens that one constant puts before a sequence. Each becomes a layer.
const MOST_TOKENS: usize = 64;

/// Puts constants before a sequence: the class token, and registers.
pub(crate) fn class_token<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    let last = node.inputs.len() - 1;
    let (mut x, mut axes) = build.axes(node, last)?;
    let rank = axes.axes.len();
    let at = node.int("axis", 0);
    let at = usize::try_from(if at < 0 { at.saturating_add(rank as i64) } else { at }).unwrap_or(rank);
    for input in (0..last).rev() {
        let (tokens, shape) = (build.constant(node, input)?, build.shapes[x.0]);
        let along = axes.axes.get(at) == Some(&positions(shape.plane())) && axes.first_position == 0;
        let count = tokens.dims.get(at).copied().unwrap_or(0);
        let size = |(place, axis): (usize, &Axis)| match place == at {
            true => count,
            false if *axis == channels(shape.c) => shape.c,
            false => 1,
        };
        let expected: Vec<usize> = axes.axes.iter().enumerate().map(size).collect();
        let channels_last = axes.axes.last() == Some(&channels(shape.c));
        let whole = axes.first_channel == 0 && axes.factor == 1.0;
        if !along || !whole || tokens.dims != expected || count > MOST_TOKENS || (count > 1 && !channels_last) {
            return Err(format!(
                "it joins a weight of {:?} and a tensor of {shape} along axis {at}; supported are up to {MOST_TOKENS} vectors of channels \
                 before a sequence (N, T, C)",
                tokens.dims
            ));
        }
        for token in tokens.floats().rchunks_exact(shape.c) {
            let weights = vec![("class_token", vec![shape.c], token.to_vec())];
            x = build.layer((None, node.label()), ClassToken, &[x], weights)?;
        }
        axes.axes[at] = positions(shape.plane() + count);
    }
    build.settled(node.label(), x, axes)
}
