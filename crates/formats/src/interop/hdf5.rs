//! Reads HDF5 files that trireme or Keras wrote: `.h5` of Keras 2 and 3 (a whole model or only weights), and `.weights.h5`
//! of Keras 3. A child process reads files of other programs, because libhdf5 can crash on them.
//!
//! Names are converted to PyTorch's, for example `conv1/kernel` to `conv1.weight`. Values stay in Keras's order,
//! because the conversion needs the layers of the network.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use base::text::printable;

use super::weights::{Error, ExportedModel, Format, Weights};
use crate::checkpoint;
use crate::checkpoint::foreign::Failed;
use crate::checkpoint::{KerasWeights, ModelFile, Opened, Tensor, foreign, read_weights};

/// Keras's names of weights and the matching names in PyTorch.
const NAMES: [(&str, &str); 7] = [
    ("kernel", "weight"),
    ("depthwise_kernel", "weight"),
    ("bias", "bias"),
    ("gamma", "weight"),
    ("beta", "bias"),
    ("moving_mean", "running_mean"),
    ("moving_variance", "running_var"),
];

/// The default epsilon of batch norms in PyTorch and trireme.
const OUR_EPSILON: f64 = 1e-5;

/// Reads an HDF5 file that another program wrote.
fn read_keras(path: &Path) -> Result<Weights, Error> {
    let unsupported = |text: String| Error::Unsupported { path: path.to_path_buf(), text };
    let copy = foreign::rewritten(path, &["--weights"]).map_err(|failed| match failed {
        Failed::Copy(why) => unsupported(why),
        Failed::Said(said) => {
            unsupported(format!("cannot read this HDF5 file: {said}. Save the weights again with Keras"))
        }
    })?;
    let KerasWeights { tensors, epsilons, turned, about } = read_weights(&copy.name(), path)?;
    if let Some(layer) = turned.first() {
        return Err(unsupported(format!(
            "its layer {} flattens images in an order other than (H, W, C), because a Permute layer comes before it or its data_format \
             differs from the convolutions. The weights after it would be assigned wrongly. Convert the model to ONNX and use that file",
            printable(layer)
        )));
    }
    let warning = warning(path, shiftless(&tensors).map_err(unsupported)?, &epsilons);
    let tensors = renamed(tensors).map_err(unsupported)?;
    if tensors.is_empty() {
        let text =
            "this HDF5 file has no weights in a Keras layout (layer_names and weight_names, or layers with vars)";
        return Err(unsupported(text.into()));
    }
    let exported = ExportedModel::from_metadata(|name| about.get(name).map(String::as_str));
    Ok(Weights { warning, keras: true, exported, ..Weights::new(path, "Keras", tensors) })
}

/// Returns a warning about ambiguous or unusual batch norms. `one` is the layer that [`shiftless`] found, if any, and
/// `epsilons` are the distinct epsilons of all layers.
fn warning(path: &Path, one: Option<String>, epsilons: &[String]) -> Option<String> {
    let path = path.display();
    let numbered = one.map(|layer| {
        format!(
            "warning: {path}: the three weights of {} and similar layers are read as shift, mean and variance. If they belong to a \
             BatchNormalization(center=False), this is wrong: save the model with center=True and a shift of zeros",
            printable(&layer)
        )
    });
    let others = epsilons.iter().any(|epsilon| epsilon.parse::<f64>() != Ok(OUR_EPSILON));
    let epsilon = others.then(|| {
        format!(
            "warning: {path}: its batch norms have an epsilon of {}. If the network has another epsilon (`eps`), probabilities change \
             slightly",
            printable(&epsilons.join(" and "))
        )
    });
    // only files without a model config have numbered weights, and these have no epsilons
    numbered.or(epsilon)
}

/// Returns the first layer with three numbered vectors. They are shift, mean and variance of a norm without a scale, or
/// scale, mean and variance of a norm without a shift. The file does not say which.
///
/// # Errors
/// Fails if the first vector of all such layers has only positive values. Scales usually are positive, and shifts are
/// not.
fn shiftless(tensors: &[Tensor]) -> Result<Option<String>, String> {
    let mut layers: BTreeMap<&str, Vec<&Tensor>> = BTreeMap::new();
    for tensor in tensors {
        let (layer, field) = split(&tensor.0);
        if field.parse::<usize>().is_ok() {
            layers.entry(layer).or_default().push(tensor);
        }
    }
    layers.retain(|_, weights| weights.len() == 3 && weights.iter().all(|(_, shape, _)| shape.len() == 1));
    let mut first = layers.values().flatten().filter(|(name, ..)| split(name).1 == "0").flat_map(|(.., values)| values);
    let one = layers.keys().next().map(ToString::to_string);
    match one {
        Some(layer) if first.all(|value| *value > 0.0) => Err(format!(
            "its layer {} has three weights, and all values of the first are positive. It seems to be a \
             BatchNormalization(center=False), which is not supported in .weights.h5 files. Save the model with center=True and a shift \
             of zeros",
            printable(&layer)
        )),
        one => Ok(one),
    }
}

/// Converts the names to PyTorch's.
fn renamed(tensors: Vec<Tensor>) -> Result<Vec<Tensor>, String> {
    let mut layers: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (name, shape, _) in &tensors {
        layers.entry(split(name).0.to_string()).or_default().push(shape.len());
    }
    let mut seen = BTreeSet::new();
    let rename = |(name, shape, values): Tensor| {
        let (layer, field) = split(&name);
        let torch = match (field.parse::<usize>(), layers.get(layer)) {
            (Ok(number), Some(ranks)) => by_number(ranks).get(number).copied().unwrap_or(field),
            _ => NAMES.iter().find(|known| known.0 == field).map_or(field, |known| known.1),
        };
        let new = format!("{}.{torch}", layer.replace('/', "."));
        match seen.insert(new.clone()) {
            true => Ok((new, shape, values)),
            false => Err(format!("two of its weights would both have the name {new}")),
        }
    };
    tensors.into_iter().map(rename).collect()
}

fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('/').unwrap_or(("", name))
}

/// Returns PyTorch's names for a layer's numbered weights, in the order in which Keras's layers create them. `ranks` are the weights'
/// numbers of dimensions. Returns an empty list if no layer type has such weights.
fn by_number(ranks: &[usize]) -> &'static [&'static str] {
    match ranks {
        [1, 1, 1, 1] => &["weight", "bias", "running_mean", "running_var"],
        // a batch norm without a scale, as in most of Keras's own networks
        [1, 1, 1] => &["bias", "running_mean", "running_var"],
        [2 | 4, 1] | [1, 1] => &["weight", "bias"],
        [_] => &["weight"],
        _ => &[],
    }
}

// Trireme's own model.h5 and checkpoints. For a checkpoint, these are the weights of the last step, not the averaged
// weights. [`read_keras`] reads the files of other programs.

/// The first bytes of an HDF5 file.
const SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";

pub(super) const HDF5_FORMAT: Format = Format {
    name: "trireme",
    about: "trireme's model.h5 and checkpoints, Keras's .h5",
    recognises: |head| head.starts_with(SIGNATURE),
    read,
    has_keys: false,
};

fn read(path: &Path, _: Option<&str>) -> Result<Weights, Error> {
    let opened = match ModelFile::read(path) {
        Err(checkpoint::Error::Foreign { .. }) => None,
        Err(checkpoint::Error::Rewritten { .. }) => made_anew(path)?,
        other => Some(Opened { model: other?, warning: None }),
    };
    let Some(opened) = opened else { return read_keras(path) };
    let warning = opened.warning_line(path);
    let mut model = opened.model;
    model.ema.clear();
    let tensors = std::mem::take(&mut model.layers).into_iter().flat_map(|layer| {
        let name = layer.name;
        layer.tensors.into_iter().map(move |(field, shape, values)| (format!("{name}.{field}"), shape, values))
    });
    Ok(Weights { model: Some(model), warning, ..Weights::new(path, HDF5_FORMAT.name, tensors.collect()) })
}

/// Reads a trireme model that another program has rewritten. Returns `None` if the file is not a trireme model.
fn made_anew(path: &Path) -> Result<Option<Opened>, Error> {
    let Ok(copy) = foreign::rewritten(path, &[]) else { return Ok(None) };
    match ModelFile::open_copy(&copy.name(), path) {
        Ok(opened) => Ok(Some(opened)),
        Err(checkpoint::Error::Foreign { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[(&str, usize)]) -> Result<Vec<String>, String> {
        let tensors = names.iter().map(|(name, rank)| (name.to_string(), vec![1; *rank], vec![0.0]));
        Ok(renamed(tensors.collect())?.into_iter().map(|tensor| tensor.0).collect())
    }

    #[test]
    fn norms_without_shift_and_without_scale_are_distinguished() {
        let norm = |layer: &str, first: [f32; 3]| {
            let vectors = [first, [0.5, 0.5, 0.5], [1.0, 1.0, 1.0]];
            let named = move |(i, values): (usize, [f32; 3])| (format!("{layer}/{i}"), vec![3], values.to_vec());
            vectors.into_iter().enumerate().map(named).collect::<Vec<Tensor>>()
        };
        let scales = [norm("a", [0.9, 1.1, 1.0]), norm("b", [0.2, 0.3, 1.4])].concat();
        let refused = shiftless(&scales).unwrap_err();
        assert!(refused.contains("layer a ") && refused.contains("center=False"), "{refused}");
        let shifts = [norm("a", [0.9, 1.1, 1.0]), norm("b", [0.2, -0.3, 1.4])].concat();
        assert_eq!(shiftless(&shifts).unwrap(), Some("a".into()));
        assert_eq!(shiftless(&norm("a", [0.0; 3])).unwrap(), Some("a".into()));
        // a norm with scale and shift has four vectors
        let four = [norm("a", [0.9, 1.1, 1.0]), vec![("a/3".to_string(), vec![3], vec![1.0; 3])]].concat();
        assert_eq!(shiftless(&four).unwrap(), None);
        let told = |one: Option<&str>, epsilons: &[&str]| {
            let epsilons: Vec<String> = epsilons.iter().map(ToString::to_string).collect();
            warning(Path::new("k.h5"), one.map(str::to_string), &epsilons)
        };
        assert_eq!(told(None, &["0.00001"]), None);
        assert!(told(None, &["0.00001", "0.001"]).unwrap().contains("0.00001 and 0.001"));
        assert!(told(Some("bn"), &[]).unwrap().contains("weights of bn"));
    }

    #[test]
    fn keras_weight_names_become_pytorch_names() {
        let named = [
            ("conv1/kernel", 4),
            ("conv1/bias", 1),
            ("conv1/bn/moving_mean", 1),
            ("dw/depthwise_kernel", 4),
            ("odd/x", 1),
        ];
        let want = ["conv1.weight", "conv1.bias", "conv1.bn.running_mean", "dw.weight", "odd.x"];
        assert_eq!(names(&named).unwrap(), want);
        let norm =
            [("a.bn/0", 1), ("a.bn/1", 1), ("a.bn/2", 1), ("a.bn/3", 1), ("fc/0", 2), ("fc/1", 1), ("conv/0", 4)];
        let want = [
            "a.bn.weight",
            "a.bn.bias",
            "a.bn.running_mean",
            "a.bn.running_var",
            "fc.weight",
            "fc.bias",
            "conv.weight",
        ];
        assert_eq!(names(&norm).unwrap(), want);
        assert_eq!(
            names(&[("bn/0", 1), ("bn/1", 1), ("bn/2", 1)]).unwrap(),
            ["bn.bias", "bn.running_mean", "bn.running_var"]
        );
        assert!(names(&[("a/kernel", 4), ("a/depthwise_kernel", 4)]).unwrap_err().contains("a.weight"));
    }
}
