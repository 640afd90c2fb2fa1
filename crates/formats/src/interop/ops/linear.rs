//! Fully connected layers: Gemm, and MatMul with a weight. A MatMul of channels-last images becomes a 1x1 convolution.

use net::{Conv, Id, Init, Linear};
use serde_json::json;

use super::Attribute::Int;
use super::{Code, Layer, LayerWriter, Layers, OpMapping, with_relu};
use crate::interop::export::keras::layers::activation;
use crate::interop::onnx::attention;
use crate::interop::onnx::axes::Axes;
use crate::interop::onnx::build::{Build, Layout, Operator, Value, View};
use crate::interop::onnx::graph::Node;
use crate::interop::onnx::scores;
use crate::interop::onnx::tensor::Constant;

impl OpMapping for Linear {
    fn onnx_operators() -> &'static [Operator] {
        &[("Einsum", 2, attention::einsum), ("Gemm", 3, gemm), ("MatMul", 2, product), ("ReduceL2", 2, scores::norms)]
    }

    fn to_onnx(&self, writer: &mut LayerWriter<'_>, x: &[String]) -> Result<String, String> {
        let Self { out_features: _, bias: _, relu, init: _, bias_init: _ } = self;
        let inputs = writer.and_weights(&x[0]);
        Ok(writer.output_with_relu("Gemm", &inputs, *relu, &[("transB", Int(1))]))
    }

    fn to_torch(&self, layer: &Layer<'_>, path: &str, v: &[String]) -> Result<Code, String> {
        let Self { out_features, bias, relu, init: _, bias_init: _ } = self;
        let bias = if *bias { "" } else { ", bias=False" };
        let module = format!("nn.Linear({}, {out_features}{bias})", layer.x[0].elems());
        Ok(Code::module(module, with_relu(format!("{path}({})", v[0]), *relu)))
    }

    fn to_keras(&self, layers: &mut Layers, layer: &Layer<'_>, x: &[usize]) -> Result<usize, String> {
        let Self { out_features, bias, relu, init: _, bias_init: _ } = self;
        let settings = json!({"units": out_features, "use_bias": bias, "activation": activation(*relu)});
        layers.add_weighted(&layer.node.name, "Dense", settings, x)
    }

    fn reads_flat(&self, _: &[bool]) -> bool {
        true
    }

    fn is_non_negative(&self, _: &[bool]) -> bool {
        self.relu
    }
}

/// Reads `alpha * A * B + beta * C`, where A is the layer's input, and B and C are weights.
fn gemm<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&["alpha", "beta", "transA", "transB"])?;
    if node.int("transA", 0) != 0 {
        return Err("transA=1 is not supported, because each row of A must be one image".into());
    }
    let rows = match build.computed(node, 0)? {
        Value::Arranged(id, axes) => Some((id, axes)),
        _ => None,
    };
    let x = match rows {
        Some((id, _)) => View { id, layout: Layout::Flat },
        None => build.view(node, 0)?,
    };
    if !matches!(x.layout, Layout::Flat | Layout::FlatLast(_)) {
        return Err(format!("it reads {}, expected vectors (N, F)", x.layout.text()));
    }
    let Value::Constant(weight) = build.value(node, 1)? else {
        return Err(format!("its input {} is computed, but must be a weight in the file", node.inputs[1]));
    };
    let mut matrix = Matrix::of(&weight)?;
    if node.int("transB", 0) == 0 {
        matrix = matrix.across();
    }
    matrix = matrix.reading(x.layout)?;
    let (alpha, beta) = (node.float("alpha", 1.0), node.float("beta", 1.0));
    matrix.values.iter_mut().for_each(|value| *value *= alpha);
    let bias = match build.given(node, 2)? {
        Some(bias) => {
            per_class(&bias, matrix.rows)?;
            let values: Vec<f32> = bias.floats().iter().map(|value| beta * value).collect();
            Some(if values.len() == 1 { values.repeat(matrix.rows) } else { values })
        }
        None => None,
    };
    if let Some((id, axes)) = rows {
        return of_each(build, node, (id, axes), matrix, bias);
    }
    let mut weights = vec![("weight", vec![matrix.rows, matrix.columns], matrix.values)];
    let mut linear = plain(matrix.rows);
    if let Some(values) = bias {
        linear = linear.bias_from(Init::UniformFanIn);
        weights.push(("bias", vec![values.len()], values));
    }
    let id = build.layer((Some(node.inputs[1]), node.label()), linear, &[x.id], weights)?;
    Ok(Value::Tensor(View { id, layout: Layout::Flat }))
}

/// Adds a 1x1 convolution, which multiplies the channels of each position by a matrix. The channels must be the last
/// dimension in the graph.
fn of_each<'a>(
    build: &mut Build<'a>,
    node: &Node<'a>,
    (id, axes): (Id, Axes),
    Matrix { rows, columns, values }: Matrix,
    bias: Option<Vec<f32>>,
) -> Result<Value, String> {
    let shape = build.shapes[id.0];
    if !axes.has_last(shape.c) {
        return Err(format!(
            "it multiplies a part of the channels of {shape} by a weight; only all channels are supported"
        ));
    }
    let mut conv = Conv::new(rows, 1).init(Init::HeNormalFanOut).pads(axes.pads);
    let mut weights = vec![("weight", vec![rows, columns, 1, 1], values)];
    if let Some(values) = bias {
        conv = conv.bias_from(Init::UniformFanIn);
        weights.push(("bias", vec![values.len()], values));
    }
    let id = build.layer((Some(node.inputs[1]), node.label()), conv, &[id], weights)?;
    build.settled(node.label(), id, Axes { pads: [0; 4], ..axes.with_last(rows) })
}

/// Returns an error unless C has one number per class or a single number. In other shapes, the first dimension could be
/// the images.
fn per_class(bias: &Constant, classes: usize) -> Result<(), String> {
    match bias.dims[..] {
        [] | [1] | [1, 1] => Ok(()),
        [n] | [1, n] if n == classes => Ok(()),
        _ => Err(format!("its C has the shape {:?}, expected one number for each class, [{classes}]", bias.dims)),
    }
}

/// Reads x times a weight as a linear layer, or as a 1x1 convolution if x has positions. Two tensors of the network are a
/// product of attention.
fn product<'a>(build: &mut Build<'a>, node: &Node<'a>) -> Result<Value, String> {
    node.only(&[])?;
    if matches!(build.value(node, 0)?, Value::Constant(_)) {
        return Err("a weight times a tensor mixes rows of the image; only a tensor times a weight is supported".into());
    }
    let Value::Constant(weight) = build.value(node, 1)? else { return attention::product(build, node) };
    let matrix = Matrix::of(&weight)?.across();
    let x = match build.computed(node, 0)? {
        Value::Arranged(..) | Value::Padded(..) => {
            let input = build.axes(node, 0)?;
            return of_each(build, node, input, matrix, None);
        }
        _ => build.view(node, 0)?,
    };
    match x.layout {
        Layout::Flat | Layout::FlatLast(_) => {
            let Matrix { rows, columns, values } = matrix.reading(x.layout)?;
            let weights = vec![("weight", vec![rows, columns], values)];
            let id = build.layer((Some(node.inputs[1]), node.label()), plain(rows), &[x.id], weights)?;
            Ok(Value::Tensor(View { id, layout: Layout::Flat }))
        }
        Layout::Last | Layout::Tokens => {
            let input = build.axes(node, 0)?;
            of_each(build, node, input, matrix, None)
        }
        Layout::Image | Layout::Arranged(_) => {
            Err("it multiplies along the rows of images (N, C, H, W); channels must come last".into())
        }
    }
}

fn plain(features: usize) -> Linear {
    Linear { bias: false, ..Linear::new(features) }
}

/// A matrix in row-major order.
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

    /// Reorders the columns if the graph flattens images as (H, W, C). trireme's layers expect (C, H, W).
    fn reading(self, layout: Layout) -> Result<Self, String> {
        let Layout::FlatLast(shape) = layout else { return Ok(self) };
        let Self { rows, columns, values } = self;
        let plane = shape.plane();
        if columns != shape.elems() {
            return Err(format!(
                "its weight has {columns} features, but the flattened image {shape} has {}",
                shape.elems()
            ));
        }
        let place = |feature: usize| feature % plane * shape.c + feature / plane;
        let row = |row: usize| (0..columns).map(move |feature| row * columns + place(feature));
        let values = (0..rows).flat_map(row).map(|at| values[at]).collect();
        Ok(Self { rows, columns, values })
    }

    /// Transposes the matrix.
    fn across(&self) -> Self {
        let Self { rows, columns, values } = self;
        let values = (0..*columns).flat_map(|c| (0..*rows).map(move |r| values[r * columns + c])).collect();
        Self { rows: *columns, columns: *rows, values }
    }
}
