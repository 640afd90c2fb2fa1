//! Multi-head self-attention.

use net::Attention;

use super::Attribute::{Int, Ints};
use super::{Code, Layer, LayerWriter, Layers, NO_SEQUENCES, OpMapping};

impl OpMapping for Attention {
    /// Computes in the order (images, heads, channels, positions), so that only the softmax needs a transposition.
    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        let (Self { heads }, shape) = (*self, writer.layer.x[0]);
        let channels = self.head_channels(shape.c);
        let [heads, d, plane] = [heads, channels, shape.plane()].map(|size| size as i64);
        // size 0 means the batch size
        let parts = writer.ints("parts", &[0, 3 * heads, d, plane]);
        let parts = writer.node("Reshape", &[&x[0], &parts], "heads", &[]);
        let axis = writer.ints("axis", &[1]);
        let [queries, keys, values] = [("queries", 0), ("keys", 1), ("values", 2)].map(|(part, number)| {
            let ends = [("starts", number * heads), ("ends", (number + 1) * heads)];
            let [starts, ends] = ends.map(|(what, value)| writer.ints(&format!("{part}.{what}"), &[value]));
            writer.node("Slice", &[&parts, &starts, &ends, &axis], part, &[])
        });
        let turned = [("perm", Ints(&[0, 1, 3, 2]))];
        let scale = writer.floats("scale", &[], &[self.scale(shape.c) as f32]);
        let queries = writer.node("Mul", &[queries, scale], "scaled", &[]);
        let queries = writer.node("Transpose", &[queries], "turned", &turned);
        let products = writer.node("MatMul", &[queries, keys], "products", &[]);
        let weights = writer.node("Softmax", &[products], "softmax", &[("axis", Int(-1))]);
        let weights = writer.node("Transpose", &[weights], "weights", &turned);
        let sums = writer.node("MatMul", &[values, weights], "sums", &[]);
        let whole = writer.ints("whole", &[0, heads * d, shape.h as i64, shape.w as i64]);
        Ok(writer.output("Reshape", &[sums, whole], &[]))
    }

    fn to_torch(&self, layer: &Layer<'_>, _: &str, v: &[String]) -> Result<Code, String> {
        let (Self { heads }, shape) = (self, layer.x[0]);
        let channels = self.head_channels(shape.c);
        let parts = format!("{}.view(-1, 3, {heads}, {channels}, {}).transpose(3, 4).unbind(1)", v[0], shape.plane());
        let value = format!("F.scaled_dot_product_attention(*{parts}).transpose(2, 3)");
        Ok(Code::plain(format!("{value}.reshape(-1, {}, {}, {})", heads * channels, shape.h, shape.w)))
    }

    fn to_keras(&self, _: &mut Layers, _: &Layer<'_>, _: &[usize]) -> Result<usize, String> {
        Err(NO_SEQUENCES.into())
    }

    fn reads_flat(&self, _: &[bool]) -> bool {
        false
    }
}
