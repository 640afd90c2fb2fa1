//! A learned token before a sequence.

use net::ClassToken;

use super::Attribute::Int;
use super::{Code, Layer, LayerWriter, Layers, NO_SEQUENCES, OpMapping, Values, parameter};

impl OpMapping for ClassToken {
    /// Repeats the token for each image and puts it before the sequence.
    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        let (c, tokens) = (writer.layer.x[0].c, writer.layer.y.plane());
        // size 0 means the batch size
        let shape = writer.ints("shape", &[0, c as i64, 1, tokens as i64 - 1]);
        let rest = writer.node("Reshape", &[&x[0], &shape], "rest", &[]);
        let images = writer.node("Shape", &[&x[0]], "images", &[("end", Int(1))]);
        let vector = writer.ints("vector", &[c as i64, 1, 1]);
        let all = writer.node("Concat", &[images, vector], "all", &[("axis", Int(0))]);
        let values = writer.values("class_token");
        let token = writer.weight("class_token", &[1, c, 1, 1], &values);
        let repeated = writer.node("Expand", &[token, all], "repeated", &[]);
        Ok(writer.output("Concat", &[repeated, rest], &[("axis", Int(3))]))
    }

    fn to_torch(&self, layer: &Layer<'_>, _: &str, v: &[String]) -> Result<Code, String> {
        let (a, c, (module, name)) = (&v[0], layer.x[0].c, parameter(layer, "class_token")?);
        let token = format!("{module}.{name}.view(1, {c}, 1, 1).expand({a}.shape[0], -1, -1, -1)");
        let value = format!("torch.cat([{token}, {a}.flatten(2).unsqueeze(2)], 3)");
        let code = format!("nn.Parameter(torch.zeros(1, 1, {c}))");
        Ok(Code { parameters: vec![("class_token", code)], ..Code::plain(value) })
    }

    fn torch_shape(&self, tensor: &Values<'_>) -> Vec<usize> {
        vec![1, 1, tensor.values.len()]
    }

    fn to_keras(&self, _: &mut Layers, _: &Layer<'_>, _: &[usize]) -> Result<usize, String> {
        Err(NO_SEQUENCES.into())
    }

    fn reads_flat(&self, _: &[bool]) -> bool {
        false
    }
}
