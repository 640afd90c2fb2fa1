//! Channel ranges and the channel shuffle.

use net::Channels;
use serde_json::json;

use super::Attribute::Ints;
use super::{Code, Layer, LayerWriter, Layers, OpMapping};
use crate::interop::export::keras::layers::inner;

impl OpMapping for Channels {
    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        let (Self { first, count, groups }, shape) = (*self, writer.layer.x[0]);
        let mut taken = x[0].clone();
        if count < shape.c || groups == 1 {
            let lists = [("starts", first), ("ends", first + count), ("axes", 1)];
            let [starts, ends, axes] = lists.map(|(what, n)| writer.ints(what, &[n as i64]));
            let inputs = [taken, starts, ends, axes];
            if groups == 1 {
                return Ok(writer.output("Slice", &inputs, &[]));
            }
            taken = writer.node("Slice", &inputs, "taken", &[]);
        }
        let [groups, each, count, h, w] = [groups, count / groups, count, shape.h, shape.w].map(|n| n as i64);
        // size 0 means the batch size
        let (divided, whole) =
            (writer.ints("divided", &[0, groups, each, h, w]), writer.ints("whole", &[0, count, h, w]));
        let blocks = writer.node("Reshape", &[taken, divided], "blocks", &[]);
        let exchanged = writer.node("Transpose", &[blocks], "exchanged", &[("perm", Ints(&[0, 2, 1, 3, 4]))]);
        Ok(writer.output("Reshape", &[exchanged, whole], &[]))
    }

    fn to_torch(&self, _: &Layer<'_>, _: &str, v: &[String]) -> Result<Code, String> {
        let Self { first, count, groups } = self;
        let taken = format!("{}[:, {first}:{}]", v[0], first + count);
        Ok(Code::plain(match groups {
            1 => taken,
            _ => format!("{taken}.unflatten(1, ({groups}, {})).transpose(1, 2).flatten(1, 2)", count / groups),
        }))
    }

    /// Removes channels with a crop. Keras can crop only rows and columns, so a transposition first moves the channels
    /// to the place of the rows.
    fn to_keras(&self, layers: &mut Layers, layer: &Layer<'_>, x: &[usize]) -> Result<usize, String> {
        let (Self { first, count, groups }, shape) = (*self, layer.x[0]);
        let mut from = x[0];
        if count < shape.c || groups == 1 {
            let name = if groups == 1 { layer.node.name.clone() } else { inner(layer, "range") };
            let turned = layers.add(&inner(layer, "turn"), "Permute", json!({"dims": [3, 1, 2]}), &[from]);
            let cropping = json!({"cropping": [[first, shape.c - first - count], [0, 0]]});
            let cropped = layers.add(&inner(layer, "crop"), "Cropping2D", cropping, &[turned]);
            from = layers.add(&name, "Permute", json!({"dims": [2, 3, 1]}), &[cropped]);
        }
        if groups == 1 {
            return Ok(from);
        }
        let (h, w, each) = (shape.h, shape.w, count / groups);
        let divided = json!({"target_shape": [h, w, groups, each]});
        let divided = layers.add(&inner(layer, "divide"), "Reshape", divided, &[from]);
        let exchanged = layers.add(&inner(layer, "exchange"), "Permute", json!({"dims": [1, 2, 4, 3]}), &[divided]);
        Ok(layers.add(&layer.node.name, "Reshape", json!({"target_shape": [h, w, count]}), &[exchanged]))
    }

    fn reads_flat(&self, _: &[bool]) -> bool {
        false
    }

    fn is_non_negative(&self, x: &[bool]) -> bool {
        !x.contains(&false)
    }
}
