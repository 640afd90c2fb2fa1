//! Weights as names, shapes and values: reads them from a model and writes them to a .safetensors file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ::safetensors::Dtype;
use ::safetensors::tensor::TensorView;
use formats::checkpoint::{LayerWeights, ModelFile};

/// Shapes and values by name.
pub type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// Reads the weights of the model in the output folder.
pub fn tensors(out: &str) -> Tensors {
    tensors_of(&Path::new(out).join("model.h5"))
}

/// Reads the weights of a model file.
pub fn tensors_of(model: &Path) -> Tensors {
    let model = ModelFile::read(model).unwrap_or_else(|e| panic!("{e}"));
    let named = |layer: LayerWeights| {
        layer
            .tensors
            .into_iter()
            .map(move |(field, shape, values)| (format!("{}.{field}", layer.name), (shape, values)))
    };
    model.layers.into_iter().flat_map(named).collect()
}

/// Writes tensors to a .safetensors file. `change` may change the values and returns the new name, or `None` to leave
/// the tensor out.
pub fn safetensors(path: &Path, tensors: &Tensors, change: impl Fn(&str, &mut Vec<f32>) -> Option<String>) {
    let changed = tensors.iter().filter_map(|(name, (shape, values))| {
        let mut values = values.clone();
        let name = change(name, &mut values)?;
        Some((name, shape.clone(), values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>()))
    });
    let changed: Vec<_> = changed.collect();
    fs::write(path, ::safetensors::serialize(changed.iter().map(view), None).unwrap()).unwrap();
}

fn view((name, shape, bytes): &(String, Vec<usize>, Vec<u8>)) -> (&str, TensorView<'_>) {
    (name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
}
