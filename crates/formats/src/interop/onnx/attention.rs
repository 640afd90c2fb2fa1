//! Attention, which the graph computes with several nodes, and the class token before its sequence.

use std::rc::Rc;

use net::{Attention, Channels, ClassToken, Concat, Id, Op, Shape};

use super::axes::{Axes, Axis, Dimension, Stride, channels, positions};
use super::build::{Build, Layout, Value, View};
use super::channels;
use super::function::Binary;
use super::graph::Node;

/// The products of queries and keys, one row for each query.
#[derive(Clone, Debug)]
pub(crate) struct Scores {
    queries: Part,
    keys: Part,
    /// The axes before queries and keys: images and heads.
    outer: Vec<Axis>,
    factor: f64,
    /// True after the softmax.
    weights: bool,
    /// True if the last two axes are exchanged.
    turned: bool,
}

/// Queries, keys or values: `heads * width` channels of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    id: Id,
    first_channel: usize,
    heads: usize,
    width: usize,
}

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
    let unknown = || format!("it multiplies two tensors of the network, but is not attention; {SUPPORTED}");
    match (build.value(node, 0)?, build.value(node, 1)?) {
        (Value::Scores(scores), _) if scores.weights && !scores.turned => attended(build, node, &scores, 1),
        (_, Value::Scores(scores)) if scores.weights && scores.turned => attended(build, node, &scores, 0),
        (Value::Scores(_), _) | (_, Value::Scores(_)) => Err(unknown()),
        _ => {
            let [queries, keys] = [build.axes(node, 0)?, build.axes(node, 1)?];
            let ([outer @ .., place, width], [others @ .., depth, other]) = (&queries.1.axes[..], &keys.1.axes[..])
            else {
                return Err(unknown());
            };
            if outer != others || width != depth || !is_channels(width) {
                return Err(unknown());
            }
            scores(build, [&queries, &keys], outer, [place, other], width, 1.0)
        }
    }
}

fn scores(
    build: &Build<'_>,
    [queries, keys]: [&(Id, Axes); 2],
    outer: &[Axis],
    places: [&Axis; 2],
    width: &Axis,
    factor: f64,
) -> Result<Value, String> {
    Ok(Value::Scores(Rc::new(Scores {
        queries: Part::new(build, queries, outer, places[0], width)?,
        keys: Part::new(build, keys, outer, places[1], width)?,
        outer: outer.to_vec(),
        factor: factor * queries.1.factor * keys.1.factor,
        weights: false,
        turned: false,
    })))
}

/// Adds the layer when its last product, with the values, is read. `at` is the number of the input with the values.
fn attended<'a>(build: &mut Build<'a>, node: &Node<'a>, scores: &Scores, at: usize) -> Result<Value, String> {
    let values = build.axes(node, at)?;
    let [outer @ .., a, b] = &values.1.axes[..] else { return Err("its values have less than two dimensions".into()) };
    let (place, width) = if at == 1 { (a, b) } else { (b, a) };
    if outer != scores.outer || !is_channels(width) {
        return Err("its values must have the same images and heads as queries and keys".into());
    }
    let part = Part::new(build, &values, outer, place, width)?;
    let (id, shape) = layer(build, node, scores, part, values.1.factor)?;
    let (place, width) = (positions(shape.plane()), channels(part.width));
    let inner = if at == 1 { [place, width] } else { [width, place] };
    let axes = Axes { axes: [outer, &inner].concat(), first_channel: 0, first_position: 0, factor: 1.0 };
    build.settled(node.label(), id, axes)
}

/// Adds attention of these queries, keys and values. A layer before it joins them if they come from several tensors.
fn layer<'a>(
    build: &mut Build<'a>,
    node: &Node<'a>,
    scores: &Scores,
    values: Part,
    factor: f64,
) -> Result<(Id, Shape), String> {
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
    let id = build.layer((None, node.label()), Attention { scale, ..Attention::new(heads) }, &[x], Vec::new())?;
    Ok((id, build.shapes[id.0]))
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
    let flat = parts[0].1.axes.len() == 3;
    if flat {
        for (part, name) in parts.iter_mut().zip(["q_num_heads", "kv_num_heads", "kv_num_heads"]) {
            let (heads, varies) = (node.int(name, 0), build.images().is_none());
            let sizes = [Some(0), Some(0), Some(heads), Some(-1)];
            let own = part.1.sizes();
            let sizes =
                std::array::from_fn::<_, 4, _>(|at| if at < 2 { own.get(at).copied().flatten() } else { sizes[at] });
            part.1 = part.1.clone().reshaped(&sizes, varies)?.transposed(&[0, 2, 1, 3])?;
        }
    }
    let [queries, keys, values] = &parts;
    let ([outer @ .., place, width], [_, _, other, _]) = (&queries.1.axes[..], &keys.1.axes[..]) else {
        return Err("its inputs must have 3 or 4 dimensions".into());
    };
    if [keys, values].iter().any(|part| part.1.axes[..].split_last_chunk::<2>().is_none_or(|(own, _)| own != outer))
        || !is_channels(width)
    {
        return Err("its queries, keys and values must have the same images and heads".into());
    }
    let usual = 1.0 / (width.first().map_or(1, |stride| stride.size) as f32).sqrt();
    let factor = if node.has("scale") { node.float("scale", 0.0) } else { usual };
    let Value::Scores(scores) = scores(build, [queries, keys], outer, [place, other], width, factor.into())? else {
        return Err(SUPPORTED.into());
    };
    let part = Part::new(build, values, outer, &values.1.axes[2], &values.1.axes[3])?;
    let (id, shape) = layer(build, node, &scores, part, values.1.factor)?;
    let inner = [positions(shape.plane()), channels(part.width)];
    let mut axes = Axes { axes: [outer, &inner].concat(), first_channel: 0, first_position: 0, factor: 1.0 };
    if flat {
        let all = build.images().is_none();
        axes =
            axes.transposed(&[0, 2, 1, 3])?.reshaped(&[None, Some(shape.plane() as i64), Some(shape.c as i64)], all)?;
    }
    build.settled(node.label(), id, axes)
}

/// Applies a softmax to the products of queries and keys. Returns `None` if the input is something else.
pub(crate) fn softmax<'a>(build: &Build<'a>, node: &Node<'a>) -> Result<Option<Value>, String> {
    let Value::Scores(scores) = build.value(node, 0)? else { return Ok(None) };
    let rank = scores.outer.len() as i64 + 2;
    let axis = node.int("axis", if build.graph.opset < 13 { 1 } else { -1 });
    match (axis == -1 || axis == rank - 1) && !scores.weights && !scores.turned && node.op == "Softmax" {
        true => Ok(Some(Value::Scores(Rc::new(Scores { weights: true, ..(*scores).clone() })))),
        false => Err(format!("it normalises the products of queries and keys along axis {axis}; {SUPPORTED}")),
    }
}

/// Exchanges the last two axes of products. Returns `None` if the input is something else.
pub(crate) fn transposed<'a>(build: &Build<'a>, node: &Node<'a>) -> Result<Option<Value>, String> {
    let Value::Scores(scores) = build.value(node, 0)? else { return Ok(None) };
    let rank = scores.outer.len() as i64 + 2;
    let wanted: Vec<i64> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
    match node.ints("perm") == Some(wanted.as_slice()) {
        true => Ok(Some(Value::Scores(Rc::new(Scores { turned: !scores.turned, ..(*scores).clone() })))),
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
        (Value::Scores(scores), Some(factor)) if !scores.weights => {
            Ok(Some(Value::Scores(Rc::new(Scores { factor: scores.factor * factor, ..(**scores).clone() }))))
        }
        (Value::Scores(_), _) => Err(format!("it changes the products of queries and keys; {SUPPORTED}")),
        (Value::Arranged(id, axes), Some(factor)) => {
            Ok(Some(Value::Arranged(*id, Axes { factor: axes.factor * factor, ..axes.clone() })))
        }
        (Value::Arranged(id, axes), None) if axes.has_last(build.shapes[id.0].c) => {
            let x = View { id: *id, layout: Layout::Tokens };
            let made = channels::apply(build, node, of, channels::Operands { x, at, constant: &constant })?;
            let Value::Tensor(View { id, .. }) = made else { return Ok(Some(made)) };
            build.settled(node.label(), id, axes.clone()).map(Some)
        }
        _ => Ok(None),
    }
}

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
        if !along || !whole || tokens.dims != expected || (count > 1 && !channels_last) {
            return Err(format!(
                "it joins a weight of {:?} and a tensor of {shape} along axis {at}; supported are vectors of channels before a sequence \
                 (N, T, C)",
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
