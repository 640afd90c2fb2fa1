//! Attention over a whole image or in windows. The graph computes it with separate nodes.

use std::rc::Rc;

use net::{Attention, Channels, Concat, Conv, Id, Op, PositionBias, Shape};

use super::axes::{Axes, Axis, Dimension, Size, Stride, channels, size};
use super::build::{Build, Part, Scores, Value, Weight};
use super::graph::Node;
use super::terms::Terms;

const SUPPORTED: &str = "supported is softmax(factor * Q * K + bias) * V over all positions or in windows, where the bias only depends on \
                         the head and on the row and column difference, and only shifted windows have a mask";

impl Part {
    /// Finds the heads and their channels in a tensor. `outer` are its axes before positions and channels, and `width` has
    /// the channels of one head.
    fn new((id, axes): &(Id, Axes), outer: &[Axis], width: &Axis) -> Result<Self, String> {
        let size = |stride: &Stride| stride.size;
        let all: Vec<Stride> =
            outer.iter().flatten().filter(|stride| stride.of == Dimension::Channels).copied().collect();
        let [heads, width] = [all.first().map_or(1, size), width.first().map_or(1, size)];
        let own: Vec<Stride> =
            if heads == 1 { Vec::new() } else { vec![Stride { of: Dimension::Channels, size: heads, step: width }] };
        if all != own {
            return Err("it computes attention, but the channels of each head must follow each other".into());
        }
        if axes.pads != [0; 4] {
            return Err("it computes attention over a padded tensor without a linear layer between both".into());
        }
        Ok(Self { id: *id, first_channel: axes.first_channel, heads, width })
    }

    fn channels(self) -> usize {
        self.heads * self.width
    }

    /// If layers have selected these channels from another tensor, returns the channels of that tensor.
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
            return scores(&queries, &keys).map(|scores| Value::Scores(Rc::new(scores)));
        }
    };
    let given = build.axes(node, values)?;
    let (id, axes) = attended(build, node, &scores, &given)?;
    build.settled(node.label(), id, axes)
}

/// Reads the two products of attention as Einsum writes them, for example "bhid,bhjd->bhij" and "bhij,bhjd->bhid".
pub(crate) fn einsum<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["equation"])?;
    let equation: Vec<char> = node.text("equation").chars().filter(|letter| !letter.is_whitespace()).collect();
    let parts = equation.iter().collect::<String>();
    let letters = |text: &str| text.chars().collect::<Vec<char>>();
    let parts = parts.split_once("->").and_then(|(from, to)| Some((from.split_once(',')?, letters(to))));
    let unknown = || format!("its equation \"{}\" is not supported; {SUPPORTED}", node.text("equation"));
    let ((a, b), to) = parts.ok_or_else(unknown)?;
    let (a, b) = (letters(a), letters(b));
    let ([outer @ .., i, d], [other @ .., j, k], [same @ .., m, n]) = (&a[..], &b[..], &to[..]) else {
        return Err(unknown());
    };
    let distinct = !outer.contains(i) && !outer.contains(d) && !outer.contains(j) && !outer.contains(k);
    let distinct = distinct && (1..outer.len()).all(|at| !outer[at..].contains(&outer[at - 1]));
    match outer == other && outer == same && distinct && !outer.contains(&'.') && i != j && i != d {
        true if d == k && (m, n) == (i, j) => {
            let [queries, (id, keys)] = [build.axes(node, 0)?, build.axes(node, 1)?];
            let keys = (id, keys.last_exchanged()?);
            scores(&queries, &keys).map(|scores| Value::Scores(Rc::new(scores)))
        }
        true if d == j && (m, n) == (i, k) => product(build, node),
        _ => Err(unknown()),
    }
}

fn not_attention() -> String {
    format!("it multiplies two tensors of the network, but is not attention; {SUPPORTED}")
}

/// Multiplies queries (..., T, C) and keys (..., C, T).
fn scores(queries: &(Id, Axes), keys: &(Id, Axes)) -> Result<Scores, String> {
    let ([outer @ .., place, width], [others @ .., depth, other]) = (&queries.1.axes[..], &keys.1.axes[..]) else {
        return Err(not_attention());
    };
    let cosine = queries.1.unit.is_some();
    let normed = |axes: &Axes| axes.unit.as_ref().is_none_or(|unit| unit == width);
    if outer != others || width != depth || place != other || !is_channels(width) || !is_same_plane(&queries.1, &keys.1)
    {
        return Err(not_attention());
    }
    if cosine != keys.1.unit.is_some() || !normed(&queries.1) || !normed(&keys.1) {
        return Err(
            "it must divide both queries and keys by their norms over the channels of a head, or neither".into()
        );
    }
    Ok(Scores {
        queries: Part::new(queries, outer, width)?,
        keys: Part::new(keys, outer, width)?,
        axes: Axes {
            axes: [outer, &[place.clone(), place.clone()]].concat(),
            first_channel: 0,
            factor: 1.0,
            unit: None,
            ..queries.1.clone()
        },
        factor: queries.1.factor * keys.1.factor,
        cosine,
        terms: Terms::default(),
        is_softmax: false,
        transposed: false,
    })
}

/// Returns true if both tensors have the same positions, padding and list of positions.
fn is_same_plane(a: &Axes, b: &Axes) -> bool {
    a.first_position == b.first_position && a.table == b.table && a.pads == b.pads
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
    let same =
        scores.axes.axes.split_last().is_some_and(|(_, rest)| *rest == [outer, std::slice::from_ref(place)].concat());
    if !same || !is_channels(width) || !is_same_plane(&scores.axes, &values.1) {
        return Err("its values must have the same images, heads and positions as queries and keys".into());
    }
    if !values.1.is_unscaled() {
        return Err("it multiplies the values by a number, but only queries and keys can be multiplied".into());
    }
    let part = Part::new(values, outer, width)?;
    let (id, crop) = layer(build, node, scores, part)?;
    let mut axes = scores.axes.clone();
    axes.axes.truncate(outer.len());
    let width = channels(part.width);
    axes.axes.extend(if scores.transposed { [width, place.clone()] } else { [place.clone(), width] });
    if crop != [0; 2] {
        let (y, before) = (build.shapes[id.0], build.shapes[part.id.0]);
        let count = axes.table.as_ref().map_or(before.plane(), |table| table.len());
        build.take(size_of::<u32>() * count)?;
        axes = axes.cropped(before, y);
    }
    Ok((id, axes))
}

/// Adds an attention layer. Also adds a layer that joins queries, keys and values, unless they come from the same tensor.
/// Returns the output, and the number of rows and columns that were cropped at the end.
fn layer<'a>(
    build: &mut Build<'a>,
    node: &Node<'a>,
    scores: &Scores,
    values: Part,
) -> Result<(Id, [usize; 2]), String> {
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
    let cells = scores.axes.cells();
    build.take(size_of::<u32>() * cells.count()?)?;
    let plain = in_windows(build.shapes[queries.id.0], &cells, scores, heads)?;
    let crop = match build.maker(queries.id).map(|place| &build.net.nodes[place].op) {
        Some(Op::Conv(Conv { pads: [0, 0, rows, columns], kernel: [1, 1], stride: [1, 1], .. }))
            if plain.window.is_some() && parts.iter().all(|part| part.id == queries.id) =>
        {
            [*rows, *columns]
        }
        _ => [0; 2],
    };
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
    let op = Attention { crop, ..plain };
    let (op, weights) = with_terms(build, op, x, scores)?;
    Ok((build.layer((None, node.label()), op, &[x], weights)?, crop))
}

/// Returns the attention layer that uses these positions as its windows.
fn in_windows(x: Shape, cells: &Axes, scores: &Scores, heads: usize) -> Result<Attention, String> {
    let places = cells.places()?;
    let area = scores.axes.axes.last().map_or(0, |axis| size(axis));
    let whole = places.len() == area && places.iter().enumerate().all(|(at, place)| at == *place as usize);
    if whole && area == x.plane() && scores.terms.is_empty() && !scores.cosine {
        return Ok(Attention::new(heads));
    }
    let first = places.first().map_or(0, |place| *place as usize);
    let sizes = (1..=area.min(x.h)).filter(|rows| area.is_multiple_of(*rows)).map(|rows| [rows, area / rows]);
    let divides = |[rows, columns]: &[usize; 2]| x.h.is_multiple_of(*rows) && x.w.is_multiple_of(*columns);
    let shift = |grid: bool| if grid { [0; 2] } else { [first / x.w, first % x.w] };
    let layer = |(window, grid): ([usize; 2], bool)| Attention {
        window: Some(window),
        shift: shift(grid),
        grid,
        ..Attention::new(heads)
    };
    // a window that covers the image is also a grid, so windows are tried first
    let found = sizes.filter(divides).flat_map(|size| [(size, false), (size, true)]).find(|(window, grid)| {
        let [down, right] = shift(*grid);
        let windows = layer((*window, *grid)).windows(x);
        let fits = down < window[0] && right < window[1] && windows.count() * area == places.len();
        fits && places.iter().enumerate().all(|(at, place)| windows.input(at / area, at % area) == *place as usize)
    });
    found.map(layer).ok_or_else(|| {
        format!(
            "it computes attention over {area} positions of a {}x{} image, but these positions are not a window, a shifted window or a \
             grid in row-major order",
            x.h, x.w
        )
    })
}

/// Adds the factors, the bias and the mask to the layer, and returns its weights.
fn with_terms(
    build: &mut Build<'_>,
    mut op: Attention,
    x: Id,
    scores: &Scores,
) -> Result<(Attention, Vec<Weight>), String> {
    let (Scores { terms, .. }, heads) = (scores, op.heads);
    let (shape, mut weights) = (build.shapes[x.0], Vec::new());
    let windows = op.windows(shape);
    if !terms.masks_parts(&windows) {
        return Err("in shifted windows, it must add -100 to the attention scores of positions from opposite sides of the image, and \
                    otherwise 0. Other masks are not supported"
            .into());
    }
    let factor = scores.factor as f32;
    let usual = 1.0 / (scores.queries.width as f32).sqrt();
    op.scale = (!scores.cosine && (factor - usual).abs() > 1e-5 * usual).then_some(factor);
    if !factor.is_finite() {
        return Err(format!("it multiplies attention scores by {factor}"));
    }
    if !scores.cosine && terms.factors.is_some() {
        return Err(format!("it multiplies the attention scores of each head by a different number; {SUPPORTED}"));
    }
    op.cosine = scores.cosine;
    if op.cosine {
        weights.push(("logit_scale", vec![heads], terms.logit_scale(scores.factor, heads)?));
    }
    let table = terms.table(&windows, heads)?;
    let network = match (&table, &terms.network) {
        (Some(table), Some(network)) => network.parameters(&windows, heads, table),
        _ => None,
    };
    match (table, network) {
        (_, Some((hidden, [first, bias, second]))) => {
            op.position_bias = Some(PositionBias::Continuous(hidden));
            weights.push(("cpb_mlp.0.weight", vec![hidden, 2], first));
            weights.push(("cpb_mlp.0.bias", vec![hidden], bias));
            weights.push(("cpb_mlp.2.weight", vec![heads, hidden], second));
        }
        (Some(table), None) => {
            op.position_bias = Some(PositionBias::Table);
            weights.push(("relative_position_bias_table", vec![windows.differences(), heads], table));
        }
        (None, _) => {}
    }
    Ok((op, weights))
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
            let split =
                axes.clone().reshaped(&[images, tokens, Size::Number(node.int(heads, 0)), Size::Number(-1)], varies)?;
            *axes = split.transposed(&[0, 2, 1, 3])?;
        }
    }
    let [queries, (id, keys), values] = parts;
    let usual = 1.0 / (keys.size(-1)? as f32).sqrt();
    let keys = (id, keys.last_exchanged()?);
    let mut scores = scores(&queries, &keys)?;
    scores.factor *= f64::from(if node.has("scale") { node.float("scale", 0.0) } else { usual });
    let (id, mut axes) = attended(build, node, &scores, &values)?;
    if flat {
        let shape = build.shapes[id.0];
        let sizes = [Size::N, Size::Number(shape.plane() as i64), Size::Number(shape.c as i64)];
        axes = axes.transposed(&[0, 2, 1, 3])?.reshaped(&sizes, varies)?;
    }
    build.settled(node.label(), id, axes)
}
