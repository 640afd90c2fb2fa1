//! Convolutions; a fixed blur is one, too.

use net::{BlurPool, Conv, Init};

use crate::interop::onnx::build::Build;
use crate::interop::onnx::graph::Node;
use crate::interop::onnx::handler::Operator;
use crate::interop::onnx::value::{Layout, Padding, Value, View};
use crate::interop::onnx::windows::{Sizes, pads};

pub(super) const OPERATORS: &[Operator] = &[("Conv", 3, conv)];

fn conv<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"])?;
    let (x, before) = input(build, node)?;
    let weight = build.constant(node, 1)?;
    let &[out_channels, _, kh, kw] = weight.dims.as_slice() else {
        return Err(format!("its weight must have 4 dimensions, got {:?}", weight.dims));
    };
    let sizes = Sizes::of(node, [kh, kw])?;
    let groups = usize::try_from(node.int("group", 1)).ok().filter(|n| *n > 0).ok_or("its group must be 1 at least")?;
    let own = pads(node, before.around(build.shapes[x.id.0]), &sizes)?;
    let plain = Conv {
        out_channels,
        kernel: [kh, kw],
        stride: sizes.stride,
        dilation: sizes.dilation,
        groups,
        ..Conv::new(0, 1)
    };
    if before.mirrored {
        return blur(build, node, x, before, &Conv { pads: own, ..plain }, &weight.floats());
    }
    let all = std::array::from_fn(|side| own[side] + before.cells[side]);
    let mut weights = vec![("weight", weight.dims.clone(), weight.floats())];
    let mut conv = Conv { pads: all, init: Init::HeNormalFanOut, ..plain };
    if let Some(bias) = build.given(node, 2)? {
        conv = conv.bias_from(Init::UniformFanIn);
        weights.push(("bias", bias.dims.clone(), bias.floats()));
    }
    let id = build.layer((Some(node.inputs[1]), node.label()), conv, &[x.id], weights)?;
    Ok(Value::Tensor(View { id, ..x }))
}

/// Its image, and the cells that were added around it.
fn input<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<(View, Padding), String> {
    match build.value(node, 0)? {
        Value::Padded(view, padding) if view.layout == Layout::Image => Ok((view, padding)),
        _ => Ok((build.image(node, 0)?, Padding::NONE)),
    }
}

/// A convolution of each channel with a binomial filter, edges mirrored.
fn blur<'a>(
    build: &mut Build<'a>,
    node: &Node<'a>,
    x: View,
    before: Padding,
    conv: &Conv,
    weight: &[f32],
) -> Result<Value, String> {
    let (size, stride) = (conv.kernel[0], conv.stride[0]);
    let blur = BlurPool { size: size.min(63), stride };
    let row = blur.weights();
    let plane: Vec<f32> = row.iter().flat_map(|down| row.iter().map(move |across| down * across)).collect();
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
            "its input is padded with mirrored cells, which is supported before a binomial blur alone; pad with zeros"
                .into(),
        );
    }
    let id = build.layer((None, node.label()), blur, &[x.id], Vec::new())?;
    Ok(Value::Tensor(View { id, ..x }))
}
