//! Local response normalisation (LRN).

use net::Lrn;

use super::Attribute::{Float, Int};
use super::{Code, Layer, LayerWriter, Layers, OpMapping};
use crate::interop::onnx::build::{Build, Operator, Value};
use crate::interop::onnx::graph::Node;

impl OpMapping for Lrn {
    fn onnx_operators() -> &'static [Operator] {
        &[("LRN", 1, local)]
    }

    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        let Self { radius, k, alpha, beta } = *self;
        let size = 2 * radius + 1;
        let alpha = Float(alpha * size as f32);
        let attributes = [("alpha", alpha), ("beta", Float(beta)), ("bias", Float(k)), ("size", Int(size as i64))];
        Ok(writer.output("LRN", x, &attributes))
    }

    fn to_torch(&self, _: &Layer<'_>, _: &str, v: &[String]) -> Result<Code, String> {
        let Self { radius, k, alpha, beta } = self;
        let size = 2 * radius + 1;
        let alpha = f64::from(*alpha) * size as f64;
        Ok(Code::plain(format!("F.local_response_norm({}, {size}, alpha={alpha}, beta={beta}, k={k})", v[0])))
    }

    fn to_keras(&self, _: &mut Layers, _: &Layer<'_>, _: &[usize]) -> Result<usize, String> {
        Err("Keras has no layer for local response normalisation. Use --to onnx or safetensors".into())
    }

    fn reads_flat(&self, _: &[bool]) -> bool {
        false
    }
}

fn local<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["alpha", "beta", "bias", "size"])?;
    let x = build.image(node, 0)?;
    let given = node.int("size", 0);
    let size = usize::try_from(given).ok().filter(|n| n % 2 == 1 && (3..1 << 12).contains(n));
    let size = size.ok_or_else(|| format!("its size must be odd and from 3 to 4095, got {given}"))?;
    let (alpha, beta, k) = (node.float("alpha", 1e-4) / size as f32, node.float("beta", 0.75), node.float("bias", 1.0));
    if ![alpha, beta, k].iter().all(|n| n.is_finite()) {
        return Err("its alpha, beta and bias must be finite".into());
    }
    let lrn = Lrn { radius: size / 2, k, alpha, beta };
    build.layer_on((None, node.label()), lrn, x, Vec::new()).map(Value::Tensor)
}
