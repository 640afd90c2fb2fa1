//! Weights as names, shapes and values: reads them from a model and writes them to a .safetensors file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ::safetensors::Dtype;
use ::safetensors::tensor::TensorView;
use formats::checkpoint::{LayerWeights, ModelFile};

use super::numerics::{assert_close, magnitude};

/// Shapes and values by name.
pub type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

#[track_caller]
pub fn model(out: &str) -> ModelFile {
    model_at(Path::new(out).join("model.h5"))
}

#[track_caller]
pub fn model_at(path: impl AsRef<Path>) -> ModelFile {
    ModelFile::read(path.as_ref()).unwrap_or_else(|e| panic!("{e}"))
}

pub fn values(layers: &[LayerWeights]) -> Vec<f32> {
    layers.iter().flat_map(|layer| &layer.tensors).flat_map(|tensor| tensor.2.iter().copied()).collect()
}

pub fn tensors(out: &str) -> Tensors {
    tensors_of(Path::new(out).join("model.h5"))
}

pub fn tensors_of(model: impl AsRef<Path>) -> Tensors {
    let model = model_at(model);
    let named = |layer: LayerWeights| {
        layer
            .tensors
            .into_iter()
            .map(move |(field, shape, values)| (format!("{}.{field}", layer.name), (shape, values)))
    };
    model.layers.into_iter().flat_map(named).collect()
}

/// Checks that two models have weights of the same names and nearly the same values.
pub fn assert_tensors_near(out: &str, expected: &str, tolerance: f64) {
    let (got, want) = (tensors(out), tensors(expected));
    assert!(got.keys().eq(want.keys()), "{out} and {expected} have other weights");
    for (name, (_, want)) in &want {
        assert_close(&format!("{out}: {name}"), &got[name].1, want, tolerance * magnitude(want).max(1.0));
    }
}

/// Writes tensors to a .safetensors file. `change` may change the values and returns the new name, or `None` to leave the tensor out.
pub fn safetensors(path: &Path, tensors: &Tensors, change: impl Fn(&str, &mut Vec<f32>) -> Option<String>) {
    let changed = tensors.iter().filter_map(|(name, (shape, values))| {
        let mut values = values.clone();
        let name = change(name, &mut values)?;
        Some((name, shape.clone(), values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>()))
    });
    let changed: Vec<_> = changed.collect();
    fs::write(path, ::safetensors::serialize(changed.iter().map(view), None).unwrap()).unwrap();
}

/// Returns the header of a .safetensors file and the offset of the first value.
pub fn header(bytes: &[u8]) -> (serde_json::Value, usize) {
    let (length, rest) = bytes.split_first_chunk().unwrap();
    let length = u64::from_le_bytes(*length) as usize;
    (serde_json::from_slice(&rest[..length]).unwrap(), 8 + length)
}

/// Returns the f32 values in little-endian bytes.
pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect()
}

fn view((name, shape, bytes): &(String, Vec<usize>, Vec<u8>)) -> (&str, TensorView<'_>) {
    (name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
}
