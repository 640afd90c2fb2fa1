//! Convolutions (a fixed blur is one, too) and fully connected layers: Gemm, and MatMul with a weight.

use std::rc::Rc;

use net::{BlurPool, Conv, Init, Linear};

use crate::interop::onnx::build::{Build, Layout, Operator, Padding, Value, View};
use crate::interop::onnx::graph::Node;
use crate::interop::onnx::tensor::Constant;
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

pub(super) const FULL_OPERATORS: &[Operator] = &[("Gemm", 3, gemm), ("MatMul", 2, product)];

/// alpha A B + beta C.
fn gemm<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["alpha", "beta", "transA", "transB"])?;
    if node.int("transA", 0) != 0 {
        return Err("transA: its images would lie across".into());
    }
    let x = build.view(node, 0)?;
    if !matches!(x.layout, Layout::Flat | Layout::FlatLast(_)) {
        return Err(format!("it reads {}, and needs vectors (N, F)", x.layout.text()));
    }
    let weight = factor(build, node)?;
    let mut matrix = Matrix::of(&weight)?;
    if node.int("transB", 0) == 0 {
        matrix = matrix.across();
    }
    matrix = matrix.reading(x.layout)?;
    let (alpha, beta) = (node.float("alpha", 1.0), node.float("beta", 1.0));
    matrix.values.iter_mut().for_each(|value| *value *= alpha);
    let mut weights = vec![("weight", vec![matrix.rows, matrix.columns], matrix.values)];
    let mut linear = plain(matrix.rows);
    if let Some(bias) = build.given(node, 2)? {
        per_class(&bias, matrix.rows)?;
        let values: Vec<f32> = bias.floats().iter().map(|value| beta * value).collect();
        let values = if values.len() == 1 { values.repeat(matrix.rows) } else { values };
        linear = linear.bias_from(Init::UniformFanIn);
        weights.push(("bias", vec![values.len()], values));
    }
    let id = build.layer((Some(node.inputs[1]), node.label()), linear, &[x.id], weights)?;
    Ok(Value::Tensor(View { id, layout: Layout::Flat }))
}

/// Refuses a C that has not one number for each class, or one for all: its first dimension may run over images.
fn per_class(bias: &Constant, classes: usize) -> Result<(), String> {
    match bias.dims[..] {
        [] | [1] | [1, 1] => Ok(()),
        [n] | [1, n] if n == classes => Ok(()),
        _ => Err(format!("its C has the shape {:?}; supported is one number for each class, [{classes}]", bias.dims)),
    }
}

/// x times a weight: a linear layer, or a convolution of each pixel where channels come last.
fn product<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&[])?;
    if matches!(build.value(node, 0)?, Value::Constant(_)) {
        return Err("a weight times a tensor mixes rows of the image; only a tensor times a weight is supported".into());
    }
    let x = build.view(node, 0)?;
    let weight = factor(build, node)?;
    let Matrix { rows, columns, values } = Matrix::of(&weight)?.across().reading(x.layout)?;
    let names = (Some(node.inputs[1]), node.label());
    let layout = if x.layout == Layout::Last { x.layout } else { Layout::Flat };
    let id = match x.layout {
        Layout::Flat | Layout::FlatLast(_) => {
            build.layer(names, plain(rows), &[x.id], vec![("weight", vec![rows, columns], values)])?
        }
        Layout::Last => {
            let conv = Conv::new(rows, 1).init(Init::HeNormalFanOut);
            build.layer(names, conv, &[x.id], vec![("weight", vec![rows, columns, 1, 1], values)])?
        }
        Layout::Image => {
            return Err("its product runs along rows of images (N, C, H, W); channels must come last".into());
        }
    };
    Ok(Value::Tensor(View { id, layout }))
}

/// Returns the second factor, which must be a weight.
fn factor<'a>(build: &Build<'a>, node: &Node<'a>) -> Result<Rc<Constant>, String> {
    match build.value(node, 1)? {
        Value::Constant(constant) => Ok(constant),
        _ => Err("it multiplies two computed tensors, as attention does; attention is not supported".into()),
    }
}

/// Without a bias.
fn plain(features: usize) -> Linear {
    Linear { bias: false, ..Linear::new(features) }
}

/// A matrix, row by row.
struct Matrix {
    rows: usize,
    columns: usize,
    values: Vec<f32>,
}

impl Matrix {
    fn of(constant: &Constant) -> Result<Self, String> {
        match constant.dims[..] {
            [rows, columns] => Ok(Self { rows, columns, values: constant.floats() }),
            _ => Err(format!("its weight must have 2 dimensions, got {:?}", constant.dims)),
        }
    }

    /// Reorders the columns if the graph has the features in (H, W, C) order. Our layers have them in (C, H, W) order.
    fn reading(self, layout: Layout) -> Result<Self, String> {
        let Layout::FlatLast(shape) = layout else { return Ok(self) };
        let Self { rows, columns, values } = self;
        let plane = shape.plane();
        if columns != shape.elems() {
            return Err(format!("its weight has {columns} features, and {shape} has {}", shape.elems()));
        }
        let place = |feature: usize| feature % plane * shape.c + feature / plane;
        let row = |row: usize| (0..columns).map(move |feature| row * columns + place(feature));
        let values = (0..rows).flat_map(row).map(|at| values[at]).collect();
        Ok(Self { rows, columns, values })
    }

    /// Rows become columns.
    fn across(&self) -> Self {
        let Self { rows, columns, values } = self;
        let values = (0..*columns).flat_map(|c| (0..*rows).map(move |r| values[r * columns + c])).collect();
        Self { rows: *columns, columns: *rows, values }
    }
}
