//! Convolutions. A Pad node before the convolution becomes part of its padding.

use net::{Conv, Init};
use serde_json::json;

use super::Attribute::{Int, Ints};
use super::{
    Code, Layer, LayerWriter, Layers, OpMapping, Padded, Values, blur_pool, over_channels, pair, parameter, with_relu,
};
use crate::interop::export::keras::layers::{activation, zeros};
use crate::interop::onnx::build::{Build, Fill, Layout, Operator, Padding, Value, View};
use crate::interop::onnx::graph::Node;
use crate::interop::onnx::windows::{Sizes, pads};

impl OpMapping for Conv {
    fn onnx_operators() -> &'static [Operator] {
        &[("Conv", 3, conv)]
    }

    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        let Self {
            out_channels: _,
            kernel,
            stride,
            pads,
            dilation,
            groups,
            bias: _,
            relu,
            linear: _,
            // the files contain the zeros
            key_bias: _,
            init: _,
            bias_init: _,
        } = self;
        let inputs = writer.and_weights(&x[0]);
        let attributes = [
            ("dilations", Ints(dilation)),
            ("group", Int(*groups as i64)),
            ("kernel_shape", Ints(kernel)),
            ("pads", Ints(pads)),
            ("strides", Ints(stride)),
        ];
        Ok(writer.output_with_relu("Conv", &inputs, *relu, &attributes))
    }

    fn to_torch(&self, layer: &Layer<'_>, path: &str, v: &[String]) -> Result<Code, String> {
        let Self {
            out_channels,
            kernel,
            stride,
            pads,
            dilation,
            groups,
            bias,
            relu,
            linear,
            key_bias: _,
            init: _,
            bias_init: _,
        } = self;
        let [top, left, bottom, right] = *pads;
        let even = top == bottom && left == right && !(*linear && *pads != [0; 4]);
        let (a, channels) = (&v[0], layer.x[0].c);
        let a = &if even { a.to_string() } else { format!("F.pad({a}, ({left}, {right}, {top}, {bottom}))") };
        if *linear && net::torch_name(&format!("{}.weight", layer.node.name)).is_some() {
            return projection(self, layer, a);
        }
        if *linear {
            let bias = if *bias { "" } else { ", bias=False" };
            let module = format!("nn.Linear({channels}, {out_channels}{bias})");
            return Ok(Code::module(module, with_relu(over_channels(path, a), *relu)));
        }
        let mut module = format!("nn.Conv2d({channels}, {out_channels}, {}", pair(*kernel));
        if *stride != [1, 1] {
            module += &format!(", stride={}", pair(*stride));
        }
        if even && *pads != [0; 4] {
            module += &format!(", padding={}", pair([top, left]));
        }
        if *dilation != [1, 1] {
            module += &format!(", dilation={}", pair(*dilation));
        }
        if *groups != 1 {
            module += &format!(", groups={groups}");
        }
        if !bias {
            module += ", bias=False";
        }
        Ok(Code::module(module + ")", with_relu(format!("{path}({a})"), *relu)))
    }

    fn torch_shape(&self, tensor: &Values<'_>) -> Vec<usize> {
        let dims = if self.linear { 2 } else { tensor.shape.len() };
        tensor.shape.iter().take(dims).copied().collect()
    }

    fn to_keras(&self, layers: &mut Layers, layer: &Layer<'_>, x: &[usize]) -> Result<usize, String> {
        let Self {
            out_channels,
            kernel,
            stride,
            pads,
            dilation,
            groups,
            bias,
            relu,
            linear: _,
            key_bias: _,
            init: _,
            bias_init: _,
        } = self;
        if *dilation != [1, 1] && *stride != [1, 1] {
            return Err("Keras has no convolution with both dilation and stride. Use --to onnx or safetensors".into());
        }
        let padded = Padded { window: self.extent(), stride: *stride, pads: *pads };
        let same = padded.is_same(layer.x[0]);
        let from = if same || padded.is_bare() { x[0] } else { zeros(layers, layer, *pads, x[0]) };
        let settings = json!({
            "filters": out_channels, "kernel_size": kernel, "strides": stride, "padding": if same { "same" } else { "valid" },
            "dilation_rate": dilation, "groups": groups, "use_bias": bias, "activation": activation(*relu),
        });
        layers.add_weighted(&layer.node.name, "Conv2D", settings, &[from])
    }

    fn reads_flat(&self, _: &[bool]) -> bool {
        false
    }

    fn is_non_negative(&self, _: &[bool]) -> bool {
        self.relu
    }
}

/// Returns code for a layer without a module. Its tensors are parameters of the enclosing module, as in
/// `nn.MultiheadAttention`.
fn projection(op: &Conv, layer: &Layer<'_>, a: &str) -> Result<Code, String> {
    let mut parameters = vec![("weight", format!("nn.Parameter(torch.zeros({}, {}))", op.out_channels, layer.x[0].c))];
    let mut arguments = format!("{a}.permute(0, 2, 3, 1), {}", parameter(layer, "weight")?);
    if op.bias {
        parameters.push(("bias", format!("nn.Parameter(torch.zeros({}))", op.out_channels)));
        arguments += &format!(", {}", parameter(layer, "bias")?);
    }
    let value = with_relu(format!("F.linear({arguments}).permute(0, 3, 1, 2)"), op.relu);
    Ok(Code { parameters, ..Code::plain(value) })
}

fn conv<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"])?;
    let (x, before) = input(build, node)?;
    let weight = build.constant(node, 1)?;
    let &[out_channels, _, kh, kw] = weight.dims.as_slice() else {
        return Err(format!("its weight must have 4 dimensions, got {:?}", weight.dims));
    };
    let sizes = Sizes::of(node, [kh, kw])?;
    let group = node.int("group", 1);
    let groups = usize::try_from(group).ok().filter(|n| *n > 0);
    let groups = groups.ok_or_else(|| format!("its group must be at least 1, got {group}"))?;
    let own = pads(node, before.around(build.shapes[x.id.0]), &sizes)?;
    let plain = Conv {
        out_channels,
        kernel: [kh, kw],
        stride: sizes.stride,
        dilation: sizes.dilation,
        groups,
        ..Conv::new(0, 1)
    };
    if before.fill == Fill::Mirrored {
        return blur_pool::blur(build, node, x, before, &Conv { pads: own, ..plain }, &weight.floats());
    }
    let all = std::array::from_fn(|side| own[side] + before.cells[side]);
    let mut weights = vec![("weight", weight.dims.clone(), weight.floats())];
    let mut conv = Conv { pads: all, init: Init::HeNormalFanOut, ..plain };
    if let Some(bias) = build.given(node, 2)? {
        conv = conv.bias_from(Init::UniformFanIn);
        weights.push(("bias", bias.dims.clone(), bias.floats()));
    }
    build.layer_on((Some(node.inputs[1]), node.label()), conv, x, weights).map(Value::Tensor)
}

/// Returns the input image and the padding that an earlier Pad node added.
fn input<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<(View, Padding), String> {
    match build.value(node, 0)? {
        Value::Padded(view, padding) if view.layout == Layout::Image && padding.fill != Fill::Lowest => {
            Ok((view, padding))
        }
        _ => Ok((build.image(node, 0)?, Padding::NONE)),
    }
}
