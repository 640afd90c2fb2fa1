//! A learned vector for each position.

use net::PositionEmbedding;

use super::{Code, Layer, LayerWriter, Layers, NO_SEQUENCES, OpMapping, Values, parameter};

impl OpMapping for PositionEmbedding {
    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        let (shape, values) = (writer.layer.x[0], writer.values("pos_embedding"));
        let turned: Vec<f32> = (0..shape.c).flat_map(|c| values.iter().skip(c).step_by(shape.c)).copied().collect();
        let vectors = writer.weight("pos_embedding", &[shape.c, shape.h, shape.w], &turned);
        Ok(writer.output("Add", &[&x[0], &vectors], &[]))
    }

    fn to_torch(&self, layer: &Layer<'_>, _: &str, v: &[String]) -> Result<Code, String> {
        let (shape, own) = (layer.x[0], parameter(layer, "pos_embedding")?);
        let vectors = format!("{own}.transpose(1, 2).unflatten(2, ({}, {}))", shape.h, shape.w);
        let code = format!("nn.Parameter(torch.zeros(1, {}, {}))", shape.plane(), shape.c);
        Ok(Code { parameters: vec![("pos_embedding", code)], ..Code::plain(format!("{} + {vectors}", v[0])) })
    }

    fn torch_shape(&self, tensor: &Values<'_>) -> Vec<usize> {
        [&[1], tensor.shape].concat()
    }

    fn to_keras(&self, _: &mut Layers, _: &Layer<'_>, _: &[usize]) -> Result<usize, String> {
        Err(NO_SEQUENCES.into())
    }

    fn reads_flat(&self, _: &[bool]) -> bool {
        false
    }
}
