//! Layers of Keras, their JSON, and their order in a loaded model.

use std::collections::BTreeSet;

use net::Shape;
use serde_json::{Map, Value, json};

use crate::checkpoint::keras::layer_name;

/// A layer.
pub(super) struct Layer {
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
    list: Vec<Layer>,
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
        self.list.push(Layer { name: free, class, settings, inputs: inputs.to_vec(), weights: None });
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

    fn entry(&self, layer: &Layer) -> Value {
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
    pub fn in_order(&self) -> impl Iterator<Item = &Layer> {
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
