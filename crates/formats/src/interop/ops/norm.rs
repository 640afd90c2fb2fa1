//! Batch normalisation. An ONNX file stores the form for inference. The imported layer can be trained further, and its
//! running statistics start from the file's values.

use net::Norm;
use serde_json::json;

use super::Attribute::Float;
use super::{Code, Layer, LayerWriter, Layers, OpMapping, with_relu};
use crate::interop::export::keras::layers::{exact, inner};
use crate::interop::onnx::build::{Build, Layout, Operator, Value};
use crate::interop::onnx::graph::Node;

impl OpMapping for Norm {
    fn onnx_operators() -> &'static [Operator] {
        &[("BatchNormalization", 5, batch)]
    }

    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        let Self { eps, momentum, residual, relu, scale: _, gamma: _ } = self;
        let inputs = writer.and_weights(&x[0]);
        // inference does not use the momentum, but `model = "net.onnx"` trains with it
        let attributes = [("epsilon", Float(*eps)), ("momentum", Float(complement(*momentum)))];
        if !residual {
            return Ok(writer.output_with_relu("BatchNormalization", &inputs, *relu, &attributes));
        }
        let normed = writer.node("BatchNormalization", &inputs, "norm", &attributes);
        Ok(writer.output_with_relu("Add", &[&normed, &x[1]], *relu, &[]))
    }

    fn to_torch(&self, layer: &Layer<'_>, path: &str, v: &[String]) -> Result<Code, String> {
        let Self { eps, momentum, residual, relu, scale: _, gamma: _ } = self;
        let kind = if layer.flat { "1d" } else { "2d" };
        let module = format!("nn.BatchNorm{kind}({}, eps={eps}, momentum={momentum})", layer.x[0].c);
        let value = format!("{path}({})", v[0]);
        let value = if *residual { format!("{value} + {}", v[1]) } else { value };
        Ok(Code::module(module, with_relu(value, *relu)))
    }

    fn to_keras(&self, layers: &mut Layers, layer: &Layer<'_>, x: &[usize]) -> Result<usize, String> {
        let Self { eps, momentum, residual, relu, scale, gamma: _ } = self;
        let axis = if layer.flat { 1 } else { 3 };
        let settings =
            json!({"axis": [axis], "epsilon": exact(*eps), "momentum": exact(1.0 - momentum), "scale": scale});
        let mut made = layers.add_weighted(&layer.node.name, "BatchNormalization", settings, &x[..1])?;
        if *residual {
            made = layers.add(&inner(layer, "add"), "Add", json!({}), &[made, x[1]]);
        }
        if *relu {
            made = layers.add(&inner(layer, "relu"), "ReLU", json!({}), &[made]);
        }
        Ok(made)
    }

    fn is_non_negative(&self, _: &[bool]) -> bool {
        self.relu
    }
}

/// Returns 1 - x. In ONNX, momentum is the weight of the old statistics, in trireme of the new ones. Computes with
/// decimal numbers, so that 0.9 becomes exactly 0.1.
fn complement(x: f32) -> f32 {
    (1.0 - x.to_string().parse::<f64>().unwrap_or_else(|_| f64::from(x))) as f32
}

fn batch<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["epsilon", "momentum", "spatial", "training_mode"])?;
    // before opset 14, additional outputs meant training mode
    let returns_statistics = build.graph.opset < 14 && node.outputs.iter().skip(1).any(|name| !name.is_empty());
    if node.int("training_mode", 0) != 0 || returns_statistics {
        return Err("it was exported in training mode (training_mode=1 or five outputs), where it normalises by each batch. Export \
                    model.eval() with training=torch.onnx.TrainingMode.PRESERVE and do_constant_folding=False: that keeps the layer and \
                    its running statistics"
            .into());
    }
    if node.int("spatial", 1) != 1 {
        return Err(
            "it has statistics for each element (spatial=0); only statistics for each channel are supported".into()
        );
    }
    let x = build.view(node, 0)?;
    if matches!(x.layout, Layout::Last | Layout::Tokens | Layout::FlatLast(_)) {
        return Err(format!("it reads {}, but channels must be the second dimension", x.layout.text()));
    }
    let kept = node.float("momentum", 0.9);
    if !(0.0..=1.0).contains(&kept) {
        return Err(format!("its momentum must be in [0, 1], got {kept}"));
    }
    let fields = ["weight", "bias", "running_mean", "running_var"];
    let mut weights = Vec::new();
    for (field, at) in fields.into_iter().zip(1..) {
        let (shape, values) = build.constant(node, at)?.vector();
        weights.push((field, shape, values));
    }
    let channels = build.shapes[x.id.0].c;
    if let Some((field, shape, _)) = weights.iter().find(|weight| weight.1 != [channels]) {
        return Err(format!("its {field} must have {channels} values, got {shape:?}"));
    }
    if let Some(at) = weights[3].2.iter().position(|value| *value < 0.0) {
        return Err(format!("its variance of channel {at} is negative: {}", weights[3].2[at]));
    }
    let norm = Norm { eps: node.eps()?, momentum: complement(kept), ..Norm::new() };
    build.layer_on((Some(node.inputs[1]), node.label()), norm, x, weights).map(Value::Tensor)
}
