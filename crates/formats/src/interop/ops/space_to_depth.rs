//! Neighbouring pixels as channels.

use net::SpaceToDepth;
use serde_json::json;

use super::Attribute::{Int, Ints};
use super::{Code, Layer, LayerWriter, Layers, OpMapping};
use crate::interop::export::keras::layers::{inner, zeros};

/// Returns the rows and columns of zeros that complete the last squares.
fn missing(size: usize, layer: &Layer<'_>) -> [usize; 2] {
    let x = layer.x[0];
    [x.h, x.w].map(|extent| extent.next_multiple_of(size) - extent)
}

impl OpMapping for SpaceToDepth {
    /// ONNX's operator reads the pixels of a square row by row, so rows and columns are exchanged before and after it.
    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        let Self(size) = self;
        let (mut x, [rows, columns]) = (x[0].clone(), missing(*size, writer.layer));
        if rows + columns > 0 {
            let pads = writer.ints("pads", &[0, 0, 0, 0, 0, 0, rows as i64, columns as i64]);
            x = writer.node("Pad", &[x, pads], "padded", &[]);
        }
        let exchange = [("perm", Ints(&[0, 1, 3, 2]))];
        let turned = writer.node("Transpose", &[x], "turned", &exchange);
        let merged = writer.node("SpaceToDepth", &[turned], "merged", &[("blocksize", Int(*size as i64))]);
        Ok(writer.output("Transpose", &[merged], &exchange))
    }

    fn to_torch(&self, layer: &Layer<'_>, _: &str, v: &[String]) -> Result<Code, String> {
        let (Self(size), [rows, columns]) = (self, missing(self.0, layer));
        let padded = match rows + columns {
            0 => v[0].clone(),
            _ => format!("F.pad({}, (0, {columns}, 0, {rows}))", v[0]),
        };
        let y = layer.y;
        let squares = format!("{padded}.unflatten(3, ({}, {size})).unflatten(2, ({}, {size}))", y.w, y.h);
        Ok(Code::plain(format!("{squares}.permute(0, 5, 3, 1, 2, 4).flatten(1, 3)")))
    }

    fn to_keras(&self, layers: &mut Layers, layer: &Layer<'_>, x: &[usize]) -> Result<usize, String> {
        let (Self(size), y, [rows, columns]) = (self, layer.y, missing(self.0, layer));
        let from = if rows + columns > 0 { zeros(layers, layer, [0, 0, rows, columns], x[0]) } else { x[0] };
        let squares = json!({"target_shape": [y.h, size, y.w, size, layer.x[0].c]});
        let squares = layers.add(&inner(layer, "squares"), "Reshape", squares, &[from]);
        let merged = layers.add(&inner(layer, "exchange"), "Permute", json!({"dims": [1, 3, 4, 2, 5]}), &[squares]);
        Ok(layers.add(&layer.node.name, "Reshape", json!({"target_shape": [y.h, y.w, y.c]}), &[merged]))
    }

    fn reads_flat(&self, _: &[bool]) -> bool {
        false
    }

    fn is_non_negative(&self, x: &[bool]) -> bool {
        !x.contains(&false)
    }
}
