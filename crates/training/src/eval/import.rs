//! Converts a file of weights from another program to a model file. Tensors are assigned to parameters by the rules of
//! `[init]`, as in a run that starts from this file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base::text::printable;
use engine::graph::BuildError;
use formats::checkpoint::{LayerKind, LayerWeights, ModelFile};
use formats::interop;
use formats::interop::Weights;
use formats::interop::export::{HDF5, keras};
use formats::interop::onnx::Survey;
use loaders::{Bands, ImageSpec, Images, Manifest, Pipeline, Target, overwrite};
use net::{NetSpec, Node, Shape, models};
use recipe::{Changes, Init, Recipe};

use crate::error::Error;
use crate::eval::model::{images, manifest};
use crate::eval::request::ImportRequest;
use crate::train::init::matching::{MatchResult, TensorMatch, TensorMatches, classes as count, match_tensors};
use crate::train::init::{initial_weights, positions, table};
use crate::train::plan::network::{FileNetwork, network, shape_of, sizes_of};
use crate::train::save::model;

/// Writes a model file and returns messages for the user, one per line. Returns an error if the weights cannot be read,
/// if the network has a tensor that the file lacks, or if the model file cannot be written.
pub fn import(request: &ImportRequest) -> Result<Vec<String>, Error> {
    let ImportSettings { network: name, transforms, init } = ImportSettings::from_request(request)?;
    let classes = request.classes.as_deref().map(read).transpose()?;
    if !request.force && request.out.symlink_metadata().is_ok() {
        let out = request.out.display();
        return Err(Error::Usage(format!("{out} already exists; choose another name, or replace it with --force")));
    }
    let inputs = [Some(&request.file), request.recipe.as_ref(), request.classes.as_ref()];
    let inputs: Vec<&Path> = inputs.into_iter().flatten().map(PathBuf::as_path).collect();
    overwrite::check(&request.out, &HDF5, &inputs).map_err(Error::Usage)?;
    let mut weights = interop::read(&request.file, init.key.as_deref())?;
    weights.check_description()?;
    if name.is_none() && weights.format == interop::onnx::FORMAT_NAME {
        return import_graph(request, transforms, classes, &mut weights);
    }
    let saved = weights.description();
    let name = name.or(saved.map(|saved| saved.network.clone())).ok_or_else(|| {
        let file = request.file.display();
        Error::Usage(format!(
            "{file}: this kind of file does not name a network. Add --model NAME (`trireme models` lists them), or --recipe"
        ))
    })?;
    let expected = models::input(&name).ok_or_else(|| unknown(&name))?;
    let pipeline = pipeline(&name, expected, transforms, &weights)?;
    let classes = classes.or(saved.map(|saved| saved.classes.clone()));
    let any = network(&name, pipeline.output(), models::classes(&name).unwrap_or(1))?;
    let mut weights = initial_weights::to_network_order(&any, weights, &init)?;
    let mut notes = positions::adapt(&any, &mut weights, &init)?;
    let (net, fit) = build_and_match(&name, pipeline.output(), classes.as_ref().map(Vec::len), &weights, &init)?;
    check_complete(&fit, &weights)?;
    notes.extend(weights.warning.iter().cloned().chain(table::rows(&fit, &weights)));
    notes.extend(normalization_warning(&pipeline, &weights));
    let shapes = net.shapes().map_err(BuildError::from)?;
    let classes = classes.unwrap_or_else(|| numbers_as_names(shapes[shapes.len() - 1].elems(), &mut notes));
    let head = head(&name, classes, &pipeline, &weights)?;
    let layers = take_layers(&net, &fit, &mut weights)?;
    write(ModelFile { layers, ..head }, &net, &weights, &request.out)?;
    Ok(notes)
}

/// Writes the model. If trireme exported the weights, the model gets the scale of the targets that the export has merged
/// into the last layer.
fn write(mut file: ModelFile, net: &NetSpec, weights: &Weights, out: &Path) -> Result<(), Error> {
    if weights.exported.is_some() {
        let refuse = |why| Error::Usage(format!("{}: {why}", weights.path.display()));
        file.standardize_targets().map_err(refuse)?;
    }
    Ok(file.write_described(out, &keras::describe(net, file.label_kind())?)?)
}

/// Writes a model file with the network and the weights of an ONNX graph.
fn import_graph(
    request: &ImportRequest,
    transforms: Vec<String>,
    names: Option<Vec<String>>,
    weights: &mut Weights,
) -> Result<Vec<String>, Error> {
    let file = &request.file;
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let own = interop::onnx::read(file).and_then(Survey::network).map_err(interop::Error::from)?;
    let (input, count) = (own.net.input, own.classes);
    let pipeline = pipeline(&name, input, transforms, weights)?;
    if shape_of(pipeline.output()) != input {
        return Err(Error::Usage(format!(
            "the transforms make images of {}, but the graph in {} takes {input}; change the sizes in --transform",
            pipeline.output(),
            file.display(),
        )));
    }
    let saved = weights.description();
    let names = names.or(saved.map(|saved| saved.classes.clone()));
    if let Some(names) = names.as_ref().filter(|names| names.len() != count) {
        return Err(other_count(weights, count, names.len()));
    }
    // drops the network's own copy of the weights
    let FileNetwork { net, text, notes, .. } = FileNetwork::from_graph(own, file, &name, input, count)?;
    let fit = match_tensors(&net, weights, &Init::default())?;
    check_complete(&fit, weights)?;
    let mut notes: Vec<String> = notes.into_iter().chain(table::rows(&fit, weights)).collect();
    notes.extend(normalization_warning(&pipeline, weights));
    let classes = names.unwrap_or_else(|| numbers_as_names(count, &mut notes));
    let head = head(&name, classes, &pipeline, weights)?;
    let layers = take_layers(&net, &fit, weights)?;
    let file = ModelFile { layers, definition: text, ..head };
    write(file, &net, weights, &request.out)?;
    Ok(notes)
}

/// Returns the error for class names that do not fit the scores of the file.
fn other_count(weights: &Weights, classes: usize, names: usize) -> Error {
    Error::Usage(format!(
        "{} has scores for {classes} classes, but {names} class names were given; use --classes with a file of {classes} names",
        weights.path.display()
    ))
}

/// Returns a warning if the file was not written by trireme and the transforms do not normalize.
fn normalization_warning(pipeline: &Pipeline, weights: &Weights) -> Option<String> {
    let is_foreign = weights.description().is_none();
    is_foreign.then(|| table::not_normalised(&pipeline.ops(), &Bands::default(), weights)).flatten()
}

/// Uses the class numbers as class names, and adds a note about it.
fn numbers_as_names(classes: usize, notes: &mut Vec<String>) -> Vec<String> {
    notes.push(
        "note: the classes have no names, so their numbers are used as names; to name them, use --classes FILE".into(),
    );
    (0..classes).map(|class| class.to_string()).collect()
}

/// Builds the pipeline from a picture to the network's input. Uses the given transforms or, if there are none, the
/// transforms in the file. The network expects images of shape `expected`. The pictures are like the model's training
/// images, if the file describes them.
fn pipeline(model: &str, expected: Shape, transforms: Vec<String>, weights: &Weights) -> Result<Pipeline, Error> {
    let saved = weights.description().map(|saved| saved.preprocess.clone());
    let ops = if transforms.is_empty() { saved.unwrap_or_default() } else { transforms };
    let (edge, size) = (expected.h * 8 / 7, expected.h);
    let example = format!(
        "--transform 'resize({edge})' --transform 'center_crop({size})' --transform '{}' for torchvision's weights",
        table::TORCHVISION
    );
    if ops.is_empty() {
        return Err(Error::Usage(format!(
            "the transforms from a picture to the input of {model} are not known. Add options such as {example}, or add --recipe"
        )));
    }
    if table::takes_the_data_sets(&ops) {
        return Err(Error::Usage(format!(
            "\"normalize\" uses the mean and standard deviation of a data set, but an import has no data set. Give the numbers that the \
             weights of {} were trained with, such as {example}",
            weights.path.display()
        )));
    }
    let (accepted, manifest) = match weights.description() {
        Some(saved) => (images(saved.image), manifest(saved)),
        None => {
            let image = ImageSpec::new(expected.h as u32, expected.w as u32, expected.c as u32);
            (Images::Fixed(image), Manifest::default())
        }
    };
    Pipeline::new(&ops, accepted, &manifest, 0).map_err(|error| match error.is_usage() {
        true => Error::Usage(error.to_string()),
        false => error.into(),
    })
}

fn unknown(model: &str) -> Error {
    if model.ends_with(".onnx") || model.ends_with(".toml") {
        return Error::Usage(format!(
            "{model} is a network in a file, but import supports only the networks of `trireme models`. To use these weights with a \
             network in a file, start a training with init.from"
        ));
    }
    Error::Usage(models::unknown(model))
}

/// Builds the network and matches the weights to it. The number of classes is `names` if given, otherwise it is taken
/// from the weights.
fn build_and_match(
    model: &str,
    image: ImageSpec,
    names: Option<usize>,
    weights: &Weights,
    init: &Init,
) -> Result<(NetSpec, TensorMatches), Error> {
    let build = |classes: usize| {
        let net = network(model, image, classes)?;
        let fit = match_tensors(&net, weights, init)?;
        Ok::<_, Error>((net, fit))
    };
    let (net, fit) = build(names.or(models::classes(model)).ok_or_else(|| unknown(model))?)?;
    let there =
        fit.with(MatchResult::Replaced).find_map(|row| count(row.shape.as_ref()?, &weights.tensors[row.found?].1));
    match (names, there) {
        (None, Some(classes)) => build(classes),
        (Some(names), Some(classes)) => Err(other_count(weights, classes, names)),
        (_, None) => Ok((net, fit)),
    }
}

/// Returns an error unless the file has exactly the tensors of the network.
fn check_complete(fit: &TensorMatches, weights: &Weights) -> Result<(), Error> {
    let left_out = fit.with(MatchResult::Excluded).find(|row| row.shape.is_some());
    if let Some(row) = left_out {
        return Err(Error::Usage(format!(
            "--exclude matches {} of the network, which would then have no values. Only tensors that the network does not have may be \
             left out. To start a run without this tensor, use [init] in its recipe",
            printable(&row.name)
        )));
    }
    table::check(fit, weights, true, table::IMPORT_CURE)?;
    fit.check_values(weights)
}

/// Reads class names, one per line, in the order of the labels.
pub fn read(path: &Path) -> Result<Vec<String>, Error> {
    let refuse = Error::file("read", path);
    let text = String::from_utf8(loaders::regular::read(path).map_err(refuse)?);
    let text = text.map_err(|_| Error::Failed(format!("{}: expected names in UTF-8, one per line", path.display())))?;
    // skip a byte order mark
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let classes: Vec<String> = text.lines().map(|line| line.trim().to_string()).collect();
    match classes.iter().position(String::is_empty) {
        Some(line) => Err(Error::Failed(format!("{}: line {} is empty, expected a name", path.display(), line + 1))),
        None if classes.is_empty() => {
            Err(Error::Failed(format!("{}: the file contains no class names", path.display())))
        }
        None => Ok(classes),
    }
}

/// Returns the model file for an import, still without weights and scores. If a trireme model has the weights, the
/// import keeps its kind of labels and its pixel values.
pub fn head(model: &str, classes: Vec<String>, pipeline: &Pipeline, weights: &Weights) -> Result<ModelFile, Error> {
    let (input, ops) = (pipeline.output(), pipeline.ops());
    let saved = weights.description();
    let (mean, std) = match saved {
        Some(saved) => (saved.mean.clone(), saved.std.clone()),
        None => mean_and_std(&ops, input.channels as usize),
    };
    let saved = saved.cloned().unwrap_or_default();
    let text = |value: &str| toml::Value::String(value.into());
    let eval = toml::Table::from_iter([("eval".to_string(), ops.iter().map(|op| text(op)).collect::<Vec<_>>().into())]);
    let mut recipe = toml::Table::from_iter([("model".to_string(), text(model)), ("augment".to_string(), eval.into())]);
    // the loss says how to score numbers
    if let Some(loss) = saved.recipe.parse::<toml::Table>().ok().and_then(|mut recipe| recipe.remove("loss")) {
        recipe.insert("loss".into(), loss);
    }
    // The file has other scores than its metadata says, for example because another program has changed it.
    if !saved.targets.is_empty() && saved.targets.len() != classes.len() {
        return Err(other_count(weights, saved.targets.len(), classes.len()));
    }
    let renamed = saved.targets.into_iter().zip(&classes).map(|(target, name)| Target { name: name.clone(), ..target });
    let targets: Vec<Target> = renamed.collect();
    Target::check(&targets).map_err(|why| Error::Usage(format!("--classes: {why}")))?;
    Ok(ModelFile {
        network: model.into(),
        input: sizes_of(Images::Fixed(input)),
        image: sizes_of(pipeline.input()),
        classes,
        targets,
        multi_label: saved.multi_label,
        preprocess: ops,
        bands: saved.bands,
        mean,
        std,
        recipe: recipe.to_string(),
        ..ModelFile::default()
    })
}

/// Returns mean and standard deviation per channel of the last `normalize(...)` with numbers, or 0 and 1 if there is
/// none.
fn mean_and_std(ops: &[String], channels: usize) -> (Vec<f64>, Vec<f64>) {
    let numbers = ops.iter().rev().find_map(|op| op.strip_prefix("normalize(")?.strip_suffix(')'));
    let numbers: Vec<f64> =
        numbers.into_iter().flat_map(|text| text.split(',')).flat_map(|n| n.trim().parse()).collect();
    let (mean, std) = numbers.split_at(numbers.len() / 2);
    let of = |half: &[f64], other: f64| match half {
        [] => vec![other; channels],
        [one] => vec![*one; channels],
        all => all.to_vec(),
    };
    (of(mean, 0.0), of(std, 1.0))
}

/// Returns the network's layers with the values from the file. Takes the values out of `weights`, so that they are in
/// memory only once.
fn take_layers(net: &NetSpec, fit: &TensorMatches, weights: &mut Weights) -> Result<Vec<LayerWeights>, Error> {
    let taken: BTreeMap<&str, &TensorMatch> =
        fit.with(MatchResult::Taken).map(|row| (row.name.as_str(), row)).collect();
    let shapes = net.shapes().map_err(BuildError::from)?;
    let layer = |(node, kind): (&Node, Option<LayerKind>)| {
        let kind = kind?;
        let specs = node.op.params(shapes[node.inputs[0].0]);
        let mut tensor = |field: &str| {
            let row = taken.get(format!("{}.{field}", node.name).as_str())?;
            let (shape, mut values) = (row.shape.clone()?, std::mem::take(&mut weights.tensors[row.found?].2));
            let zeros = specs.iter().find(|spec| spec.field == field).map_or(0..0, |spec| spec.zeros.clone());
            values[zeros].fill(0.0);
            Some((field.to_string(), shape, values))
        };
        let tensors = kind.stored.tensors.iter().filter_map(|stored| tensor(stored.torch)).collect();
        Some(LayerWeights { name: node.name.clone(), kind, tensors })
    };
    Ok(net.nodes.iter().zip(model::layer_kinds(net, &shapes)).filter_map(layer).collect())
}

/// The request, completed with the values of the recipe.
pub struct ImportSettings {
    pub network: Option<String>,
    /// Transforms from a picture to the input. Empty if not given.
    pub transforms: Vec<String>,
    /// Rules and patterns for tensor names.
    pub init: Init,
}

impl ImportSettings {
    /// Takes each option that is not given from the recipe, if there is one.
    pub fn from_request(request: &ImportRequest) -> Result<Self, Error> {
        let recipe = request.recipe.as_ref().map(|path| Recipe::load(path, &Changes::default())).transpose()?;
        let recipe = recipe.map(|loaded| loaded.recipe);
        let init = recipe.as_ref().map(|recipe| recipe.init.clone()).unwrap_or_default();
        let given = |list: &[String], of: Option<Vec<String>>| if list.is_empty() { of } else { Some(list.to_vec()) };
        let eval = recipe.as_ref().map(|recipe| match &recipe.augment {
            augment if augment.eval.is_empty() => Vec::new(),
            augment => augment.eval_list(),
        });
        Ok(Self {
            transforms: given(&request.transforms, eval).unwrap_or_default(),
            network: request.model.clone().or(recipe.map(|recipe| recipe.model)),
            init: Init {
                from: None,
                key: request.key.clone().or(init.key),
                sha256: None,
                exclude: given(&request.exclude, init.exclude),
                strict: None,
                r#match: if request.rules.is_empty() { init.r#match } else { Some(request.rules.clone()) },
                stem: None,
                whiten: None,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use formats::interop::ExportedModel;
    use loaders::LabelKind;

    use super::*;

    #[test]
    fn names_that_do_not_fit_the_targets_are_refused() {
        let target = |name: &str| Target { name: name.into(), mean: 10.0, std: 4.0 };
        let targets = vec![target("height"), target("age"), target("weight")];
        let path = PathBuf::from("net.safetensors");
        let model = Ok(ModelFile { targets, ..ModelFile::default() });
        let exported = ExportedModel { labels: LabelKind::Numbers, model };
        let weights = Weights { path, exported: Some(exported), ..Weights::default() };
        let ops = ["normalize(0.5, 0.25)".to_string()];
        let pipeline = Pipeline::new(&ops, ImageSpec::new(8, 8, 3), &Manifest::default(), 0).unwrap();
        let made = |names: &[&str]| {
            let names = names.iter().map(|name| name.to_string()).collect();
            head("lenet", names, &pipeline, &weights)
        };
        let renamed = made(&["a", "b", "c"]).unwrap().targets;
        assert_eq!(renamed.iter().map(|target| target.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
        for names in [&["a", "b"][..], &["a", "b", "c", "d", "e"]] {
            let error = made(names).unwrap_err().to_string();
            assert!(error.contains("net.safetensors") && error.contains("for 3 classes"), "{error}");
        }
    }
}
