//! Dropout, which does nothing in inference.

use net::Dropout;
use serde_json::json;

use super::{Code, Layer, LayerWriter, Layers, OpMapping};
use crate::interop::onnx::build::{Build, Operator, Value};
use crate::interop::onnx::graph::Node;

impl OpMapping for Dropout {
    fn onnx_operators() -> &'static [Operator] {
        &[("Dropout", 3, dropout)]
    }

    /// Adds a node that does nothing in inference. `model = "net.onnx"` reads the rate from it.
    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        let ratio = writer.floats("ratio", &[], &[self.0]);
        Ok(writer.output("Dropout", &[&x[0], &ratio], &[]))
    }

    fn to_torch(&self, _: &Layer<'_>, _: &str, v: &[String]) -> Result<Code, String> {
        Ok(Code::plain(format!("F.dropout({}, {}, self.training)", v[0], self.0)))
    }

    fn to_keras(&self, layers: &mut Layers, layer: &Layer<'_>, x: &[usize]) -> Result<usize, String> {
        Ok(layers.add(&layer.node.name, "Dropout", json!({"rate": self.0}), x))
    }

    fn is_non_negative(&self, x: &[bool]) -> bool {
        !x.contains(&false)
    }
}

/// Imports a dropout layer. It is active again when the network is trained.
fn dropout<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["ratio", "seed"])?;
    let x = build.view(node, 0)?;
    // the ratio was an attribute before opset 12
    let usual = f64::from(node.float("ratio", 0.5));
    let ratio = build.given(node, 1)?.map_or(Some(usual), |ratio| ratio.scalar());
    let rate = ratio.filter(|ratio| (0.0..1.0).contains(ratio)).ok_or_else(|| {
        let got = ratio.map_or("no single number".to_string(), |ratio| ratio.to_string());
        format!("its ratio must be in [0, 1), got {got}")
    })?;
    build.layer_on((None, node.label()), Dropout(rate as f32), x, Vec::new()).map(Value::Tensor)
}
