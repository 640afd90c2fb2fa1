//! Layer normalisation over channels. `interop/onnx/channels.rs` recognises it if a file stores its formula as several
//! nodes.

use net::LayerNorm;
use serde_json::json;

use super::Attribute::{Float, Int, Ints};
use super::{Code, Layer, LayerWriter, Layers, OpMapping, over_channels};
use crate::interop::export::keras::layers::exact;
use crate::interop::onnx::build::{Build, Layout, Operator, Value};
use crate::interop::onnx::graph::Node;

impl OpMapping for LayerNorm {
    fn onnx_operators() -> &'static [Operator] {
        &[("LayerNormalization", 3, layer)]
    }

    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        let Self { eps } = *self;
        let attributes = [("axis", Int(-1)), ("epsilon", Float(eps))];
        let inputs = writer.and_weights(&x[0]);
        if writer.layer.flat {
            return Ok(writer.output("LayerNormalization", &inputs, &attributes));
        }
        let last = writer.node("Transpose", x, "last", &[("perm", Ints(&[0, 2, 3, 1]))]);
        let inputs = [&[last], &inputs[1..]].concat();
        let normed = writer.node("LayerNormalization", &inputs, "norm", &attributes);
        Ok(writer.output("Transpose", &[normed], &[("perm", Ints(&[0, 3, 1, 2]))]))
    }

    fn to_torch(&self, layer: &Layer<'_>, path: &str, v: &[String]) -> Result<Code, String> {
        let Self { eps } = self;
        let value = if layer.flat { format!("{path}({})", v[0]) } else { over_channels(path, &v[0]) };
        Ok(Code::module(format!("nn.LayerNorm({}, eps={eps})", layer.x[0].c), value))
    }

    fn to_keras(&self, layers: &mut Layers, layer: &Layer<'_>, x: &[usize]) -> Result<usize, String> {
        let Self { eps } = self;
        let settings = json!({"axis": [if layer.flat { 1 } else { 3 }], "epsilon": exact(*eps)});
        layers.add_weighted(&layer.node.name, "LayerNormalization", settings, x)
    }
}

fn layer<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["axis", "epsilon", "stash_type"])?;
    let x = build.any_view(node, 0)?;
    let axis = node.int("axis", -1);
    let fits = match x.layout {
        Layout::Last | Layout::Tokens | Layout::Flat => x.layout.has_channels_at(axis),
        Layout::Image | Layout::FlatLast(_) => false,
        Layout::Arranged(at) => {
            let axes = build.arrangement(at);
            axes.has_last(build.shapes[x.id.0].c) && [-1, axes.axes.len() as i64 - 1].contains(&axis)
        }
    };
    if !fits {
        return Err(format!(
            "axis {axis} of {} is not supported; only channels that come last can be normalised",
            x.layout.text()
        ));
    }
    let channels = build.shapes[x.id.0].c;
    let scale = build.constant(node, 1)?.vector();
    let bias = build.given(node, 2)?.map_or_else(|| (vec![channels], vec![0.0; channels]), |bias| bias.vector());
    let weights = vec![("weight", scale.0, scale.1), ("bias", bias.0, bias.1)];
    let norm = LayerNorm { eps: node.eps()? };
    build.layer_on((Some(node.inputs[1]), node.label()), norm, x, weights).map(Value::Tensor)
}
