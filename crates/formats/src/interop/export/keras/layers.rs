//! Builds a Keras model: its layers, and the order in which Keras lists them.

use std::collections::BTreeSet;

use net::Shape;
use serde_json::{Map, Value, json};

use crate::checkpoint::keras::layer_name;
use crate::interop::export::network::{Layer, Turn};

pub(crate) struct LayerConfig {
    pub name: String,
    pub class: &'static str,
    /// Arguments of the constructor, without the name.
    settings: Map<String, Value>,
    /// Indices of its input layers.
    inputs: Vec<usize>,
    /// Name of the layer in the network, if it has weights.
    pub weights: Option<String>,
}

/// A Keras model under construction.
pub(crate) struct Layers {
    list: Vec<LayerConfig>,
    names: BTreeSet<String>,
    output: usize,
}

impl Layers {
    /// Creates a model with an input of this shape.
    pub fn new(x: Shape) -> Self {
        let mut layers = Self { list: Vec::new(), names: BTreeSet::new(), output: 0 };
        layers.add("input", "InputLayer", json!({"batch_input_shape": [null, x.h, x.w, x.c], "dtype": "float32"}), &[]);
        layers
    }

    pub fn input(&self) -> usize {
        0
    }

    /// Adds a layer without weights and returns its index. Appends `_` to the name until it is unique.
    pub fn add(&mut self, name: &str, class: &'static str, settings: Value, inputs: &[usize]) -> usize {
        let mut free = layer_name(name);
        while !self.names.insert(free.clone()) {
            free.push('_');
        }
        let settings = settings.as_object().cloned().unwrap_or_default();
        self.list.push(LayerConfig { name: free, class, settings, inputs: inputs.to_vec(), weights: None });
        self.list.len() - 1
    }

    /// Adds a layer with weights and returns its index. In contrast to [`Layers::add`], its name is never changed,
    /// because the weights are stored under this name.
    ///
    /// # Errors
    /// Fails if another layer has this name or if the name has a slash.
    pub fn add_weighted(
        &mut self,
        name: &str,
        class: &'static str,
        settings: Value,
        inputs: &[usize],
    ) -> Result<usize, String> {
        if name.contains('/') {
            return Err("its name has a slash, which Keras does not allow. Rename it".into());
        }
        if self.names.contains(&layer_name(name)) {
            return Err(format!(
                "its name in Keras, {}, belongs to another layer already. Rename it",
                layer_name(name)
            ));
        }
        let index = self.add(name, class, settings, inputs);
        self.list[index].weights = Some(name.into());
        Ok(index)
    }

    /// Ends the model with an `activation` that turns the scores of layer `output` into probabilities. If `dense` is
    /// true, this layer is a Dense layer, which applies the activation itself. Otherwise an activation layer is added.
    pub fn finish(&mut self, output: usize, dense: bool, activation: &'static str) {
        self.output = match dense {
            true => {
                self.list[output].settings.insert("activation".into(), activation.into());
                output
            }
            false => self.add(activation, "Activation", json!({"activation": activation}), &[output]),
        };
    }

    /// Returns the model's config in the form of Keras 2. Keras 3 reads it, too.
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

    /// Returns the names of the network's layers with weights, in Keras's order.
    pub fn weighted(&self) -> Vec<String> {
        self.in_order().filter_map(|layer| layer.weights.clone()).collect()
    }

    /// Returns all layers in the order of `model.layers` in the loaded model. Keras matches weights by this order.
    ///
    /// Layers whose longest path to the output is longer come first. Layers with equal lengths are in the order in
    /// which a depth-first search from the output visits them.
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

    /// Returns the position of each layer in a depth-first search from the output. `None` if the output does not depend
    /// on the layer.
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

/// Adds a layer that converts input number `index` of a layer to the number of dimensions that the layer reads. Returns
/// the converted input, or `input` itself if its dimensions are right.
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

/// Returns a name for a helper layer.
pub(crate) fn inner(layer: &Layer<'_>, what: &str) -> String {
    format!("{}_{what}", layer.node.name)
}

/// Adds a layer that pads with zeros at top, left, bottom and right.
pub(crate) fn zeros(
    layers: &mut Layers,
    layer: &Layer<'_>,
    [top, left, bottom, right]: [usize; 4],
    from: usize,
) -> usize {
    layers.add(&inner(layer, "pad"), "ZeroPadding2D", json!({"padding": [[top, bottom], [left, right]]}), &[from])
}

/// Returns Keras's name of the fused activation.
pub(crate) fn activation(relu: bool) -> &'static str {
    if relu { "relu" } else { "linear" }
}

/// Returns a number with the fewest decimal digits that identify the f32 value.
pub(crate) fn exact(number: f32) -> Value {
    let digits: f64 = number.to_string().parse().unwrap_or(f64::from(number));
    json!(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shortcut is the second input of the sum, so Keras lists its convolution `d` after the other branch.
    #[test]
    fn layers_are_listed_in_the_order_of_keras() {
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
        // now the shortcut is the first input
        layers.list[sum].inputs = vec![right, left];
        assert_eq!(layers.weighted(), ["a", "b", "d", "c"]);
        assert!(layers.add_weighted("a", "Conv2D", json!({}), &[0]).is_err());
        let named = layers.add("sum", "Add", json!({}), &[left, right]);
        assert_eq!(layers.list[named].name, "sum_");
    }
}
