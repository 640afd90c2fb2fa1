//! Fully connected layers: Gemm, MatMul with a weight.

use crate::interop::onnx::build::Build;
use crate::interop::onnx::graph::Node;
use crate::interop::onnx::handler::Operator;
use crate::interop::onnx::tensor::Constant;
use crate::interop::onnx::value::{Layout, Value, View};
use crate::nn::spec::{Conv, Init, Linear};

pub(super) const OPERATORS: &[Operator] = &[("Gemm", 3, gemm), ("MatMul", 2, product)];

/// alpha A B + beta C.
fn gemm<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["alpha", "beta", "transA", "transB"])?;
    if node.int("transA", 0) != 0 {
        return Err("transA: its images would lie across".into());
    }
    let x = build.view(node, 0)?;
    if x.layout != Layout::Flat {
        return Err(format!("it reads {}, and needs vectors (N, F)", x.layout.text()));
    }
    let weight = build.constant(node, 1)?;
    let mut matrix = Matrix::of(&weight)?;
    if node.int("transB", 0) == 0 {
        matrix = matrix.across();
    }
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
    let weight = build.constant(node, 1)?;
    let Matrix { rows, columns, values } = Matrix::of(&weight)?.across();
    let names = (Some(node.inputs[1]), node.label());
    let id = match x.layout {
        Layout::Flat => build.layer(names, plain(rows), &[x.id], vec![("weight", vec![rows, columns], values)])?,
        Layout::Last => {
            let conv = Conv::new(rows, 1).init(Init::HeNormalFanOut);
            build.layer(names, conv, &[x.id], vec![("weight", vec![rows, columns, 1, 1], values)])?
        }
        Layout::Image => {
            return Err("its product runs along rows of images (N, C, H, W); channels must come last".into());
        }
    };
    Ok(Value::Tensor(View { id, ..x }))
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

    /// Rows become columns.
    fn across(&self) -> Self {
        let Self { rows, columns, values } = self;
        let values = (0..*columns).flat_map(|c| (0..*rows).map(move |r| values[r * columns + c])).collect();
        Self { rows: *columns, columns: *rows, values }
    }
}
