//! Each op as nodes of ONNX. An op without a line here is refused by name.

use Attribute::{Float, Int, Ints};
use net::{Activation, BlurPool, Conv, GroupNorm, LayerNorm, Linear, Lrn, Norm, Op, Pool, PoolKind, Shape, Shortcut};

use super::super::format::Error;
use super::super::network::{Layer, Padded, Turn, Windows, windows};
use super::super::trained::{Trained, Values};
use super::graph::{Attribute, Graph};

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
            maker.graph.named("LRN", &[a], out, &attributes)
        }
        Op::Activation(activation) => maker.function(*activation, a),
        Op::Concat(_) => {
            let all: Vec<&str> = inputs.iter().map(String::as_str).collect();
            maker.graph.named("Concat", &all, out, &[("axis", Int(1))])
        }
        Op::Multiply(_) => maker.graph.named("Mul", &[a, &inputs[1]], out, &[]),
        Op::LayerNorm(norm) => maker.layer_normalization(norm, a),
        Op::GroupNorm(norm) => maker.group_normalization(norm, a),
        Op::LayerScale(_) => {
            let factors = maker.per_channel("layer_scale");
            maker.graph.named("Mul", &[a, &factors], out, &[])
        }
        Op::DropPath(_) => maker.graph.named("Identity", &[a], out, &[]),
        Op::BlurPool(blur) => maker.blurred(blur, a),
        // in prediction it does nothing; the last layer must have its name
        Op::Dropout(_) => maker.graph.named("Identity", &[a], out, &[]),
        Op::Add(_) => maker.graph.named("Add", &[a, &inputs[1]], out, &[]),
        Op::Flatten(_) => maker.graph.named("Flatten", &[a], out, &[("axis", Int(1))]),
        Op::Shortcut(shortcut) => maker.strided(shortcut, a),
        #[allow(unreachable_patterns)]
        _ => return Err("its kind of layer has no line in crates/formats/src/interop/export/onnx/ops.rs".into()),
    })
}

/// An input in the form that its layer reads.
pub(super) fn turned(graph: &mut Graph, layer: &Layer<'_>, turn: Option<Turn>, input: &str) -> String {
    let inner = |what: &str| format!("{}.{what}", layer.node.name);
    match turn {
        None => input.into(),
        Some(Turn::Flatten) => graph.node("Flatten", &[input], &inner("flat"), &[("axis", Int(1))]),
        Some(Turn::Image) => {
            let axes = graph.ints(&inner("axes"), &[2, 3]);
            graph.node("Unsqueeze", &[input, &axes], &inner("image"), &[])
        }
    }
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
            return self.graph.named(op, inputs, self.out, attributes);
        }
        let linear = self.graph.node(op, inputs, &self.inner("linear"), attributes);
        self.graph.named("Relu", &[&linear], self.out, &[])
    }

    fn convolution(&mut self, conv: &Conv, a: &str) -> String {
        let Conv {
            out_channels: _,
            kernel,
            stride,
            pads,
            dilation,
            groups,
            bias: _,
            relu,
            linear: _,
            init: _,
            bias_init: _,
        } = conv;
        let weights = self.weights();
        let inputs: Vec<&str> = std::iter::once(a).chain(weights.iter().map(String::as_str)).collect();
        let attributes = [
            ("dilations", Ints(dilation)),
            ("group", Int(*groups as i64)),
            ("kernel_shape", Ints(kernel)),
            ("pads", Ints(pads)),
            ("strides", Ints(stride)),
        ];
        self.and_relu("Conv", &inputs, *relu, &attributes)
    }

    fn full(&mut self, linear: &Linear, a: &str) -> String {
        let Linear { out_features: _, bias: _, relu, init: _, bias_init: _ } = linear;
        let weights = self.weights();
        let inputs: Vec<&str> = std::iter::once(a).chain(weights.iter().map(String::as_str)).collect();
        self.and_relu("Gemm", &inputs, *relu, &[("transB", Int(1))])
    }

    fn normalization(&mut self, norm: &Norm, x: &[String]) -> String {
        let Norm { eps, momentum: _, residual, relu, scale: _, gamma: _ } = norm;
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
            Windows::All if max => return Ok(self.graph.named("GlobalMaxPool", &[a], self.out, &[])),
            Windows::All => return Ok(self.graph.named("GlobalAveragePool", &[a], self.out, &[])),
            Windows::Bins(_) if max => return Err("its stretches differ in size, and ONNX's windows do not".into()),
            Windows::Bins(_) => return self.stretches(pool, a),
            Windows::Equal(padded) => padded,
        };
        let mut attributes = vec![("kernel_shape", Ints(&window)), ("pads", Ints(&pads)), ("strides", Ints(&stride))];
        if pool.kind == PoolKind::AvgCountPad {
            attributes.push(("count_include_pad", Int(1)));
        }
        let op = if max { "MaxPool" } else { "AveragePool" };
        Ok(self.graph.named(op, &[a], self.out, &attributes))
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
        Ok(self.graph.named("MatMul", &[&half, &across], self.out, &[]))
    }

    fn function(&mut self, activation: Activation, a: &str) -> String {
        let out = self.out;
        match activation {
            Activation::Identity => self.graph.named("Identity", &[a], out, &[]),
            Activation::Relu => self.graph.named("Relu", &[a], out, &[]),
            Activation::Relu6 => {
                let [least, most] =
                    [("least", 0.0), ("most", 6.0)].map(|(what, n)| self.graph.floats(&self.inner(what), &[], &[n]));
                self.graph.named("Clip", &[a, &least, &most], out, &[])
            }
            Activation::LeakyRelu(slope) => self.graph.named("LeakyRelu", &[a], out, &[("alpha", Float(slope))]),
            Activation::Tanh => self.graph.named("Tanh", &[a], out, &[]),
            Activation::Sigmoid => self.graph.named("Sigmoid", &[a], out, &[]),
            Activation::HardSigmoid => {
                self.graph.named("HardSigmoid", &[a], out, &[("alpha", Float(1.0 / 6.0)), ("beta", Float(0.5))])
            }
            Activation::HardSwish => self.graph.named("HardSwish", &[a], out, &[]),
            Activation::Silu => {
                let gate = self.graph.node("Sigmoid", &[a], &self.inner("gate"), &[]);
                self.graph.named("Mul", &[a, &gate], out, &[])
            }
            Activation::Scale(factor) => {
                let factor = self.graph.floats(&self.inner("factor"), &[], &[factor]);
                self.graph.named("Mul", &[a, &factor], out, &[])
            }
            Activation::Gelu => self.gelu("Erf", a, std::f32::consts::FRAC_1_SQRT_2),
            Activation::GeluTanh => {
                let cube = self.graph.node("Mul", &[a, a], &self.inner("square"), &[]);
                let cube = self.graph.node("Mul", &[&cube, a], &self.inner("cube"), &[]);
                let factor = self.graph.floats(&self.inner("cube.factor"), &[], &[0.044_715]);
                let cube = self.graph.node("Mul", &[&cube, &factor], &self.inner("cubic"), &[]);
                let inner = self.graph.node("Add", &[a, &cube], &self.inner("argument"), &[]);
                self.gelu_of("Tanh", a, &inner, (2.0 / std::f32::consts::PI).sqrt())
            }
        }
    }

    fn gelu(&mut self, function: &str, a: &str, factor: f32) -> String {
        self.gelu_of(function, a, a, factor)
    }

    /// a / 2 (1 + f(factor x)).
    fn gelu_of(&mut self, function: &str, a: &str, x: &str, factor: f32) -> String {
        let factor = self.graph.floats(&self.inner("factor"), &[], &[factor]);
        let [one, half] =
            [("one", 1.0), ("half", 0.5)].map(|(what, n)| self.graph.floats(&self.inner(what), &[], &[n]));
        let scaled = self.graph.node("Mul", &[x, &factor], &self.inner("scaled"), &[]);
        let made = self.graph.node(function, &[&scaled], &self.inner("function"), &[]);
        let sum = self.graph.node("Add", &[&made, &one], &self.inner("sum"), &[]);
        let share = self.graph.node("Mul", &[&sum, &half], &self.inner("share"), &[]);
        self.graph.named("Mul", &[a, &share], self.out, &[])
    }

    /// A tensor of the layer with one number a channel, for images.
    fn per_channel(&mut self, field: &str) -> String {
        let name = &self.layer.node.name;
        let found = self.trained.tensors(self.layer.node).find(|tensor| tensor.field == field);
        let wide = [self.layer.x[0].c, 1, 1];
        let shape = if self.layer.flat { &wide[..1] } else { &wide[..] };
        found.map_or(String::new(), |tensor| self.graph.weight(&format!("{name}.{field}"), Values { shape, ..tensor }))
    }

    fn layer_normalization(&mut self, norm: &LayerNorm, a: &str) -> String {
        let weights = self.weights();
        let attributes = [("axis", Int(-1)), ("epsilon", Float(norm.eps))];
        if self.layer.flat {
            return self.graph.named("LayerNormalization", &[a, &weights[0], &weights[1]], self.out, &attributes);
        }
        let last = self.graph.node("Transpose", &[a], &self.inner("last"), &[("perm", Ints(&[0, 2, 3, 1]))]);
        let normed =
            self.graph.node("LayerNormalization", &[&last, &weights[0], &weights[1]], &self.inner("norm"), &attributes);
        self.graph.named("Transpose", &[&normed], self.out, &[("perm", Ints(&[0, 3, 1, 2]))])
    }

    /// Each group as one channel of an instance normalisation.
    fn group_normalization(&mut self, norm: &GroupNorm, a: &str) -> String {
        let GroupNorm { groups, eps } = *norm;
        let x = self.layer.x[0];
        let grouped = self.graph.ints(&self.inner("grouped"), &[0, groups as i64, -1]);
        let own: &[i64] = if self.layer.flat { &[0, -1] } else { &[0, x.c as i64, x.h as i64, x.w as i64] };
        let own = self.graph.ints(&self.inner("own"), own);
        let ones = self.graph.floats(&self.inner("ones"), &[groups], &vec![1.0; groups]);
        let zeros = self.graph.floats(&self.inner("zeros"), &[groups], &vec![0.0; groups]);
        let joined = self.graph.node("Reshape", &[a, &grouped], &self.inner("joined"), &[]);
        let normed = self.graph.node(
            "InstanceNormalization",
            &[&joined, &ones, &zeros],
            &self.inner("normed"),
            &[("epsilon", Float(eps))],
        );
        let parted = self.graph.node("Reshape", &[&normed, &own], &self.inner("parted"), &[]);
        let (weight, bias) = (self.per_channel("weight"), self.per_channel("bias"));
        let scaled = self.graph.node("Mul", &[&parted, &weight], &self.inner("scaled"), &[]);
        self.graph.named("Add", &[&scaled, &bias], self.out, &[])
    }

    /// A convolution of each channel with the outer product of the weights, edges mirrored.
    fn blurred(&mut self, blur: &BlurPool, a: &str) -> String {
        let BlurPool { size, stride } = *blur;
        let channels = self.layer.x[0].c;
        let pad = ((stride + size).saturating_sub(2) / 2) as i64;
        let row = blur.weights();
        let plane: Vec<f32> = row.iter().flat_map(|down| row.iter().map(move |across| down * across)).collect();
        let pads = self.graph.ints(&self.inner("pads"), &[0, 0, pad, pad, 0, 0, pad, pad]);
        let weight = self.graph.floats(&self.inner("filter"), &[channels, 1, size, size], &plane.repeat(channels));
        let padded =
            self.graph.node("Pad", &[a, &pads], &self.inner("padded"), &[("mode", Attribute::Text("reflect"))]);
        let attributes = [
            ("group", Int(channels as i64)),
            ("kernel_shape", Ints(&[size, size])),
            ("strides", Ints(&[stride, stride])),
        ];
        self.graph.named("Conv", &[&padded, &weight], self.out, &attributes)
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
        self.graph.named("Pad", &[&taken, &pads], self.out, &[])
    }
}

// The last transforms of an image as nodes, so that a graph takes the bytes of pixels: `normalize`, and `center_crop` if all images have
// one size. ONNX of this opset cannot express the transforms before them, because its Resize has no antialiasing.

/// Name of the input.
pub(super) const INPUT: &str = "image";

/// Transforms as nodes.
pub(super) struct Before {
    /// Name of the images that they make.
    pub output: String,
    /// What a user should know.
    pub note: String,
}

/// Adds the input of bytes, and the nodes from it to the network's own input.
///
/// # Errors
/// For a model whose images are not normalised by `normalize` in the end.
pub(super) fn add_before(graph: &mut Graph, trained: &Trained) -> Result<Before, Error> {
    let ops = &trained.model.preprocess;
    let refuse = |why: String| Error::Network { network: trained.model.network.clone(), why };
    let Some((last, first)) = ops.split_last() else {
        return Err(refuse("--preprocess: it has no transforms; leave --preprocess out".into()));
    };
    let numbers = numbers(last, "normalize").filter(|n| !n.is_empty() && n.len().is_multiple_of(2));
    let numbers = numbers.ok_or_else(|| {
        refuse(format!(
            "--preprocess: its last transform is {last}; only normalize has a form in ONNX; leave --preprocess out"
        ))
    })?;
    let net = trained.network.net.input;
    let crop = Crop::of(trained, first);
    let rest = if crop.is_some() { &first[..first.len() - 1] } else { first };
    let from = crop.map_or(net, |crop| crop.from);
    let image = graph.bytes(INPUT, from);
    let cast = graph.cast(&image, "image.float");
    let mut planes = graph.node("Transpose", &[&cast], "image.planes", &[("perm", Attribute::Ints(&[0, 3, 1, 2]))]);
    if let Some(crop) = crop {
        planes = crop.add(graph, net, &planes);
    }
    let output = normalize(graph, &planes, net.c, &numbers);
    let Shape { c, h, w } = from;
    let before = if rest.is_empty() { String::new() } else { format!(" after {}", rest.join(", ")) };
    Ok(Before { output, note: format!("input \"{INPUT}\": uint8 (N, {h}, {w}, {c}), pixels from 0 to 255{before}") })
}

/// (x / 255 - mean) / std, as one product and one sum for each channel.
fn normalize(graph: &mut Graph, planes: &str, channels: usize, numbers: &[f64]) -> String {
    let (mean, std) = numbers.split_at(numbers.len() / 2);
    let of = |c: usize| (mean[c % mean.len()], std[c % std.len()]);
    let factors: Vec<f32> = (0..channels).map(|c| (1.0 / (255.0 * of(c).1)) as f32).collect();
    let sums: Vec<f32> = (0..channels).map(|c| (-of(c).0 / of(c).1) as f32).collect();
    let factors = graph.floats("normalize.factor", &[channels, 1, 1], &factors);
    let sums = graph.floats("normalize.sum", &[channels, 1, 1], &sums);
    let scaled = graph.node("Mul", &[planes, &factors], "normalize.scaled", &[]);
    graph.node("Add", &[&scaled, &sums], "input", &[])
}

/// The numbers of a transform of this name.
fn numbers(op: &str, name: &str) -> Option<Vec<f64>> {
    let list = op.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')?;
    list.split(',').map(|number| number.trim().parse().ok()).collect()
}

/// A crop from the middle of images of one size.
#[derive(Clone, Copy)]
struct Crop {
    /// The images.
    from: Shape,
    top: usize,
    left: usize,
}

impl Crop {
    /// Of a list whose only transform it is.
    fn of(trained: &Trained, ops: &[String]) -> Option<Self> {
        let [op] = ops else { return None };
        let [c, h, w] = trained.model.image;
        let net = trained.network.net.input;
        let fits = numbers(op, "center_crop").is_some() && c == net.c && h >= net.h && w >= net.w;
        fits.then(|| Self { from: Shape::image(c, h, w), top: middle(h - net.h), left: middle(w - net.w) })
    }

    fn add(self, graph: &mut Graph, net: Shape, planes: &str) -> String {
        let (top, left) = (self.top as i64, self.left as i64);
        let starts = graph.ints("crop.starts", &[top, left]);
        let ends = graph.ints("crop.ends", &[top + net.h as i64, left + net.w as i64]);
        let axes = graph.ints("crop.axes", &[2, 3]);
        graph.node("Slice", &[planes, &starts, &ends, &axes], "crop", &[])
    }
}

/// Cells before a crop from the middle, as `center_crop` has it: halves go to the even neighbour.
fn middle(margin: usize) -> usize {
    (margin as f64 / 2.0).round_ties_even() as usize
}
