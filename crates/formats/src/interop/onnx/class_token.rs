//! The class token before a sequence.

use net::ClassToken;

use super::axes::{Axis, channels, positions};
use super::build::{Build, Value};
use super::graph::Node;

/// Largest number of tokens in a constant that is put before a sequence. Each token becomes a layer.
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
        let whole = axes.first_channel == 0 && axes.is_unscaled() && axes.pads == [0; 4] && axes.table.is_none();
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
