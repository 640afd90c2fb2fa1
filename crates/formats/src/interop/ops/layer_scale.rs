//! A learned factor for each channel. `interop/onnx/channels.rs` imports products with a weight as this op.

use net::LayerScale;

use super::{Code, Layer, LayerWriter, Layers, OpMapping, Values, parameter};

impl OpMapping for LayerScale {
    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        let factors = writer.per_channel("layer_scale");
        Ok(writer.output("Mul", &[&x[0], &factors], &[]))
    }

    fn to_torch(&self, layer: &Layer<'_>, _: &str, v: &[String]) -> Result<Code, String> {
        let code = format!("nn.Parameter(torch.ones({}, 1, 1))", layer.x[0].c);
        let own = parameter(layer, "layer_scale")?;
        let own = if layer.flat { format!("torch.flatten({own})") } else { own };
        Ok(Code { parameters: vec![("layer_scale", code)], ..Code::plain(format!("{} * {own}", v[0])) })
    }

    fn torch_shape(&self, tensor: &Values<'_>) -> Vec<usize> {
        vec![tensor.values.len(), 1, 1]
    }

    fn to_keras(&self, _: &mut Layers, _: &Layer<'_>, _: &[usize]) -> Result<usize, String> {
        Err("Keras has no layer that learns a factor for each channel. Use --to onnx or safetensors".into())
    }
}
