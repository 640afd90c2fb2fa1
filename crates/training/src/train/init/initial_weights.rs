//! Reads the file in `init.from` and copies its weights to the parameters on all ranks.

use std::collections::BTreeMap;
use std::path::Path;

use backend::Backend;
use engine::graph::BuildError;
use formats::checkpoint::{LayerKind, Tensor, keras};
use formats::interop;
use formats::interop::Weights;
use loaders::regular;
use net::{KerasOrder, NetSpec};
use recipe::Init;
use sha2::{Digest, Sha256};

use super::matching::{self, TensorMatches};
use super::stem::{self, AdaptedStem};
use super::{positions, table, whiten};
use crate::error::Error;
use crate::train::agree::Session;
use crate::train::plan::network::check_exists;
use crate::train::plan::run::Run;
use crate::train::save::model;
use crate::train::save::snapshot::share;

/// Weights that fit the network. Only rank 0 holds the values.
pub struct InitialWeights {
    loaded: Option<LoadedWeights>,
}

struct LoadedWeights {
    weights: Weights,
    fit: TensorMatches,
    notes: Vec<String>,
}

/// Reads and checks the file in `init.from`, if there is one. Also checks recipe keys that matter only for a new run.
/// Collective. Returns an error on all ranks if the file cannot be read, does not fit, or was trained on other data.
pub fn prepare<B: Backend>(session: &Session, run: &Run<B>) -> Result<Option<InitialWeights>, Error> {
    session.agree(run.recipe.averages_begin(run.division.steps_per_epoch).map_err(Error::from))?;
    let layer = run.recipe.init.whiten.as_deref();
    session.agree(layer.map_or(Ok(()), |layer| whiten::check(run.graph.net(), layer)))?;
    let Some(from) = &run.recipe.init.from else { return Ok(None) };
    let loaded = if session.is_root() { load(run, Path::new(from)).map(Some) } else { Ok(None) };
    Ok(Some(InitialWeights { loaded: session.agree(loaded)? }))
}

fn load<B: Backend>(run: &Run<B>, from: &Path) -> Result<LoadedWeights, Error> {
    check_exists(
        "init.from: cannot read",
        from,
        "name a file of weights, relative to the current directory, or leave the key out",
    )?;
    run.recipe.init.sha256.as_deref().map_or(Ok(()), |expected| check_sum(from, expected))?;
    let read = interop::read(from, run.recipe.init.key.as_deref())
        .map_err(|error| Error::Failed(format!("init.from: {error}")))?;
    let weights = to_network_order(run.graph.net(), read, &run.recipe.init)?;
    let AdaptedStem { mut weights, init, notes: mut adapted } =
        stem::adapt(run.graph.net(), weights, &run.recipe.init)?;
    let stem_was_adapted = !adapted.is_empty();
    adapted.extend(positions::adapt(run.graph.net(), &mut weights, &init)?);
    let fit = matching::match_tensors(run.graph.net(), &weights, &init)?;
    table::check(&fit, &weights, run.recipe.init.strict(), table::TRAINING_CURE)?;
    fit.check_values(&weights)?;
    let damaged = weights.exported.as_ref().and_then(|exported| exported.warning(&weights.path));
    let mut notes: Vec<String> = weights.warning.iter().cloned().chain(damaged).chain(adapted).collect();
    notes.extend(table::check_origin(&run.source, &fit, &weights, stem_was_adapted)?);
    Ok(LoadedWeights { weights, fit, notes })
}

/// Returns an error if the file does not have this SHA-256.
fn check_sum(from: &Path, expected: &str) -> Result<(), Error> {
    if from.is_dir() {
        let from = from.display();
        return Err(Error::Usage(format!(
            "init.sha256: {from} is a directory; name the file itself in init.from, such as {from}/model.h5"
        )));
    }
    let failed = Error::file("read the weights", from);
    let mut sum = Sha256::new();
    let mut file = regular::open(from).map_err(failed)?;
    std::io::copy(&mut file, &mut sum).map_err(failed)?;
    let found: String = sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if found.eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "init.from: {}: expected SHA-256 {expected} (init.sha256), found {found}. The file is damaged or another one: copy it again, or \
         correct the key",
        from.display()
    )))
}

impl InitialWeights {
    /// Returns lines for the log: the short table of tensors, and notes. Empty on all ranks except 0.
    pub fn notes(&self) -> Vec<String> {
        let lines =
            |loaded: &LoadedWeights| [table::short(&loaded.fit, &loaded.weights), loaded.notes.clone()].concat();
        self.loaded.as_ref().map_or_else(Vec::new, lines)
    }

    /// Returns the table of all tensors for `--dry-run`. Empty on all ranks except 0.
    pub fn table(&self) -> String {
        let text = |loaded: &LoadedWeights| {
            format!("{}{}\n", table::whole(&loaded.fit, &loaded.weights), lines(&loaded.notes))
        };
        self.loaded.as_ref().map_or_else(String::new, text)
    }

    /// Copies the values to the parameters on all ranks. Collective.
    pub fn apply<B: Backend>(self, session: &Session, run: &mut Run<B>) -> Result<(), Error> {
        let filled = self.loaded.map_or(Ok(()), |loaded| fill(run, &loaded));
        session.agree(filled)?;
        share(session, run)
    }
}

fn lines(notes: &[String]) -> String {
    notes.iter().map(|note| format!("{note}\n")).collect()
}

fn fill<B: Backend>(run: &mut Run<B>, loaded: &LoadedWeights) -> Result<(), Error> {
    let taken = loaded.fit.matching_tensors(&loaded.weights).map(|(name, tensor)| (name, tensor.values)).collect();
    model::set_some(&mut run.graph, &taken)
}

// Keras stores values in another order than PyTorch. The conversion needs the network's layers, to recognise depthwise kernels and linear
// layers that read a flattened image.

/// Converts weights from Keras: for all tensors that the network has, the values are put in the network's order.
/// Weights that do not come from Keras stay unchanged. Returns the same errors as [`matching::renamed`].
pub fn to_network_order(net: &NetSpec, mut weights: Weights, init: &Init) -> Result<Weights, Error> {
    if !weights.keras {
        return Ok(weights);
    }
    let shapes = net.shapes().map_err(BuildError::from)?;
    let kinds: BTreeMap<&str, (LayerKind, bool)> = net
        .nodes
        .iter()
        .zip(model::layer_kinds(net, &shapes))
        .filter_map(|(node, kind)| {
            let x = shapes[node.inputs[0].0];
            let is_depthwise = x.c > 1 && node.op.params(x).first().is_some_and(|p| p.shape.get(1) == Some(&1));
            Some((node.name.as_str(), (kind?, is_depthwise)))
        })
        .collect();
    for (name, index) in matching::renamed(&weights, init)? {
        let Some((layer, field)) = name.rsplit_once('.') else { continue };
        if let Some((kind, is_depthwise)) = kinds.get(layer)
            && let Some(tensor) = in_order(*kind, *is_depthwise, field, &weights.tensors[index])
        {
            (weights.tensors[index].1, weights.tensors[index].2) = tensor;
        }
    }
    Ok(weights)
}

/// Returns shape and values of a layer's tensor in PyTorch's order, or `None` if the tensor does not fit the layer. In that case the tensor
/// stays unchanged, and its shape shows the difference later. `is_depthwise` is true if the layer reads more than
/// one channel, but each filter only one.
fn in_order(kind: LayerKind, is_depthwise: bool, field: &str, tensor: &Tensor) -> Option<(Vec<usize>, Vec<f32>)> {
    let (_, stored) = kind.stored.by_torch(field)?;
    let (_, shape, values) = tensor;
    let shape = match (stored.order, &shape[..]) {
        // depthwise kernels, which Keras stores as (h, w, channels, multiplier)
        (KerasOrder::Filters, &[h, w, channels, multiplier]) if is_depthwise && channels > 1 => {
            vec![h, w, 1, channels.checked_mul(multiplier)?]
        }
        // a dense layer of the file for a 1x1 convolution of the network, and the reverse
        (KerasOrder::Filters, &[inputs, outputs]) => vec![1, 1, inputs, outputs],
        (KerasOrder::Matrix, &[1, 1, inputs, outputs]) => vec![inputs, outputs],
        _ => shape.clone(),
    };
    let keras = [(stored.keras.to_string(), shape, values.clone())];
    let [(_, shape, values)] = <[Tensor; 1]>::try_from(keras::from_keras(kind, &keras).ok()?).ok()?;
    Some((shape, values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::{Conv, Flatten, Linear, Norm, Pool, Shape};
    use recipe::Stem;

    fn values(count: usize) -> Vec<f32> {
        (0..count).map(|i| i as f32).collect()
    }

    #[test]
    fn values_get_the_order_of_the_networks_layers() {
        let mut net = NetSpec::new("x", Shape::image(3, 4, 4));
        let x = net.add("conv", Conv::new(2, 3).pad(1), net.image());
        let x = net.add("dw", Conv::new(2, 3).pad(1).groups(2), x);
        let x = net.add("bn", Norm::new(), x);
        let x = net.add("flatten", Flatten, x);
        net.add("fc", Linear::new(5), x);
        let tensors = [
            ("conv.weight", vec![3, 3, 3, 2]),
            ("dw.weight", vec![3, 3, 2, 1]),
            ("fc.weight", vec![32, 5]),
            ("bn.bias", vec![2]),
            ("other.weight", vec![2, 3]),
        ];
        let tensors = tensors.map(|(name, shape)| (name.to_string(), shape.clone(), values(shape.iter().product())));
        let weights = Weights {
            path: "a.h5".into(),
            format: "Keras",
            tensors: tensors.to_vec(),
            keras: true,
            ..Weights::default()
        };
        let ordered = to_network_order(&net, weights.clone(), &Init::default()).unwrap();
        let shapes: Vec<&[usize]> = ordered.tensors.iter().map(|tensor| &tensor.1[..]).collect();
        assert_eq!(shapes, [&[2, 3, 3, 3][..], &[2, 1, 3, 3], &[5, 32], &[2], &[2, 3]]);
        // converted from (h, w, in, out), and for the depthwise kernel from (h, w, channels, 1), to (out, in, h, w)
        let [conv, dw, fc, ..] = &ordered.tensors[..] else { panic!() };
        assert_eq!((conv.2[1], conv.2[9], conv.2[27]), (6.0, 2.0, 1.0));
        assert_eq!((dw.2[1], dw.2[9]), (2.0, 1.0));
        // the linear layer's inputs are ordered (c, h, w) in PyTorch and (h, w, c) in Keras
        assert_eq!((fc.2[1], fc.2[16], fc.2[32]), (2.0 * 5.0, 5.0, 1.0));
        assert_eq!(ordered.tensors[3..], weights.tensors[3..]);
        let other = Weights { keras: false, ..weights };
        assert_eq!(to_network_order(&net, other.clone(), &Init::default()).unwrap(), other);
    }

    #[test]
    fn dense_layers_and_convolutions_of_one_pixel_fit_each_other() {
        let mut net = NetSpec::new("x", Shape::image(3, 4, 4));
        let x = net.add("conv", Conv::new(3, 1), net.image());
        let x = net.add("mean", Pool::global(), x);
        net.add("fc", Linear::new(3), x);
        let tensors = [("conv.weight", vec![3, 3]), ("fc.weight", vec![1, 1, 3, 3])];
        let tensors = tensors.map(|(name, shape)| (name.to_string(), shape, values(9))).to_vec();
        let weights = Weights { path: "a.h5".into(), format: "Keras", tensors, keras: true, ..Weights::default() };
        let ordered = to_network_order(&net, weights, &Init::default()).unwrap().tensors;
        let shapes: Vec<&[usize]> = ordered.iter().map(|tensor| &tensor.1[..]).collect();
        assert_eq!(shapes, [&[3, 3, 1, 1][..], &[3, 3]]);
        ordered.iter().for_each(|tensor| assert_eq!(tensor.2, [0.0, 3.0, 6.0, 1.0, 4.0, 7.0, 2.0, 5.0, 8.0]));
    }

    /// The first convolution of a network for grey images reads one channel, but is not depthwise.
    #[test]
    fn filters_for_rgb_images_are_adapted_to_grey_images() {
        let mut net = NetSpec::new("x", Shape::image(1, 4, 4));
        net.add("conv", Conv::new(2, 3), net.image());
        let tensors = vec![("conv.weight".to_string(), vec![3, 3, 3, 2], values(54))];
        let weights = Weights { path: "a.h5".into(), format: "Keras", tensors, keras: true, ..Weights::default() };
        let ordered = to_network_order(&net, weights, &Init::default()).unwrap();
        assert_eq!(ordered.tensors[0].1, [2, 3, 3, 3]);
        let init = Init { stem: Some(Stem::Repeat), ..Init::default() };
        let adapted = stem::adapt(&net, ordered, &init).unwrap().weights;
        let (_, shape, values) = &adapted.tensors[0];
        assert_eq!(shape, &[2, 1, 3, 3]);
        // the sums over the channels of the filters' first and second cells
        assert_eq!((values[0], values[1], values[9]), (6.0, 24.0, 9.0));
    }
}
