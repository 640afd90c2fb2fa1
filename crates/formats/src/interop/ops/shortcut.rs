//! The shortcut without parameters: takes pixels at a regular step and adds zero channels on both sides.

use net::Shortcut;
use serde_json::json;

use super::{Code, Layer, LayerWriter, Layers, OpMapping};
use crate::interop::export::keras::layers::{inner, zeros};
use crate::interop::onnx::build::{Build, Layout, Value};
use crate::interop::onnx::graph::Node;

impl OpMapping for Shortcut {
    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        let shape = writer.layer.x[0];
        let ([before, after], step) = (added_channels(self, writer.layer), self.stride as i64);
        let lists = [
            ("starts", vec![0, 0]),
            ("ends", vec![shape.h as i64, shape.w as i64]),
            ("axes", vec![2, 3]),
            ("steps", vec![step, step]),
            ("pads", vec![0, before as i64, 0, 0, 0, after as i64, 0, 0]),
        ];
        let [starts, ends, axes, steps, pads] = lists.map(|(what, list)| writer.ints(what, &list));
        let taken = writer.node("Slice", &[&x[0], &starts, &ends, &axes, &steps], "taken", &[]);
        Ok(writer.output("Pad", &[taken, pads], &[]))
    }

    fn to_torch(&self, layer: &Layer<'_>, _: &str, v: &[String]) -> Result<Code, String> {
        let (a, stride, [before, after]) = (&v[0], self.stride, added_channels(self, layer));
        Ok(Code::plain(format!("F.pad({a}[:, :, ::{stride}, ::{stride}], (0, 0, 0, 0, {before}, {after}))")))
    }

    /// Writes a 1x1 pool that takes the pixels. A transposition then moves the channels to the place of the rows, where
    /// zeros can be added to them.
    fn to_keras(&self, layers: &mut Layers, layer: &Layer<'_>, x: &[usize]) -> Result<usize, String> {
        let ([before, after], step) = (added_channels(self, layer), self.stride);
        let pool = json!({"pool_size": [1, 1], "strides": [step, step], "padding": "valid"});
        let taken = layers.add(&inner(layer, "take"), "AveragePooling2D", pool, x);
        let turned = layers.add(&inner(layer, "turn"), "Permute", json!({"dims": [3, 1, 2]}), &[taken]);
        let padded = zeros(layers, layer, [before, 0, after, 0], turned);
        Ok(layers.add(&layer.node.name, "Permute", json!({"dims": [2, 3, 1]}), &[padded]))
    }

    fn reads_flat(&self, _: &[bool]) -> bool {
        false
    }

    fn is_non_negative(&self, x: &[bool]) -> bool {
        !x.contains(&false)
    }
}

/// Returns the numbers of zero channels before and after the input's channels.
fn added_channels(shortcut: &Shortcut, layer: &Layer<'_>) -> [usize; 2] {
    let before = shortcut.before(layer.x[0]);
    [before, shortcut.out_channels - layer.x[0].c - before]
}

/// Reads a Pad node that adds zero channels on both sides of an image.
pub(crate) fn shortcut<'a>(
    build: &mut Build<'a>,
    node: &Node<'a>,
    [before, after]: [usize; 2],
) -> Result<Value, String> {
    let (x, stride) = match build.value(node, 0)? {
        Value::Strided(view, stride) => (view, stride),
        _ => (build.image(node, 0)?, 1),
    };
    let shape = build.shapes[x.id.0];
    let shortcut = Shortcut { out_channels: shape.c + before + after, stride };
    if x.layout != Layout::Image {
        return Err("it adds zero channels to a tensor with dimensions other than (N, C, H, W)".into());
    }
    if shortcut.before(shape) != before {
        return Err(format!(
            "it adds {before} zero channels before and {after} after the channels; expected equal numbers, or one more after than \
             before"
        ));
    }
    build.layer_on((None, node.label()), shortcut, x, Vec::new()).map(Value::Tensor)
}
