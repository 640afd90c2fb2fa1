//! Matches tensors in a file to parameters of the network by name, after the rules in `match`. Then compares their
//! shapes.

use std::collections::BTreeMap;

use base::text::printable;
use engine::graph::BuildError;
use formats::interop::Weights;
use net::NetSpec;
use recipe::{Init, matches};

use crate::error::Error;
use crate::train::plan::network;

/// Suffixes of tensors in files of PyTorch that trireme does not need: batch counters, and constants that attention in
/// windows computes from the size of the windows.
const BUFFERS: [&str; 4] = ["num_batches_tracked", "relative_position_index", "relative_coords_table", "attn_mask"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatchResult {
    /// The network's tensor gets the file's values.
    Taken,
    /// The network's tensor is excluded by `exclude` and starts at random.
    Excluded,
    /// The tensor belongs to a classifier with another number of classes and starts at random.
    Replaced,
    /// The tensor has one shape in the network and another one in the file.
    Shape,
    /// The network's tensor is missing in the file.
    Missing,
    /// The file's tensor is not in the network.
    Left,
}

/// A tensor of the network, or a tensor that only the file has.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorMatch {
    pub result: MatchResult,
    /// Name of the tensor in the network. If only the file has the tensor, its name after the rules of `match`.
    pub name: String,
    /// Shape of the tensor in the network. `None` if only the file has the tensor.
    pub shape: Option<Vec<usize>>,
    /// Index of the tensor in the file. `None` if only the network has the tensor.
    pub found: Option<usize>,
}

/// The results for all tensors: first the network's tensors in the network's order, then the tensors that only the file
/// has.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorMatches {
    pub rows: Vec<TensorMatch>,
    /// Names of the layers that compute scores: the last layer, then auxiliary classifiers.
    pub classifiers: Vec<String>,
}

/// Matches the tensors in a file to the tensors of the network. Returns an error if a rule or pattern matches no name,
/// two tensors get the same name, or no tensor fits.
pub fn match_tensors(net: &NetSpec, weights: &Weights, init: &Init) -> Result<TensorMatches, Error> {
    let mut found = renamed(weights, init)?;
    let spec = net.tensors().map_err(BuildError::from)?;
    let wanted: Vec<(String, Vec<usize>)> = spec.parameters.into_iter().chain(spec.running).collect();
    for (name, _) in wanted.iter().filter(|(name, _)| !weights.tensors.iter().any(|tensor| tensor.0 == *name)) {
        if let Some(index) = net::torch_name(name).and_then(|other| found.remove(&other)) {
            found.insert(name.clone(), index);
        }
    }
    let names: Vec<&str> = wanted.iter().map(|(name, _)| name.as_str()).collect();
    let exclude = init.exclude.as_deref().unwrap_or_default();
    let all: Vec<&str> = names.iter().copied().chain(found.keys().map(String::as_str)).collect();
    network::check_patterns("init.exclude", exclude, &all, &format!("network {} and the file", net.name))?;
    let classifiers: Vec<String> = net.classifiers().into_iter().map(String::from).collect();
    let excluded = |name: &str| exclude.iter().any(|pattern| matches(pattern, name));
    let replaced: Vec<&String> = classifiers.iter().filter(|layer| replaces(&wanted, &found, weights, layer)).collect();
    let of_replaced = |name: &str| name.rsplit_once('.').is_some_and(|(layer, _)| replaced.iter().any(|r| *r == layer));
    let mut rows = Vec::new();
    for (name, shape) in &wanted {
        let index = found.get(name).copied();
        let result = match index {
            _ if excluded(name) => MatchResult::Excluded,
            Some(_) if of_replaced(name) => MatchResult::Replaced,
            Some(index) if alike(&weights.tensors[index].1, shape) => MatchResult::Taken,
            Some(_) => MatchResult::Shape,
            None => MatchResult::Missing,
        };
        rows.push(TensorMatch { result, name: name.clone(), shape: Some(shape.clone()), found: index });
    }
    let is_buffer = |name: &str| BUFFERS.iter().any(|suffix| name.ends_with(suffix));
    let left = found.iter().filter(|(name, _)| !names.contains(&name.as_str()) && !excluded(name) && !is_buffer(name));
    rows.extend(left.map(|(name, index)| TensorMatch {
        result: MatchResult::Left,
        name: name.clone(),
        shape: None,
        found: Some(*index),
    }));
    if !rows.iter().any(|row| row.result == MatchResult::Taken) {
        let alike = rows.iter().find(|row| row.result == MatchResult::Shape);
        let alike =
            alike.and_then(|row| Some((row.name.as_str(), &weights.tensors[row.found?].1[..], row.shape.as_deref()?)));
        return Err(Error::Usage(nothing_fits(net, weights, &names, found.keys(), alike)));
    }
    Ok(TensorMatches { rows, classifiers })
}

/// Maps the names of the file's tensors, after the rules of `match`, to their indices. Returns an error if a rule
/// matches no name, or two tensors get the same name.
pub fn renamed(weights: &Weights, init: &Init) -> Result<BTreeMap<String, usize>, Error> {
    let rules = init.rules().map_err(|why| Error::Usage(format!("init.match: {why}")))?;
    let (mut found, mut used) = (BTreeMap::new(), vec![false; rules.len()]);
    for (index, (name, ..)) in weights.tensors.iter().enumerate() {
        let mut new = name.clone();
        for (rule, used) in rules.iter().zip(&mut used) {
            if let Some(renamed) = rule.apply(&new) {
                (new, *used) = (renamed, true);
            }
        }
        if let Some(other) = found.insert(new.clone(), index) {
            let other = &weights.tensors[other].0;
            return Err(Error::Usage(format!(
                "{}: {} and {} would both be named {}; change the rules in init.match (trireme import: --match)",
                weights.path.display(),
                printable(other),
                printable(name),
                printable(&new)
            )));
        }
    }
    if let Some(idle) = used.iter().position(|used| !used) {
        let names: Vec<&str> = weights.tensors.iter().map(|tensor| tensor.0.as_str()).collect();
        let (text, near) = (&rules[idle].text, network::nearest_name(&rules[idle].text, &names));
        let path = weights.path.display();
        return Err(Error::Usage(format!(
            "init.match: \"{text}\" matches no name in {path} (after the earlier rules were applied); {}",
            printable(&near)
        )));
    }
    Ok(found)
}

/// Returns true if the classifier `layer` has another number of classes in the file, and no other difference.
fn replaces(wanted: &[(String, Vec<usize>)], found: &BTreeMap<String, usize>, weights: &Weights, layer: &str) -> bool {
    let name = format!("{layer}.weight");
    let own = wanted.iter().find(|(other, _)| *other == name).map(|(_, shape)| shape);
    let other = found.get(&name).map(|index| &weights.tensors[*index].1);
    own.zip(other).is_some_and(|(own, other)| classes(own, other).is_some_and(|classes| own.first() != Some(&classes)))
}

/// A tensor of the file that has a matching tensor in the network.
#[derive(Clone, Copy, Debug)]
pub struct FileTensor<'a> {
    /// The tensor's shape in the network. The shape in the file may differ in dimensions of 1.
    pub shape: &'a [usize],
    /// The file's values in C order.
    pub values: &'a [f32],
}

impl TensorMatches {
    pub fn with(&self, result: MatchResult) -> impl Iterator<Item = &TensorMatch> {
        self.rows.iter().filter(move |row| row.result == result)
    }

    /// Returns the tensors that fit, with their names in the network.
    pub fn matching_tensors<'a>(&'a self, weights: &'a Weights) -> impl Iterator<Item = (&'a str, FileTensor<'a>)> {
        self.with(MatchResult::Taken).filter_map(|row| {
            let taken = FileTensor { shape: row.shape.as_deref()?, values: &weights.tensors[row.found?].2 };
            Some((row.name.as_str(), taken))
        })
    }

    /// Returns an error if a value of a matching tensor is not finite, or if a running variance is negative.
    pub fn check_values(&self, weights: &Weights) -> Result<(), Error> {
        for (name, FileTensor { values, .. }) in self.matching_tensors(weights) {
            let odd = values.iter().find(|v| !v.is_finite() || (name.ends_with(".running_var") && **v < 0.0));
            if let Some(odd) = odd {
                let path = weights.path.display();
                return Err(Error::Failed(format!(
                    "{path}: tensor {name} contains the value {odd}, so no run can start from it; use another file, or leave this tensor \
                     out with init.exclude"
                )));
            }
        }
        Ok(())
    }
}

/// Returns true if two shapes are equal without their dimensions of 1. Some networks have a 1x1 convolution where
/// others have an equivalent linear layer.
pub fn alike(one: &[usize], other: &[usize]) -> bool {
    one.iter().filter(|&&d| d != 1).eq(other.iter().filter(|&&d| d != 1))
}

/// Returns how many classes a classifier's tensor in the file has. `own` is its shape in the network, `other` in the
/// file. Dimensions of 1 do not count. Returns `None` if the shapes differ in more than the number of classes.
pub fn classes(own: &[usize], other: &[usize]) -> Option<usize> {
    let large = |shape: &[usize]| shape.iter().copied().filter(|&d| d != 1).collect::<Vec<usize>>();
    let (one, other) = (large(own.get(1..)?), large(other));
    match &other[..] {
        [classes, each @ ..] if each == one => Some(*classes),
        each if each == one => Some(1),
        _ => None,
    }
}

/// Returns the error message if no tensor fits. It suggests a rule if a name in the file matches without a prefix.
/// `alike` is a tensor name that both file and network have, with the shapes in the file and in the network. If
/// present, the message shows this tensor instead of the first names.
fn nothing_fits<'a>(
    net: &NetSpec,
    weights: &Weights,
    names: &[&str],
    found: impl Iterator<Item = &'a String>,
    alike: Option<(&str, &[usize], &[usize])>,
) -> String {
    let found: Vec<&String> = found.collect();
    // wrappers add a prefix to the names of all tensors, such as `_orig_mod.module.`
    let beginnings = found.iter().flat_map(|name| name.match_indices('.').map(|(at, _)| name.split_at(at + 1)));
    let begin = beginnings.filter(|(_, rest)| names.contains(rest)).map(|(begin, _)| begin).next();
    let cure = match begin {
        Some(begin) => {
            format!("init.match = [[\"{}(.*)\", \"$1\"]] would map the names", printable(&begin.replace('.', "\\\\.")))
        }
        None => {
            "map the names of the file to those of the network with rules in init.match (trireme import: --match), or use another \
             file".into()
        }
    };
    let shown = |name: &str| printable(name).to_string();
    let sides = |shape: &[usize]| shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
    if let Some((name, file, network)) = alike {
        return format!(
            "{}: none of its {} tensors matches network {} in both name and shape: {} is {} in the file, {} in the network; use a file \
             for exactly this network, or change model",
            weights.path.display(),
            weights.tensors.len(),
            net.name,
            shown(name),
            sides(file),
            sides(network),
        );
    }
    format!(
        "{}: none of its {} tensors matches network {} in name and shape (the first name is {} in the file, {} in the network); {cure}",
        weights.path.display(),
        weights.tensors.len(),
        net.name,
        found.first().map_or("none".into(), |name| shown(name)),
        names.first().map_or("none".into(), |name| shown(name)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    use formats::checkpoint::Tensor;
    use net::{Shape, models};
    use support::mentions;

    fn net() -> NetSpec {
        models::build("resnet20", Shape::image(3, 32, 32), 10).unwrap()
    }

    /// Returns a file with all tensors of the network. `change` changes their names and shapes.
    fn weights(change: impl Fn(&str, &mut Vec<usize>) -> Option<String>) -> Weights {
        let spec = net().tensors().unwrap();
        let tensors = spec.parameters.into_iter().chain(spec.running).filter_map(|(name, mut shape)| {
            let name = change(&name, &mut shape)?;
            let values = vec![0.5; shape.iter().product()];
            Some((name, shape, values))
        });
        file(tensors.collect())
    }

    fn file(tensors: Vec<Tensor>) -> Weights {
        Weights { path: "a.pth".into(), format: "torch", tensors, ..Weights::default() }
    }

    fn init(exclude: &[&str], rules: &[[&str; 2]]) -> Init {
        Init {
            from: Some("a.pth".into()),
            exclude: Some(exclude.iter().map(ToString::to_string).collect()),
            r#match: Some(rules.iter().map(|pair| pair.map(str::to_string)).collect()),
            ..Init::default()
        }
    }

    fn count(fit: &TensorMatches, result: MatchResult) -> usize {
        fit.with(result).count()
    }

    #[test]
    fn names_are_matched_and_the_last_layer_is_replaced_where_classes_differ() {
        let file = weights(|name, shape| {
            if name.starts_with("fc.") {
                shape[0] = 100;
            }
            Some(format!("module.{name}"))
        });
        let rule = [[r"module\.(.*)", "$1"]];
        let all = file.tensors.len();
        let fitted = match_tensors(&net(), &file, &init(&[], &rule)).unwrap();
        assert_eq!(fitted.classifiers, ["fc"]);
        assert_eq!((count(&fitted, MatchResult::Taken), count(&fitted, MatchResult::Replaced)), (all - 2, 2));
        let fitted = match_tensors(&net(), &file, &init(&["fc.*", "layer3.*"], &rule)).unwrap();
        assert_eq!((count(&fitted, MatchResult::Replaced), count(&fitted, MatchResult::Shape)), (0, 0));
        assert!(count(&fitted, MatchResult::Excluded) > 20);
        let refused = match_tensors(&net(), &file, &init(&[], &[])).unwrap_err();
        mentions(refused, &["a.pth", "network resnet20", r#"init.match = [["module\\.(.*)", "$1"]]"#]);
    }

    /// The replaced layers include those of auxiliary heads, and convolutions that compute the scores.
    #[test]
    fn every_classifier_with_other_classes_is_replaced() {
        let cases: [(&str, &[&str]); 4] = [
            ("googlenet", &["fc", "aux1.fc2", "aux2.fc2"]),
            ("inception_v3", &["fc", "AuxLogits.fc"]),
            ("squeezenet1_1", &["classifier.1"]),
            ("airbench94", &["head"]),
        ];
        for (name, layers) in cases {
            let input = models::input(name).unwrap();
            let spec = models::build(name, input, 12).unwrap().tensors().unwrap();
            let tensors =
                spec.parameters.into_iter().chain(spec.running).map(|(name, shape)| (name, shape, Vec::new()));
            let file = file(tensors.collect());
            let fitted = match_tensors(&models::build(name, input, 7).unwrap(), &file, &init(&[], &[])).unwrap();
            assert_eq!(fitted.classifiers, layers);
            for row in &fitted.rows {
                let scores = layers
                    .iter()
                    .any(|layer| row.name.strip_suffix(".weight").or(row.name.strip_suffix(".bias")) == Some(layer));
                assert_eq!(
                    row.result,
                    if scores { MatchResult::Replaced } else { MatchResult::Taken },
                    "{name}: {}",
                    row.name
                );
            }
        }
    }

    #[test]
    fn tensors_that_do_not_fit_have_different_results() {
        let mut file = weights(|name, shape| match name {
            "conv1.weight" => None,
            "layer1.0.conv1.weight" => {
                shape[3] = 5;
                Some(name.into())
            }
            _ => Some(name.into()),
        });
        file.tensors.push(("head.weight".into(), vec![1], vec![0.0]));
        file.tensors.push(("bn1.num_batches_tracked".into(), vec![], vec![7.0]));
        let fitted = match_tensors(&net(), &file, &init(&[], &[])).unwrap();
        let names = |result| fitted.with(result).map(|row| row.name.as_str()).collect::<Vec<_>>();
        assert_eq!(names(MatchResult::Missing), ["conv1.weight"]);
        assert_eq!(names(MatchResult::Shape), ["layer1.0.conv1.weight"]);
        assert_eq!(names(MatchResult::Left), ["head.weight"]);
    }

    #[test]
    fn mistakes_in_rules_and_patterns_are_refused() {
        let file = weights(|name, _| Some(name.into()));
        let refused =
            |exclude: &[&str], rules: &[[&str; 2]]| match_tensors(&net(), &file, &init(exclude, rules)).unwrap_err();
        mentions(refused(&["fcc.*"], &[]), &["init.exclude", "\"fcc.*\"", "network resnet20", "\"fc.*\""]);
        mentions(refused(&[], &[["backbone.(.*)", "$1"]]), &["init.match", "\"backbone.(.*)\"", "a.pth"]);
        mentions(refused(&[], &[["layer1.*", "x"]]), &["a.pth: layer1.0.", "both be named x", "init.match"]);
        let other = weights(|name, shape| {
            shape.push(2);
            Some(name.into())
        });
        let error = match_tensors(&net(), &other, &init(&[], &[])).unwrap_err();
        mentions(
            error,
            &["a.pth", "network resnet20", "conv1.weight", "16x3x3x3x2 in the file", "16x3x3x3 in the network"],
        );
    }

    /// torchvision's ConvNeXt has linear layers where trireme's network has 1x1 convolutions.
    #[test]
    fn dimensions_of_one_make_no_difference() {
        let file = weights(|name, shape| {
            match shape.len() {
                2 => shape.extend([1, 1]),
                _ => shape.insert(0, 1),
            }
            Some(name.into())
        });
        let fitted = match_tensors(&net(), &file, &init(&[], &[])).unwrap();
        assert!(fitted.rows.iter().all(|row| row.result == MatchResult::Taken));
        let of = |name: &str| fitted.matching_tensors(&file).find(|(other, _)| *other == name).unwrap().1;
        assert_eq!((of("fc.weight").shape, of("bn1.bias").shape), (&[10, 64][..], &[16][..]));
        assert!(!alike(&[2, 3], &[3, 2]) && !alike(&[6], &[2, 3]) && !alike(&[2, 2], &[2]));
    }

    #[test]
    fn invalid_values_are_named() {
        let mut file = weights(|name, _| Some(name.into()));
        let fitted = match_tensors(&net(), &file, &init(&[], &[])).unwrap();
        assert!(fitted.check_values(&file).is_ok());
        for (name, odd) in [("layer2.0.bn1.weight", f32::NAN), ("fc.bias", f32::INFINITY), ("bn1.running_var", -1.0)] {
            let tensor = file.tensors.iter().position(|tensor| tensor.0 == name).unwrap();
            let old = std::mem::replace(&mut file.tensors[tensor].2[3], odd);
            mentions(fitted.check_values(&file).unwrap_err(), &["a.pth", name, &odd.to_string(), "init.exclude"]);
            file.tensors[tensor].2[3] = old;
        }
    }

    /// All tensors of torchvision's networks have the same names and shapes in trireme.
    #[test]
    fn names_and_shapes_are_torchvisions() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/weights/weights.json");
        let golden: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let networks = golden["torchvision"].as_object().unwrap();
        assert_eq!(networks.len(), 5);
        for (name, tensors) in networks {
            let tensors = tensors.as_object().unwrap().iter().map(|(name, shape)| {
                let shape: Vec<usize> = serde_json::from_value(shape.clone()).unwrap();
                (name.clone(), shape.clone(), Vec::new())
            });
            let file = file(tensors.collect());
            let net = models::build(name, models::input(name).unwrap(), 1000).unwrap();
            let fitted = match_tensors(&net, &file, &init(&[], &[])).unwrap();
            assert!(fitted.rows.len() > 10 && fitted.rows.iter().all(|row| row.result == MatchResult::Taken), "{name}");
        }
    }

    #[test]
    fn dimensions_of_one_do_not_count() {
        assert!(alike(&[10, 64], &[10, 64, 1, 1]) && !alike(&[10, 64], &[64, 10]));
        assert_eq!(classes(&[10, 64], &[5, 64, 1, 1]), Some(5));
        assert_eq!(classes(&[10], &[1, 5]), Some(5));
        assert_eq!(classes(&[10, 64, 1, 1], &[1, 5, 64]), Some(5));
        assert_eq!(classes(&[10, 64], &[1, 64]), Some(1));
        assert_eq!([classes(&[10, 64], &[5, 32]), classes(&[10, 64], &[64, 5])], [None, None]);
    }
}
