//! Blur pooling: convolves each channel with a binomial filter and mirrors the image at its edges.

use net::{BlurPool, Conv};

use super::Attribute::{Int, Ints, Text};
use super::{Code, Layer, LayerWriter, Layers, OpMapping};
use crate::interop::onnx::build::{Build, Padding, Value, View};
use crate::interop::onnx::graph::Node;

impl OpMapping for BlurPool {
    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        let Self { size, stride } = *self;
        let channels = writer.layer.x[0].c;
        let pad = mirrored_cells(self) as i64;
        let pads = writer.ints("pads", &[0, 0, pad, pad, 0, 0, pad, pad]);
        let weight = writer.floats("filter", &[channels, 1, size, size], &plane(self).repeat(channels));
        let padded = writer.node("Pad", &[&x[0], &pads], "padded", &[("mode", Text("reflect"))]);
        let attributes = [
            ("group", Int(channels as i64)),
            ("kernel_shape", Ints(&[size, size])),
            ("strides", Ints(&[stride, stride])),
        ];
        Ok(writer.output("Conv", &[padded, weight], &attributes))
    }

    fn to_torch(&self, layer: &Layer<'_>, _: &str, v: &[String]) -> Result<Code, String> {
        let (a, c, k, stride, pad) = (&v[0], layer.x[0].c, self.size, self.stride, mirrored_cells(self));
        let weights: Vec<String> = self.weights().iter().map(|weight| format!("{weight:?}")).collect();
        let row = format!("{a}.new_tensor([{}])", weights.join(", "));
        Ok(Code::plain(format!(
            "F.conv2d(F.pad({a}, ({pad},) * 4, mode=\"reflect\"), torch.outer({row}, {row}).expand({c}, 1, {k}, {k}), stride={stride}, \
             groups={c})"
        )))
    }

    fn to_keras(&self, _: &mut Layers, _: &Layer<'_>, _: &[usize]) -> Result<usize, String> {
        Err("Keras has no blur pooling layer. Use --to onnx or safetensors".into())
    }

    fn reads_flat(&self, _: &[bool]) -> bool {
        false
    }

    fn is_non_negative(&self, x: &[bool]) -> bool {
        !x.contains(&false)
    }
}

/// Returns the number of mirrored rows or columns on each side.
fn mirrored_cells(blur: &BlurPool) -> usize {
    (blur.stride + blur.size).saturating_sub(2) / 2
}

/// Returns the filter in row-major order.
fn plane(blur: &BlurPool) -> Vec<f32> {
    let row = blur.weights();
    row.iter().flat_map(|down| row.iter().map(move |across| down * across)).collect()
}

/// Reads a convolution with mirrored padding. Only blur pooling is supported.
pub(super) fn blur<'a>(
    build: &mut Build<'a>,
    node: &Node<'a>,
    x: View,
    before: Padding,
    conv: &Conv,
    weight: &[f32],
) -> Result<Value, String> {
    let (size, stride) = (conv.kernel[0], conv.stride[0]);
    let blur = BlurPool { size: size.min(63), stride };
    let plane = plane(&blur);
    let channels = build.shapes[x.id.0].c;
    let cells = (stride + size).saturating_sub(2) / 2;
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-6;
    let same = conv.kernel == [blur.size; 2]
        && conv.stride == [stride; 2]
        && conv.dilation == [1, 1]
        && conv.pads == [0; 4]
        && before.cells == [cells; 4]
        && conv.groups == channels
        && conv.out_channels == channels
        && weight.len() == plane.len() * channels
        && weight.chunks(plane.len()).all(|filter| filter.iter().zip(&plane).all(near))
        && !Build::has(node, 2);
    if !same {
        return Err(
            "its input is padded with mirrored cells (mode=reflect), which is supported only for blur pooling. Pad with zeros".into(),
        );
    }
    build.layer_on((None, node.label()), blur, x, Vec::new()).map(Value::Tensor)
}
