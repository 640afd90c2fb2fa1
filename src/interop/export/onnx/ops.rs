//! Each op as nodes of ONNX. An op without a line here is refused by name.

use crate::nn::spec::{Conv, Linear, Lrn, Norm, Op, Pool, PoolKind, Shortcut};

use super::super::network::Layer;
use super::super::pads::{Padded, Windows, windows};
use super::super::trained::Trained;
use super::graph::{Attribute, Graph};
use Attribute::{Float, Int, Ints};

/// Adds a layer's nodes, of which the last makes `out`; gives the name of its output, which for a layer that does nothing is its input's.
///
/// # Errors
/// Why ONNX has no form for it.
pub(super) fn add(
    graph: &mut Graph,
    trained: &Trained,
    layer: &Layer<'_>,
    inputs: &[String],
    out: &str,
) -> Result<String, String> {
    let a = inputs[0].as_str();
    let mut maker = Maker { graph, trained, layer, out };
    Ok(match &layer.node.op {
        Op::Conv(conv) => maker.convolution(conv, a),
        Op::Linear(linear) => maker.full(linear, a),
        Op::Norm(norm) => maker.normalization(norm, inputs),
        Op::Pool(pool) => maker.pooling(pool, a)?,
        Op::Lrn(Lrn { radius, k, alpha, beta }) => {
            let size = 2 * radius + 1;
            let alpha = Float(alpha * size as f32);
            let attributes =
                [("alpha", alpha), ("beta", Float(*beta)), ("bias", Float(*k)), ("size", Int(size as i64))];
            maker.graph.node("LRN", &[a], out, &attributes)
        }
        Op::Relu(_) => maker.graph.node("Relu", &[a], out, &[]),
        Op::Tanh(_) => maker.graph.node("Tanh", &[a], out, &[]),
        Op::Silu(_) => {
            let gate = maker.graph.node("Sigmoid", &[a], &format!("{out}.gate"), &[]);
            maker.graph.node("Mul", &[a, &gate], out, &[])
        }
        // in prediction it does nothing; the last layer must have its name
        Op::Dropout(_) => maker.graph.node("Identity", &[a], out, &[]),
        Op::Add(_) => maker.graph.node("Add", &[a, &inputs[1]], out, &[]),
        Op::Flatten(_) => maker.graph.node("Flatten", &[a], out, &[("axis", Int(1))]),
        Op::Shortcut(shortcut) => maker.strided(shortcut, a),
        #[allow(unreachable_patterns)]
        _ => return Err("its kind of layer has no line in src/interop/export/onnx/ops.rs".into()),
    })
}

/// Makes the nodes of one layer.
struct Maker<'a> {
    graph: &'a mut Graph,
    trained: &'a Trained,
    layer: &'a Layer<'a>,
    out: &'a str,
}

impl Maker<'_> {
    /// A name for something inside of the layer.
    fn inner(&self, what: &str) -> String {
        format!("{}.{what}", self.layer.node.name)
    }

    /// Adds the layer's tensors, in PyTorch's order.
    fn weights(&mut self) -> Vec<String> {
        let name = &self.layer.node.name;
        let tensors = self.trained.tensors(self.layer.node);
        tensors.map(|tensor| self.graph.weight(&format!("{name}.{}", tensor.field), tensor)).collect()
    }

    /// Adds a node that makes the output, before a ReLU if there is one.
    fn and_relu(&mut self, op: &str, inputs: &[&str], relu: bool, attributes: &[(&str, Attribute<'_>)]) -> String {
        if !relu {
            return self.graph.node(op, inputs, self.out, attributes);
        }
        let linear = self.graph.node(op, inputs, &self.inner("linear"), attributes);
        self.graph.node("Relu", &[&linear], self.out, &[])
    }

    fn convolution(&mut self, conv: &Conv, a: &str) -> String {
        let Conv { out_channels: _, kernel, stride, pads, groups, bias: _, relu, init: _, bias_init: _ } = conv;
        let weights = self.weights();
        let inputs: Vec<&str> = std::iter::once(a).chain(weights.iter().map(String::as_str)).collect();
        let attributes = [
            ("group", Int(*groups as i64)),
            ("kernel_shape", Ints(kernel)),
            ("pads", Ints(pads)),
            ("strides", Ints(stride)),
        ];
        self.and_relu("Conv", &inputs, *relu, &attributes)
    }

    fn full(&mut self, linear: &Linear, a: &str) -> String {
        let Linear { out_features: _, bias: _, relu, init: _, bias_init: _ } = linear;
        let flat = match self.layer.flat[0] {
            true => a.to_string(),
            false => self.graph.node("Flatten", &[a], &self.inner("flat"), &[("axis", Int(1))]),
        };
        let weights = self.weights();
        let inputs: Vec<&str> = std::iter::once(flat.as_str()).chain(weights.iter().map(String::as_str)).collect();
        self.and_relu("Gemm", &inputs, *relu, &[("transB", Int(1))])
    }

    fn normalization(&mut self, norm: &Norm, x: &[String]) -> String {
        let Norm { eps, momentum: _, residual, relu, gamma: _ } = norm;
        let weights = self.weights();
        let inputs: Vec<&str> = std::iter::once(&x[0]).chain(&weights).map(String::as_str).collect();
        let attributes = [("epsilon", Float(*eps))];
        if !residual {
            return self.and_relu("BatchNormalization", &inputs, *relu, &attributes);
        }
        let normed = self.graph.node("BatchNormalization", &inputs, &self.inner("norm"), &attributes);
        self.and_relu("Add", &[&normed, &x[1]], *relu, &[])
    }

    fn pooling(&mut self, pool: &Pool, a: &str) -> Result<String, String> {
        let (x, y) = (self.layer.x[0], self.layer.y);
        let max = pool.kind == PoolKind::Max;
        let Padded { window, stride, pads } = match windows(pool, x, y)? {
            Windows::All if max => return Ok(self.graph.node("GlobalMaxPool", &[a], self.out, &[])),
            Windows::All => return Ok(self.graph.node("GlobalAveragePool", &[a], self.out, &[])),
            Windows::Bins(_) if max => return Err("its stretches differ in size, and ONNX's windows do not".into()),
            Windows::Bins(_) => return self.stretches(pool, a),
            Windows::Equal(padded) => padded,
        };
        let mut attributes = vec![("kernel_shape", Ints(&window)), ("pads", Ints(&pads)), ("strides", Ints(&stride))];
        if pool.kind == PoolKind::AvgCountPad {
            attributes.push(("count_include_pad", Int(1)));
        }
        let op = if max { "MaxPool" } else { "AveragePool" };
        Ok(self.graph.node(op, &[a], self.out, &attributes))
    }

    /// Means over stretches of several sizes: rows, then columns, each as a product with a matrix.
    fn stretches(&mut self, pool: &Pool, a: &str) -> Result<String, String> {
        let (x, y) = (self.layer.x[0], self.layer.y);
        let [mut rows, mut columns] = [vec![0.0; y.h * x.h], vec![0.0; x.w * y.w]];
        for (i, window) in pool.windows(x, 0)?.into_iter().enumerate() {
            rows[i * x.h..][window.from..window.to].fill(1.0 / (window.to - window.from) as f32);
        }
        for (j, window) in pool.windows(x, 1)?.into_iter().enumerate() {
            let share = 1.0 / (window.to - window.from) as f32;
            (window.from..window.to).for_each(|cell| columns[cell * y.w + j] = share);
        }
        let down = self.graph.floats(&self.inner("rows"), &[y.h, x.h], &rows);
        let across = self.graph.floats(&self.inner("columns"), &[x.w, y.w], &columns);
        let half = self.graph.node("MatMul", &[&down, a], &self.inner("down"), &[]);
        Ok(self.graph.node("MatMul", &[&half, &across], self.out, &[]))
    }

    fn strided(&mut self, shortcut: &Shortcut, a: &str) -> String {
        let x = self.layer.x[0];
        let (before, step) = (shortcut.before(x), shortcut.stride as i64);
        let after = shortcut.out_channels - x.c - before;
        let lists = [
            ("starts", vec![0, 0]),
            ("ends", vec![x.h as i64, x.w as i64]),
            ("axes", vec![2, 3]),
            ("steps", vec![step, step]),
            ("pads", vec![0, before as i64, 0, 0, 0, after as i64, 0, 0]),
        ];
        let [starts, ends, axes, steps, pads] = lists.map(|(what, list)| self.graph.ints(&self.inner(what), &list));
        let taken = self.graph.node("Slice", &[a, &starts, &ends, &axes, &steps], &self.inner("taken"), &[]);
        self.graph.node("Pad", &[&taken, &pads], self.out, &[])
    }
}
