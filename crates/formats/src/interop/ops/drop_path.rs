//! Stochastic depth, which does nothing in inference. No ONNX operator is imported as this op.

use net::DropPath;
use serde_json::json;

use super::{Code, Layer, LayerWriter, Layers, OpMapping};

impl OpMapping for DropPath {
    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        Ok(writer.output("Identity", x, &[]))
    }

    fn to_torch(&self, layer: &Layer<'_>, _: &str, v: &[String]) -> Result<Code, String> {
        let (a, ones) = (&v[0], if layer.flat { "1" } else { "1, 1, 1" });
        Ok(Code::plain(format!("{a} * F.dropout({a}.new_ones(len({a}), {ones}), {}, self.training)", self.0)))
    }

    fn to_keras(&self, layers: &mut Layers, layer: &Layer<'_>, x: &[usize]) -> Result<usize, String> {
        let shape = if layer.flat { json!([null, 1]) } else { json!([null, 1, 1, 1]) };
        Ok(layers.add(&layer.node.name, "Dropout", json!({"rate": self.0, "noise_shape": shape}), x))
    }

    fn is_non_negative(&self, x: &[bool]) -> bool {
        !x.contains(&false)
    }
}
