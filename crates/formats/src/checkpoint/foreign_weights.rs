//! The weights in a file of Keras, read by libhdf5 and written again as `reader` knows it: for a process of its own, as `foreign`.
//!
//! Two layouts are known. Keras 2's has `layer_names` and `weight_names`, in the file itself (`save_weights("x.h5")`) or in its group
//! `model_weights` (`save("x.h5")`); Keras 3's (`.weights.h5`) has groups `vars` whose arrays have numbers for names.

use std::collections::BTreeSet;
use std::path::Path;

use hdf5::types::{FixedAscii, FixedUnicode, TypeDescriptor, VarLenAscii, VarLenUnicode};
use hdf5::{Attribute, Dataset, Group};
use hdf5_metno as hdf5;

use super::child;
use super::error::Error;
use super::foreign::{Room, descriptor, floats, links};
use super::h5::H5File;
use super::keras_config::facts;
use super::keras_weights::{EPSILONS, GROUP, NAMES, TURNED};

/// Bytes of a name at most.
const LONGEST: usize = 1024;

/// Groups in groups at most.
const DEEPEST: usize = 16;

/// An array with its layer and name, as `conv1/kernel`.
type Found = Vec<(String, Dataset)>;

/// Copies the weights in the file `from` to the file `to`, which is there already and is emptied. Values that are no floats are left out.
///
/// # Errors
/// What HDF5 refuses of either file.
pub fn rewrite_weights(from: &Path, to: &Path) -> Result<(), Error> {
    let refuse = |action: &str, error: hdf5::Error| Error::Hdf5 {
        action: action.into(),
        path: from.to_path_buf(),
        text: error.to_string(),
    };
    let source = hdf5::File::open(from).map_err(|error| refuse("open the file", error))?;
    let root = source.as_group().map_err(|error| refuse("open the file", error))?;
    let found = find(&root).map_err(|error| refuse("look for weights", error))?;
    // a file of weights alone has none
    let config = texts(&root, "model_config").ok().flatten().unwrap_or_default();
    let facts = facts(config.first().map_or("", String::as_str));
    let file = H5File::create(to)?;
    child::drop_name(to);
    let group = file.root()?.create(GROUP)?;
    let mut room = Room::for_file(from);
    let mut names = Vec::new();
    for (name, array) in found {
        let shape = array.shape();
        let values = floats(&array, &mut room).map_err(|error| refuse("read an array", error))?;
        if let Some(values) = values.filter(|values| !values.is_empty() && !shape.is_empty()) {
            group.put_array(&names.len().to_string(), &shape, &values)?;
            names.push(name);
        }
    }
    group.put_texts(NAMES, &names)?;
    group.put_texts(EPSILONS, &facts.epsilons)?;
    group.put_texts(TURNED, &facts.turned)?;
    drop(group);
    file.close()
}

fn find(root: &Group) -> hdf5::Result<Found> {
    let inner = match links(root)?.iter().any(|link| link == "model_weights") {
        true => root.group("model_weights")?,
        false => root.clone(),
    };
    match texts(&inner, "layer_names")? {
        Some(layers) => named(&inner, &layers),
        None => {
            let mut found = Vec::new();
            numbered(root, "", 0, &mut found)?;
            Ok(found)
        }
    }
}

/// Keras 2's layout. Where two arrays of a layer have one name, as in a model in a model, the paths in the file are taken instead.
fn named(group: &Group, layers: &[String]) -> hdf5::Result<Found> {
    let (there, mut found) = (links(group)?, Vec::new());
    for layer in layers.iter().filter(|layer| there.contains(layer)) {
        let inside = group.group(layer)?;
        let weights = texts(&inside, "weight_names")?.unwrap_or_default();
        let tail = |weight: &str| weight.rsplit('/').next().unwrap_or(weight).trim_end_matches(":0").to_string();
        let tails: BTreeSet<String> = weights.iter().map(|weight| tail(weight)).collect();
        for weight in &weights {
            let name = match tails.len() == weights.len() {
                true => format!("{layer}/{}", tail(weight)),
                false => weight.trim_end_matches(":0").to_string(),
            };
            found.extend(array(&inside, weight)?.map(|array| (name, array)));
        }
    }
    Ok(found)
}

/// The array at a path of plain links.
fn array(group: &Group, path: &str) -> hdf5::Result<Option<Dataset>> {
    let (first, rest) = path.split_once('/').map_or((path, None), |(first, rest)| (first, Some(rest)));
    if !links(group)?.iter().any(|link| link == first) {
        return Ok(None);
    }
    match rest {
        Some(rest) => array(&group.group(first)?, rest),
        None => group.dataset(first).map(Some),
    }
}

/// Keras 3's layout: `layers/conv1/vars/0` is called `conv1/0`.
fn numbered(group: &Group, path: &str, depth: usize, found: &mut Found) -> hdf5::Result<()> {
    if depth > DEEPEST {
        return Ok(());
    }
    for name in links(group)? {
        if let Ok(inside) = group.group(&name) {
            let deeper = match name.as_str() {
                "vars" => path.to_string(),
                "layers" | "_layer_checkpoint_dependencies" if path.is_empty() => String::new(),
                name if path.is_empty() => name.to_string(),
                name => format!("{path}.{name}"),
            };
            numbered(&inside, &deeper, depth + 1, found)?;
        } else if !path.is_empty() {
            found.push((format!("{path}/{name}"), group.dataset(&name)?));
        }
    }
    Ok(())
}

/// A list of texts, which stands in several attributes where it is long.
fn texts(group: &Group, name: &str) -> hdf5::Result<Option<Vec<String>>> {
    let there = group.attr_names()?;
    if there.iter().any(|other| other == name) {
        return read_texts(&group.attr(name)?).map(Some);
    }
    let mut pieces = (0..).map(|piece| format!("{name}{piece}")).take_while(|piece| there.contains(piece));
    let Some(first) = pieces.next() else { return Ok(None) };
    let mut all = read_texts(&group.attr(&first)?)?;
    for piece in pieces {
        all.extend(read_texts(&group.attr(&piece)?)?);
    }
    Ok(Some(all))
}

fn read_texts(attribute: &Attribute) -> hdf5::Result<Vec<String>> {
    fn strings<T: ToString>(texts: Vec<T>) -> Vec<String> {
        texts.iter().map(ToString::to_string).collect()
    }
    // an empty list has whatever type numpy gives it
    if attribute.size() == 0 {
        return Ok(Vec::new());
    }
    match descriptor(attribute) {
        Some(TypeDescriptor::VarLenUnicode) => attribute.read_raw::<VarLenUnicode>().map(strings),
        Some(TypeDescriptor::VarLenAscii) => attribute.read_raw::<VarLenAscii>().map(strings),
        Some(TypeDescriptor::FixedAscii(1..=LONGEST)) => attribute.read_raw::<FixedAscii<LONGEST>>().map(strings),
        Some(TypeDescriptor::FixedUnicode(1..=LONGEST)) => attribute.read_raw::<FixedUnicode<LONGEST>>().map(strings),
        other => Err(format!("a list of names of type {other:?}").into()),
    }
}
