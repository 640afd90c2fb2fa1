//! Each op as layers of Keras. An op without a line here is refused by name.

use std::collections::BTreeSet;

use net::{Activation, Conv, Linear, Norm, Op, Pool, PoolKind, Shape, Shortcut};
use serde_json::{Map, Value, json};

use super::super::network::{Layer, Network, Padded, Turn, Windows, windows};
use crate::checkpoint::keras::layer_name;

/// Adds a layer's layers, and gives the one that makes its output.
///
/// # Errors
/// Why Keras has no form for it.
pub(super) fn add(
    layers: &mut Layers,
    network: &Network,
    layer: &Layer<'_>,
    inputs: &[usize],
) -> Result<usize, String> {
    let (name, from) = (&layer.node.name, inputs[0]);
    Ok(match &layer.node.op {
        Op::Activation(activation) => function(layers, *activation, layer, from)?,
        Op::Concat(_) => layers.add(name, "Concatenate", json!({"axis": if layer.flat { 1 } else { 3 }}), inputs),
        Op::Multiply(_) => layers.add(name, "Multiply", json!({}), inputs),
        Op::LayerNorm(norm) => {
            let settings = json!({"axis": [if layer.flat { 1 } else { 3 }], "epsilon": exact(norm.eps)});
            layers.add_weighted(name, "LayerNormalization", settings, &[from])?
        }
        Op::GroupNorm(norm) => {
            let settings = json!({"groups": norm.groups, "axis": -1, "epsilon": exact(norm.eps)});
            layers.add_weighted(name, "GroupNormalization", settings, &[from])?
        }
        Op::LayerScale(_) => {
            return Err("Keras has no layer that learns a factor for each channel; use --to onnx or safetensors".into());
        }
        Op::DropPath(path) => {
            let shape = if layer.flat { json!([null, 1]) } else { json!([null, 1, 1, 1]) };
            layers.add(name, "Dropout", json!({"rate": path.0, "noise_shape": shape}), &[from])
        }
        Op::BlurPool(_) => return Err("Keras has no layer that blurs; use --to onnx or safetensors".into()),
        Op::Conv(conv) => convolution(layers, conv, layer, from)?,
        Op::Linear(linear) => full(layers, linear, layer, from)?,
        Op::Norm(norm) => normalization(layers, norm, layer, inputs)?,
        Op::Pool(pool) => pooling(layers, network, pool, layer, from)?,
        Op::Lrn(_) => {
            return Err("Keras has no layer for local response normalisation; use --to onnx or safetensors".into());
        }
        Op::Dropout(dropout) => layers.add(name, "Dropout", json!({"rate": dropout.0}), &[from]),
        Op::Add(_) => layers.add(name, "Add", json!({}), inputs),
        Op::Flatten(_) => layers.add(name, "Flatten", json!({}), &[from]),
        Op::Shortcut(shortcut) => strided(layers, shortcut, layer, from),
        #[allow(unreachable_patterns)]
        _ => return Err("its kind of layer has no line in crates/formats/src/interop/export/keras/ops.rs".into()),
    })
}

/// Input number `index` of a layer in the form that it reads.
pub(super) fn turned(layers: &mut Layers, layer: &Layer<'_>, index: usize, input: usize) -> usize {
    match layer.turns[index] {
        None => input,
        Some(Turn::Flatten) => layers.add(&inner(layer, "flatten"), "Flatten", json!({}), &[input]),
        Some(Turn::Image) => {
            let shape = json!({"target_shape": [1, 1, layer.x[index].c]});
            layers.add(&inner(layer, "image"), "Reshape", shape, &[input])
        }
    }
}

fn function(layers: &mut Layers, activation: Activation, layer: &Layer<'_>, from: usize) -> Result<usize, String> {
    let name = &layer.node.name;
    let mut known = |kind: &str| Ok(layers.add(name, "Activation", json!({"activation": kind}), &[from]));
    match activation {
        Activation::Identity => known("linear"),
        Activation::Relu => known("relu"),
        Activation::Tanh => known("tanh"),
        Activation::Sigmoid => known("sigmoid"),
        Activation::Silu => known("swish"),
        Activation::Gelu => known("gelu"),
        Activation::Relu6 => Ok(layers.add(name, "ReLU", json!({"max_value": 6.0}), &[from])),
        Activation::LeakyRelu(slope) if slope < 0.0 => Err(format!(
            "Keras's leaky ReLU takes no slope below zero, and its is {slope}; use --to onnx or safetensors"
        )),
        Activation::LeakyRelu(slope) => Ok(layers.add(name, "ReLU", json!({"negative_slope": exact(slope)}), &[from])),
        Activation::HardSigmoid => Ok(hard_sigmoid(layers, name, layer, from)),
        Activation::HardSwish => {
            let gate = hard_sigmoid(layers, &inner(layer, "gate"), layer, from);
            Ok(layers.add(name, "Multiply", json!({}), &[from, gate]))
        }
        Activation::Scale(factor) => {
            Ok(layers.add(name, "Rescaling", json!({"scale": exact(factor), "offset": 0.0}), &[from]))
        }
        Activation::GeluTanh => Err("Keras's layers have the exact GELU only; use --to onnx or safetensors".into()),
    }
}

/// Of two layers: Keras 2 has another function of this name than Keras 3.
fn hard_sigmoid(layers: &mut Layers, name: &str, layer: &Layer<'_>, from: usize) -> usize {
    let line = layers.add(&inner(layer, "line"), "Rescaling", json!({"scale": 1.0 / 6.0, "offset": 0.5}), &[from]);
    layers.add(name, "ReLU", json!({"max_value": 1.0}), &[line])
}

/// The name of a layer within the network's.
fn inner(layer: &Layer<'_>, what: &str) -> String {
    format!("{}_{what}", layer.node.name)
}

/// Zeros at top, left, bottom, right.
fn zeros(layers: &mut Layers, layer: &Layer<'_>, [top, left, bottom, right]: [usize; 4], from: usize) -> usize {
    layers.add(&inner(layer, "pad"), "ZeroPadding2D", json!({"padding": [[top, bottom], [left, right]]}), &[from])
}

fn name_of(relu: bool) -> &'static str {
    if relu { "relu" } else { "linear" }
}

fn convolution(layers: &mut Layers, conv: &Conv, layer: &Layer<'_>, from: usize) -> Result<usize, String> {
    let Conv { out_channels, kernel, stride, pads, dilation, groups, bias, relu, linear: _, init: _, bias_init: _ } =
        conv;
    if *dilation != [1, 1] && *stride != [1, 1] {
        return Err("Keras has no convolution with both dilation and stride; use --to onnx or safetensors".into());
    }
    let padded = Padded { window: conv.extent(), stride: *stride, pads: *pads };
    let same = padded.is_same(layer.x[0]);
    let from = if same || padded.is_bare() { from } else { zeros(layers, layer, *pads, from) };
    let settings = json!({
        "filters": out_channels, "kernel_size": kernel, "strides": stride, "padding": if same { "same" } else { "valid" },
        "dilation_rate": dilation, "groups": groups, "use_bias": bias, "activation": name_of(*relu),
    });
    layers.add_weighted(&layer.node.name, "Conv2D", settings, &[from])
}

fn full(layers: &mut Layers, linear: &Linear, layer: &Layer<'_>, from: usize) -> Result<usize, String> {
    let Linear { out_features, bias, relu, init: _, bias_init: _ } = linear;
    let settings = json!({"units": out_features, "use_bias": bias, "activation": name_of(*relu)});
    layers.add_weighted(&layer.node.name, "Dense", settings, &[from])
}

fn normalization(layers: &mut Layers, norm: &Norm, layer: &Layer<'_>, inputs: &[usize]) -> Result<usize, String> {
    let Norm { eps, momentum, residual, relu, scale, gamma: _ } = norm;
    let axis = if layer.flat { 1 } else { 3 };
    let settings = json!({"axis": [axis], "epsilon": exact(*eps), "momentum": exact(1.0 - momentum), "scale": scale});
    let mut made = layers.add_weighted(&layer.node.name, "BatchNormalization", settings, &inputs[..1])?;
    if *residual {
        made = layers.add(&inner(layer, "add"), "Add", json!({}), &[made, inputs[1]]);
    }
    if *relu {
        made = layers.add(&inner(layer, "relu"), "ReLU", json!({}), &[made]);
    }
    Ok(made)
}

/// A number of 32 bits with as few digits as tell it from others.
fn exact(number: f32) -> Value {
    let digits: f64 = number.to_string().parse().unwrap_or(f64::from(number));
    json!(digits)
}

fn pooling(
    layers: &mut Layers,
    network: &Network,
    pool: &Pool,
    layer: &Layer<'_>,
    from: usize,
) -> Result<usize, String> {
    let (name, x) = (&layer.node.name, layer.x[0]);
    let max = pool.kind == PoolKind::Max;
    let padded = match windows(pool, x, layer.y)? {
        Windows::All => {
            let class = if max { "GlobalMaxPooling2D" } else { "GlobalAveragePooling2D" };
            return Ok(layers.add(name, class, json!({"keepdims": true}), &[from]));
        }
        Windows::Bins(_) => {
            return Err("its stretches differ in size, and Keras's windows do not; use --to onnx or safetensors".into());
        }
        Windows::Equal(padded) => padded,
    };
    // Keras's own padding never wins and never counts
    let same = padded.is_same(x) && pool.kind != PoolKind::AvgCountPad;
    let with_zeros = match pool.kind {
        PoolKind::Max => network.is_positive(layer.node.inputs[0]),
        PoolKind::AvgCountPad => true,
        PoolKind::Avg => false,
    };
    let from = match same || padded.is_bare() {
        true => from,
        false if with_zeros => zeros(layers, layer, padded.pads, from),
        false => return Err("its padding does not count, and Keras's would; use --to onnx or safetensors".into()),
    };
    let Padded { window, stride, .. } = padded;
    let settings = json!({"pool_size": window, "strides": stride, "padding": if same { "same" } else { "valid" }});
    let class = if max { "MaxPooling2D" } else { "AveragePooling2D" };
    Ok(layers.add(name, class, settings, &[from]))
}

/// Every so many pixels by a pool of one; then channels where rows were, so that zeros can be added to them.
fn strided(layers: &mut Layers, shortcut: &Shortcut, layer: &Layer<'_>, from: usize) -> usize {
    let (before, step) = (shortcut.before(layer.x[0]), shortcut.stride);
    let after = shortcut.out_channels - layer.x[0].c - before;
    let pool = json!({"pool_size": [1, 1], "strides": [step, step], "padding": "valid"});
    let taken = layers.add(&inner(layer, "take"), "AveragePooling2D", pool, &[from]);
    let turned = layers.add(&inner(layer, "turn"), "Permute", json!({"dims": [3, 1, 2]}), &[taken]);
    let padded = zeros(layers, layer, [before, 0, after, 0], turned);
    layers.add(&layer.node.name, "Permute", json!({"dims": [2, 3, 1]}), &[padded])
}

/// A layer.
pub(super) struct LayerConfig {
    /// Its name.
    pub name: String,
    /// Name of its class.
    pub class: &'static str,
    /// What its constructor takes beside the name.
    settings: Map<String, Value>,
    /// The layers that it reads.
    inputs: Vec<usize>,
    /// Of a layer with weights, the layer of the network that they are of.
    pub weights: Option<String>,
}

/// A model under construction.
pub(super) struct Layers {
    list: Vec<LayerConfig>,
    names: BTreeSet<String>,
    output: usize,
}

impl Layers {
    /// A model of images of this shape.
    pub fn new(x: Shape) -> Self {
        let mut layers = Self { list: Vec::new(), names: BTreeSet::new(), output: 0 };
        layers.add("input", "InputLayer", json!({"batch_input_shape": [null, x.h, x.w, x.c], "dtype": "float32"}), &[]);
        layers
    }

    /// The layer of the images.
    pub fn input(&self) -> usize {
        0
    }

    /// Adds a layer without weights under this name, or one like it that is free.
    pub fn add(&mut self, name: &str, class: &'static str, settings: Value, inputs: &[usize]) -> usize {
        let mut free = layer_name(name);
        while !self.names.insert(free.clone()) {
            free.push('_');
        }
        let settings = settings.as_object().cloned().unwrap_or_default();
        self.list.push(LayerConfig { name: free, class, settings, inputs: inputs.to_vec(), weights: None });
        self.list.len() - 1
    }

    /// Adds a layer with weights, whose name must be its own.
    ///
    /// # Errors
    /// For a name that another layer has, or that Keras does not take.
    pub fn add_weighted(
        &mut self,
        name: &str,
        class: &'static str,
        settings: Value,
        inputs: &[usize],
    ) -> Result<usize, String> {
        if self.names.contains(&layer_name(name)) || name.contains('/') {
            return Err("its name is also that of another layer, or has a slash; rename it".into());
        }
        let index = self.add(name, class, settings, inputs);
        self.list[index].weights = Some(name.into());
        Ok(index)
    }

    /// Ends the model with probabilities of the scores of layer `output`; by an `activation`; `dense`: that layer can make them itself.
    pub fn finish(&mut self, output: usize, dense: bool, activation: &'static str) {
        self.output = match dense {
            true => {
                self.list[output].settings.insert("activation".into(), activation.into());
                output
            }
            false => self.add(activation, "Activation", json!({"activation": activation}), &[output]),
        };
    }

    /// The model as Keras 2 writes it, which Keras 3 reads, too.
    pub fn config(&self, name: &str) -> Value {
        let layers: Vec<Value> = self.list.iter().map(|layer| self.entry(layer)).collect();
        let end = |layer: usize| json!([[self.list[layer].name, 0, 0]]);
        json!({
            "class_name": "Functional",
            "config": {"name": name, "layers": layers, "input_layers": end(0), "output_layers": end(self.output)},
        })
    }

    fn entry(&self, layer: &LayerConfig) -> Value {
        let mut config = layer.settings.clone();
        config.insert("name".into(), layer.name.clone().into());
        let inputs: Vec<Value> = layer.inputs.iter().map(|&input| json!([self.list[input].name, 0, 0, {}])).collect();
        let inputs = if inputs.is_empty() { json!([]) } else { json!([inputs]) };
        json!({"class_name": layer.class, "name": layer.name, "config": config, "inbound_nodes": inputs})
    }

    /// The network's names of the layers with weights, in Keras's order.
    pub fn weighted(&self) -> Vec<String> {
        self.in_order().filter_map(|layer| layer.weights.clone()).collect()
    }

    /// All layers in the order of `model.layers` of the loaded model: by the longest way to the output, the longest first; of equals, in
    /// the order in which a search from the output, depth first along the listed inputs, meets them. Keras matches weights by this order.
    pub fn in_order(&self) -> impl Iterator<Item = &LayerConfig> {
        let met = self.met();
        let mut depth = vec![0; self.list.len()];
        for (index, layer) in self.list.iter().enumerate().rev().filter(|(index, _)| met[*index].is_some()) {
            layer.inputs.iter().for_each(|&input| depth[input] = depth[input].max(depth[index] + 1));
        }
        let mut order: Vec<usize> = (0..self.list.len()).filter(|index| met[*index].is_some()).collect();
        order.sort_by_key(|&index| (std::cmp::Reverse(depth[index]), met[index]));
        order.into_iter().map(|index| &self.list[index])
    }

    /// When the search from the output meets each layer; none for what the output does not need.
    fn met(&self) -> Vec<Option<usize>> {
        let mut met = vec![None; self.list.len()];
        let (mut count, mut next) = (0, vec![self.output]);
        while let Some(index) = next.pop() {
            if met[index].is_none() {
                met[index] = Some(count);
                count += 1;
                next.extend(self.list[index].inputs.iter().rev());
            }
        }
        met
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block whose shortcut is listed second: Keras has its convolution behind those of the branch that are farther from the output.
    #[test]
    fn layers_stand_in_the_order_of_keras() {
        let mut layers = Layers::new(Shape::image(3, 8, 8));
        let conv =
            |layers: &mut Layers, name: &str, from| layers.add_weighted(name, "Conv2D", json!({}), &[from]).unwrap();
        let first = conv(&mut layers, "a", 0);
        let left = conv(&mut layers, "b", first);
        let left = conv(&mut layers, "c", left);
        let right = conv(&mut layers, "d", first);
        let sum = layers.add("sum", "Add", json!({}), &[left, right]);
        layers.finish(sum, false, "softmax");
        assert_eq!(layers.weighted(), ["a", "b", "c", "d"]);
        // the same with the shortcut listed first
        layers.list[sum].inputs = vec![right, left];
        assert_eq!(layers.weighted(), ["a", "b", "d", "c"]);
        assert!(layers.add_weighted("a", "Conv2D", json!({}), &[0]).is_err());
        let named = layers.add("sum", "Add", json!({}), &[left, right]);
        assert_eq!(layers.list[named].name, "sum_");
    }
}
