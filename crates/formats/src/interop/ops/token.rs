//! Selects a single token from a sequence.

use net::Token;

use super::{Code, Layer, LayerWriter, Layers, NO_SEQUENCES, OpMapping};

impl OpMapping for Token {
    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        let (c, plane) = (writer.layer.x[0].c as i64, writer.layer.x[0].plane() as i64);
        // size 0 means the batch size
        let shape = writer.ints("shape", &[0, c, plane, 1]);
        let tokens = writer.node("Reshape", &[&x[0], &shape], "tokens", &[]);
        let [starts, ends, axes] = [("starts", self.0 as i64), ("ends", self.0 as i64 + 1), ("axes", 2)]
            .map(|(what, value)| writer.ints(what, &[value]));
        Ok(writer.output("Slice", &[tokens, starts, ends, axes], &[]))
    }

    fn to_torch(&self, _: &Layer<'_>, _: &str, v: &[String]) -> Result<Code, String> {
        Ok(Code::plain(format!("{}.flatten(2)[:, :, {}, None, None]", v[0], self.0)))
    }

    fn to_keras(&self, _: &mut Layers, _: &Layer<'_>, _: &[usize]) -> Result<usize, String> {
        Err(NO_SEQUENCES.into())
    }

    fn reads_flat(&self, _: &[bool]) -> bool {
        false
    }

    fn is_non_negative(&self, x: &[bool]) -> bool {
        !x.contains(&false)
    }
}
