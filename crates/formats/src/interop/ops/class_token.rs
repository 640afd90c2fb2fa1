//! A learned token before a sequence.

use net::ClassToken;

use super::{Code, Layer, LayerWriter, Layers, NO_SEQUENCES, OpMapping, Values, parameter};

impl OpMapping for ClassToken {
    /// Pads the sequence with zeros at the front and adds the token to them.
    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        let (c, tokens) = (writer.layer.x[0].c, writer.layer.y.plane());
        // size 0 means the batch size
        let shape = writer.ints("shape", &[0, c as i64, 1, tokens as i64 - 1]);
        let rest = writer.node("Reshape", &[&x[0], &shape], "rest", &[]);
        let pads = writer.ints("pads", &[0, 0, 0, 1, 0, 0, 0, 0]);
        let padded = writer.node("Pad", &[rest, pads], "padded", &[]);
        let mut first = vec![0.0; c * tokens];
        for (row, value) in first.chunks_exact_mut(tokens).zip(writer.values("class_token")) {
            row[0] = value;
        }
        let first = writer.weight("class_token", &[c, 1, tokens], &first);
        Ok(writer.output("Add", &[padded, first], &[]))
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
