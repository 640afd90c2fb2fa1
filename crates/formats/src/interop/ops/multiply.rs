//! Products of a tensor and one factor per channel, where another layer computes the factors.

use net::Multiply;
use serde_json::json;

use super::{Code, Layer, LayerWriter, Layers, OpMapping};
use crate::interop::onnx::build::Operator;
use crate::interop::onnx::function::Binary;
use crate::interop::onnx::operators::element::binary;

impl OpMapping for Multiply {
    fn onnx_operators() -> &'static [Operator] {
        &[("Mul", 2, |build, node| binary(build, node, Binary::Mul))]
    }

    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        Ok(writer.output("Mul", x, &[]))
    }

    fn to_torch(&self, _: &Layer<'_>, _: &str, v: &[String]) -> Result<Code, String> {
        Ok(Code::plain(format!("{} * {}", v[0], v[1])))
    }

    fn to_keras(&self, layers: &mut Layers, layer: &Layer<'_>, x: &[usize]) -> Result<usize, String> {
        Ok(layers.add(&layer.node.name, "Multiply", json!({}), x))
    }

    /// Returns true if the first input is a vector. The factors, which are the second input, are converted to the
    /// dimensions of the first input. The first input cannot become a vector if it has many pixels.
    fn reads_flat(&self, x: &[bool]) -> bool {
        x[0]
    }

    fn is_non_negative(&self, x: &[bool]) -> bool {
        !x.contains(&false)
    }
}
