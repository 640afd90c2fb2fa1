//! A learned token before a sequence.

use net::ClassToken;

use super::Attribute::Int;
use super::{Code, Layer, LayerWriter, Layers, NO_SEQUENCES, OpMapping, Values, parameter};
use crate::interop::onnx::axes::{Axis, channels, from_front, positions};
use crate::interop::onnx::build::{Build, Value};
use crate::interop::onnx::graph::Node;

impl OpMapping for ClassToken {
    /// Repeats the token for each image and puts it before the sequence.
    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        let (c, tokens) = (writer.layer.x[0].c, writer.layer.y.plane());
        // size 0 means the batch size
        let shape = writer.ints("shape", &[0, c as i64, 1, tokens as i64 - 1]);
        let rest = writer.node("Reshape", &[&x[0], &shape], "rest", &[]);
        let images = writer.node("Shape", &[&x[0]], "images", &[("end", Int(1))]);
        let vector = writer.ints("vector", &[c as i64, 1, 1]);
        let all = writer.node("Concat", &[images, vector], "all", &[("axis", Int(0))]);
        let values = writer.values("class_token");
        let token = writer.weight("class_token", &[1, c, 1, 1], &values);
        let repeated = writer.node("Expand", &[token, all], "repeated", &[]);
        Ok(writer.output("Concat", &[repeated, rest], &[("axis", Int(3))]))
    }

    fn to_torch(&self, layer: &Layer<'_>, _: &str, v: &[String]) -> Result<Code, String> {
        let (a, c, own) = (&v[0], layer.x[0].c, parameter(layer, "class_token")?);
        let token = format!("{own}.view(1, {c}, 1, 1).expand({a}.shape[0], -1, -1, -1)");
        let value = format!("torch.cat([{token}, {a}.flatten(2).unsqueeze(2)], 3)");
        let code = format!("nn.Parameter(torch.zeros(1, 1, {c}))");
        Ok(Code { parameters: vec![("class_token", code)], ..Code::plain(value) })
    }

    fn torch_shape(&self, tensor: &Values<'_>) -> Vec<usize> {
        vec![1, 1, tensor.values.len()]
    }

    fn to_keras(&self, _: &mut Layers, _: &Layer<'_>, _: &[usize]) -> Result<usize, String> {
        Err(NO_SEQUENCES.into())
    }

    fn reads_flat(&self, _: &[bool]) -> bool {
        false
    }
}

/// Largest number of tokens in a constant that is put before a sequence. Each token becomes a layer.
const MOST_TOKENS: usize = 64;

/// Puts constants before a sequence: the class token, and registers.
pub(super) fn class_token<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    let last = node.inputs.len() - 1;
    let (mut x, mut axes) = build.axes(node, last)?;
    let rank = axes.axes.len();
    let at = usize::try_from(from_front(node.int("axis", 0), rank)).unwrap_or(rank);
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
