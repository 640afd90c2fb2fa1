//! Reads HDF5 files that other programs wrote, and rewrites them in the layout that `reader` supports.
//!
//! libhdf5 crashes on malicious files, so this code runs in a separate process, `trireme rewrite-model`. It skips soft
//! and external links, values stored in other files, and unsupported types. The code that reads the result then reports
//! what is missing.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{fs, io};

use base::environment;
use base::text::printable;
use hdf5::plist::dataset_create::Layout;
use hdf5::types::{FixedAscii, FixedUnicode, FloatSize, IntSize, TypeDescriptor, VarLenAscii, VarLenUnicode};
use hdf5::{Attribute, Container, Dataset, Group, LinkType};
use hdf5_metno as hdf5;
use loaders::regular;
use loaders::safe_create::NewFile;
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};

use super::error::Error;
use super::h5::{Group as NewGroup, H5File};
use super::keras::field_name;
use super::keras_weights::{ABOUT, EPSILONS, GROUP, NAMES, TURNED, model_facts};
use super::model::ModelFile;

/// The groups of a model file that are copied.
const GROUPS: [&str; 2] = ["model_weights", "trireme"];

/// The groups that only checkpoints have. A rewritten checkpoint has lost its checksum, so it cannot be used. The copy
/// has these groups without content, so that its reader can say this.
const CHECKPOINT_GROUPS: [&str; 2] = ["params", "progress"];

/// Maximum nesting of groups. The deepest group in a model file is `trireme/ema/L/L`, where L is a layer.
const MAX_DEPTH: usize = 5;

/// Copies the model in the file `from` to the file `to`, which must exist and is overwritten. The copy is empty if the
/// file is not a model of trireme, because its weights, which may be large, are then not needed.
///
/// # Errors
///
/// Returns the error of HDF5 for either file.
pub fn rewrite(from: &Path, to: &Path) -> Result<(), Error> {
    let refuse = refusal(from);
    let source = hdf5::File::open(from).map_err(|error| refuse("open the HDF5 data", error))?;
    let file = H5File::create(to)?;
    drop_name(to);
    let root = file.root()?;
    let mut budget = ValueBudget::for_file(from);
    let there = links(&source).map_err(|error| refuse("list the groups", error))?;
    let has = |name: &str| there.iter().any(|link| link == name);
    if has("trireme") {
        for name in GROUPS.into_iter().filter(|name| has(name)) {
            let group = source.group(name).map_err(|error| refuse("open the group", error))?;
            copy(&group, &root.create(name)?, 0, &mut budget, &refuse)?;
        }
        CHECKPOINT_GROUPS.into_iter().filter(|name| has(name)).try_for_each(|name| root.create(name).map(drop))?;
    }
    drop(root);
    file.close()
}

/// Returns the sorted names of the hard links in a group. Soft and external links are left out.
pub(crate) fn links(group: &Group) -> hdf5::Result<Vec<String>> {
    let mut names = Vec::new();
    group.iter_visit_default(|name, info| {
        if info.link_type == LinkType::Hard {
            names.push(name.to_string());
        }
        Ok(())
    })?;
    names.sort();
    Ok(names)
}

type Refuse<'a> = dyn Fn(&str, hdf5::Error) -> Error + 'a;

/// Returns a function that converts an error of HDF5 about the file `path`. Its first argument is the attempted action.
fn refusal(path: &Path) -> impl Fn(&str, hdf5::Error) -> Error {
    |action, error| Error::Hdf5 { action: action.into(), path: path.to_path_buf(), text: error.to_string() }
}

fn copy(from: &Group, to: &NewGroup, depth: usize, budget: &mut ValueBudget, refuse: &Refuse<'_>) -> Result<(), Error> {
    for name in from.attr_names().map_err(|error| refuse("list the attributes", error))? {
        let attribute =
            from.attr(&name).map_err(|error| refuse(&format!("open the attribute {}", printable(&name)), error))?;
        copy_attribute(&attribute, &name, to, refuse)?;
    }
    for name in
        links(from).map_err(|error| refuse(&format!("list the members of {}", printable(&from.name())), error))?
    {
        if let Ok(array) = from.dataset(&name) {
            if let Some(values) = floats(&array, budget, refuse)? {
                to.put_array(&name, &array.shape(), &values)?;
            }
        } else if depth < MAX_DEPTH {
            let group =
                from.group(&name).map_err(|error| refuse(&format!("open the group {}", printable(&name)), error))?;
            copy(&group, &to.create(&name)?, depth + 1, budget, refuse)?;
        }
    }
    Ok(())
}

/// Limit for the number of values in all arrays of a file. A small file can describe a huge compressed or unwritten array.
struct ValueBudget {
    /// Number of values that may still be read.
    left: u64,
    /// Number of values that the file may have in total.
    total: u64,
}

/// The limit is `BUDGET_BYTES` bytes plus `BUDGET_PER_FILE_BYTE` bytes for each byte of the file.
const BUDGET_BYTES: u64 = 256 << 20;
const BUDGET_PER_FILE_BYTE: u64 = 4;

impl ValueBudget {
    /// Computes the limit from the size of the file.
    fn for_file(path: &Path) -> Self {
        let bytes = fs::metadata(path).map_or(0, |file| file.len());
        let total = (bytes.saturating_mul(BUDGET_PER_FILE_BYTE).saturating_add(BUDGET_BYTES)) / size_of::<f32>() as u64;
        Self { left: total, total }
    }

    /// Subtracts a number of values from the limit. Returns false and subtracts nothing if there are too many.
    fn take(&mut self, values: u64) -> bool {
        let left = self.left.checked_sub(values);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// Subtracts the array's values from the limit.
    fn subtract(&mut self, array: &Dataset) -> hdf5::Result<()> {
        let values = array.shape().iter().try_fold(1u64, |product, n| product.checked_mul(*n as u64));
        match values.is_some_and(|values| self.take(values)) {
            true => Ok(()),
            false => Err(format!(
                "{} has the shape {:?}, so the arrays have more than {} values, the limit for a file of this size",
                array.name(),
                array.shape(),
                self.total
            )
            .into()),
        }
    }
}

/// Reads an array of floats. Returns `None` for other types and for arrays stored in another file.
fn floats(array: &Dataset, budget: &mut ValueBudget, refuse: &Refuse<'_>) -> Result<Option<Vec<f32>>, Error> {
    let mut read = || {
        if !is_inside(array)? || !matches!(descriptor(array), Some(TypeDescriptor::Float(_))) {
            return Ok(None);
        }
        budget.subtract(array)?;
        array.read_raw().map(Some)
    };
    read().map_err(|error| refuse(&format!("read the array {}", printable(&array.name())), error))
}

/// Returns true if the values are in the file itself. The shape of a virtual data set must not be queried before this
/// check, because libhdf5 opens other files for it.
pub(crate) fn is_inside(array: &Dataset) -> hdf5::Result<bool> {
    let plist = array.dcpl()?;
    let here = matches!(plist.layout(), Layout::Compact | Layout::Contiguous | Layout::Chunked);
    Ok(here && plist.get_external().is_ok_and(|files| files.is_empty()))
}

fn descriptor(container: &Container) -> Option<TypeDescriptor> {
    container.dtype().and_then(|kind| kind.to_descriptor()).ok()
}

fn copy_attribute(attribute: &Attribute, name: &str, to: &NewGroup, refuse: &Refuse<'_>) -> Result<(), Error> {
    let refuse = |error| refuse(&format!("read the attribute {}", printable(name)), error);
    match descriptor(attribute) {
        Some(TypeDescriptor::VarLenUnicode | TypeDescriptor::VarLenAscii) => {
            match &read_texts(attribute).map_err(refuse)?[..] {
                [text] if attribute.is_scalar() => to.put_text(name, text),
                texts => to.put_texts(name, texts),
            }
        }
        Some(TypeDescriptor::Unsigned(IntSize::U8)) => copy_numbers::<u64>(attribute, name, to, refuse),
        Some(TypeDescriptor::Unsigned(IntSize::U4)) => copy_numbers::<u32>(attribute, name, to, refuse),
        Some(TypeDescriptor::Float(FloatSize::U8)) => copy_numbers::<f64>(attribute, name, to, refuse),
        Some(TypeDescriptor::Float(FloatSize::U4)) => copy_numbers::<f32>(attribute, name, to, refuse),
        _ => Ok(()),
    }
}

fn copy_numbers<T: hdf5::H5Type + Copy>(
    attribute: &Attribute,
    name: &str,
    to: &NewGroup,
    refuse: impl Fn(hdf5::Error) -> Error,
) -> Result<(), Error> {
    let numbers = attribute.read_raw::<T>().map_err(refuse)?;
    match numbers[..] {
        [number] if attribute.is_scalar() => to.put_number(name, number),
        _ => to.put_numbers(name, &numbers),
    }
}

// Reads the weights in Keras files. There are two layouts. Keras 2 has `layer_names` and `weight_names`, either in the
// root (`save_weights("x.h5")`) or in the group `model_weights` (`save("x.h5")`). Keras 3 (`.weights.h5`) has groups
// `vars` with numbered arrays.

const MAX_NAME_BYTES: usize = 1024;

/// Maximum nesting of groups in a Keras 3 file.
const MAX_KERAS_DEPTH: usize = 16;

/// Arrays with their names in the form `layer/weight`, such as `conv1/kernel`.
type NamedArrays = Vec<(String, Dataset)>;

/// Copies the weights in the file `from`, the facts in its model config, and trireme's attributes to the file `to`, which must
/// exist and is overwritten. Arrays that are empty, have no dimensions or do not contain floats are skipped.
///
/// # Errors
///
/// Returns the error of HDF5 for either file.
pub fn rewrite_weights(from: &Path, to: &Path) -> Result<(), Error> {
    let refuse = refusal(from);
    let source = hdf5::File::open(from).map_err(|error| refuse("open the HDF5 data", error))?;
    let root = source.as_group().map_err(|error| refuse("open the HDF5 data", error))?;
    let found = find_arrays(&root).map_err(|error| refuse("look for weights", error))?;
    // A file that has only weights has no model config.
    let config = texts(&root, "model_config").ok().flatten().unwrap_or_default();
    let facts = model_facts(config.first().map_or("", String::as_str));
    let mut budget = ValueBudget::for_file(from);
    let about = metadata(&root, &mut budget);
    let file = H5File::create(to)?;
    drop_name(to);
    let group = file.root()?.create(GROUP)?;
    let mut names = Vec::new();
    for (name, array) in found {
        let Some(values) = floats(&array, &mut budget, &refuse)? else { continue };
        let shape = array.shape();
        if !values.is_empty() && !shape.is_empty() {
            group.put_array(&names.len().to_string(), &shape, &values)?;
            names.push(name);
        }
    }
    group.put_texts(NAMES, &names)?;
    group.put_texts(EPSILONS, &facts.epsilons)?;
    group.put_texts(TURNED, &facts.turned)?;
    group.put_texts(ABOUT, &about)?;
    drop(group);
    file.close()
}

/// Reads the texts that describe a model which trireme exported. Each name is followed by its text. Attributes of other
/// types are left out, because another program may use the same names for something else. So are lists, whose texts may
/// all be the same bytes of a small file.
fn metadata(root: &Group, budget: &mut ValueBudget) -> Vec<String> {
    let mut about = Vec::new();
    for name in ModelFile::METADATA_READ.map(|name| format!("{}{name}", ModelFile::METADATA_PREFIX)) {
        let attribute = root.attr(&name).ok().filter(|attribute| attribute.is_scalar());
        let text = attribute.and_then(|attribute| read_texts(&attribute).ok()?.pop());
        if let Some(text) = text.filter(|text| budget.take(text.len().div_ceil(size_of::<f32>()) as u64)) {
            about.extend([name, text]);
        }
    }
    about
}

fn find_arrays(root: &Group) -> hdf5::Result<NamedArrays> {
    let inner = match links(root)?.iter().any(|link| link == "model_weights") {
        true => root.group("model_weights")?,
        false => root.clone(),
    };
    match texts(&inner, "layer_names")? {
        Some(layers) => keras2_arrays(&inner, &layers),
        None => {
            let mut found = Vec::new();
            keras3_arrays(root, "", 0, &mut found)?;
            Ok(found)
        }
    }
}

/// Finds the arrays in Keras 2's layout. If two arrays of a layer have the same name, as in nested models, their paths
/// in the file are used instead. The name of a layer may be a path, such as `conv1/conv`.
fn keras2_arrays(group: &Group, layers: &[String]) -> hdf5::Result<NamedArrays> {
    let mut found = Vec::new();
    for layer in layers {
        let Some((holder, last)) = containing(group, layer)? else {
            return Err(format!("layer_names has {}, but no group has this name", printable(layer)).into());
        };
        let inside = holder.group(last)?;
        let weights = texts(&inside, "weight_names")?.unwrap_or_default();
        let fields: BTreeSet<&str> = weights.iter().map(|weight| field_name(weight)).collect();
        for weight in &weights {
            let name = match fields.len() == weights.len() {
                true => format!("{layer}/{}", field_name(weight)),
                false => weight.trim_end_matches(":0").to_string(),
            };
            if let Some((holder, last)) = containing(&inside, weight)? {
                found.push((name, holder.dataset(last)?));
            }
        }
    }
    Ok(found)
}

/// Follows `path` from `group` through hard links. Returns the group that contains the last link, and this link's name.
/// Returns `None` if a link is missing or is not a hard link.
fn containing<'a>(group: &Group, path: &'a str) -> hdf5::Result<Option<(Group, &'a str)>> {
    let (first, rest) = path.split_once('/').map_or((path, None), |(first, rest)| (first, Some(rest)));
    if !links(group)?.iter().any(|link| link == first) {
        return Ok(None);
    }
    match rest {
        Some(rest) => containing(&group.group(first)?, rest),
        None => Ok(Some((group.clone(), first))),
    }
}

/// Finds the arrays in Keras 3's layout. The array `layers/conv1/vars/0` gets the name `conv1/0`.
fn keras3_arrays(group: &Group, path: &str, depth: usize, found: &mut NamedArrays) -> hdf5::Result<()> {
    if depth > MAX_KERAS_DEPTH {
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
            keras3_arrays(&inside, &deeper, depth + 1, found)?;
        } else if !path.is_empty() {
            found.push((format!("{path}/{name}"), group.dataset(&name)?));
        }
    }
    Ok(())
}

/// Reads an attribute with a list of strings, or returns `None` if the group does not have it. Keras splits a long list into numbered
/// attributes.
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
    // numpy may write an empty list with any type, so the type is not checked.
    if attribute.size() == 0 {
        return Ok(Vec::new());
    }
    match descriptor(attribute) {
        Some(TypeDescriptor::VarLenUnicode) => attribute.read_raw::<VarLenUnicode>().map(strings),
        Some(TypeDescriptor::VarLenAscii) => attribute.read_raw::<VarLenAscii>().map(strings),
        Some(TypeDescriptor::FixedAscii(1..=MAX_NAME_BYTES)) => {
            attribute.read_raw::<FixedAscii<MAX_NAME_BYTES>>().map(strings)
        }
        Some(TypeDescriptor::FixedUnicode(1..=MAX_NAME_BYTES)) => {
            attribute.read_raw::<FixedUnicode<MAX_NAME_BYTES>>().map(strings)
        }
        other => {
            let kind = other.map_or_else(|| "unknown".into(), |other| other.to_string());
            Err(format!("a list of names has the type {kind}, expected strings of at most {MAX_NAME_BYTES} bytes")
                .into())
        }
    }
}

// The child process that runs the functions above: `trireme rewrite-model`. Its memory and time are limited. It writes
// the layout that `reader` supports.

/// Memory limit of the child in bytes, in addition to six times the size of the file.
const MEMORY_BYTES: u64 = 2 << 30;

/// CPU time limit of the child in seconds.
const CPU_SECONDS: u64 = 300;

/// The output file of the child: its standard output, which the parent redirects to a file.
pub const OUTPUT: &str = "/proc/self/fd/1";

/// The reason why the child produced no file.
#[derive(Debug)]
pub enum Failed {
    /// The reason why the copy cannot be made on this machine, whatever the file contains.
    Copy(String),
    /// The error message of the child about the file, or the way it was ended.
    Said(String),
}

/// Runs `trireme rewrite-model` with these options on a file and returns the new file. Only this user may read it, because the original may
/// be private. The child removes the file's name as soon as it has opened it ([`drop_name`]). So no file is left if this process dies.
///
/// # Errors
/// Fails with the child's message, or with the way it was ended. Also fails if the folder for temporary files, TMPDIR, does not exist or is
/// full.
pub fn rewritten(path: &Path, options: &[&str]) -> Result<NewFile, Failed> {
    let folder = environment::variable("TMPDIR").filter(|folder| !folder.is_empty()).unwrap_or("/tmp".into());
    let temporary = format!("a temporary file in {folder}");
    let not_written =
        |error: io::Error| Failed::Copy(format!("cannot write {temporary}: {error}. Set TMPDIR to another folder"));
    let not_started = |error: io::Error| Failed::Copy(format!("cannot start `trireme rewrite-model`: {error}"));
    let mut copy = NewFile::private(&Path::new(&folder).join("trireme-model.h5")).map_err(not_written)?;
    let output = copy.file().and_then(|file| file.try_clone()).map_err(not_written)?;
    let this = std::env::current_exe().map_err(not_started)?;
    let mut command = Command::new(this);
    // Passes the remembered copy of the environment to the child, because MPI may change the original at any time.
    command.env_clear().envs(environment::remember());
    // the name of the file may begin with a dash
    command.arg("rewrite-model").args(options).arg("--").arg(path);
    command.stdin(Stdio::null()).stdout(output).stderr(Stdio::piped());
    let ended = command.output().map_err(not_started)?;
    if ended.status.success() {
        return Ok(copy);
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let said = said.trim();
    if said.contains(OUTPUT) {
        return Err(Failed::Copy(format!("{}. Set TMPDIR to another folder", said.replace(OUTPUT, &temporary))));
    }
    Err(Failed::Said(if said.is_empty() { ended.status.to_string() } else { said.to_string() }))
}

/// Limits memory and time of this child process, depending on the size of the file.
///
/// # Errors
///
/// Returns an error of the operating system.
pub fn limit(path: &Path) -> io::Result<()> {
    limit_memory(path)?;
    Ok(setrlimit(Resource::Cpu, both(CPU_SECONDS))?)
}

/// Limits this child process's memory, depending on the file size, and forbids core dumps.
///
/// # Errors
///
/// Returns an error of the operating system.
pub fn limit_memory(path: &Path) -> io::Result<()> {
    let bytes = regular::open(path)?.metadata()?.len();
    setrlimit(Resource::As, both(bytes.saturating_mul(6).saturating_add(MEMORY_BYTES)))?;
    Ok(setrlimit(Resource::Core, both(0))?)
}

fn both(most: u64) -> Rlimit {
    Rlimit { current: Some(most), maximum: Some(most) }
}

/// Removes the name of the file `to` if it is the child's output. libhdf5 has opened the file by now and no longer needs the name. From
/// then on, the child is killed if its parent dies.
pub fn drop_name(to: &Path) {
    if to == Path::new(OUTPUT) {
        // If this fails, the parent removes the file, which only this user may read.
        let _ = fs::read_link(to).and_then(fs::remove_file);
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::read_weights;
    use super::*;
    use crate::temporary::Temporary;

    /// Returns two temporary paths, for a test's original file and its copy.
    fn paths() -> [Temporary; 2] {
        ["from.h5", "to.h5"].map(Temporary::new)
    }

    /// Writes an HDF5 file.
    fn write(path: &Path, fill: impl FnOnce(&NewGroup) -> Result<(), Error>) {
        let file = H5File::create(path).unwrap();
        fill(&file.root().unwrap()).unwrap();
        file.close().unwrap();
    }

    #[test]
    fn names_of_keras_layers_may_contain_slashes() {
        let [Temporary(from), Temporary(to)] = &paths();
        let fill = |root: &NewGroup, layers: &[&str]| {
            root.put_texts("layer_names", &layers.iter().map(ToString::to_string).collect::<Vec<_>>())?;
            let layer = root.create("conv1")?.create("conv")?;
            layer.put_texts("weight_names", &["conv1/conv/kernel:0".into()])?;
            layer.create("conv1")?.create("conv")?.put_array("kernel:0", &[2], &[1f32, 2.0])
        };
        write(from, |root| fill(root, &["conv1/conv"]));
        rewrite_weights(from, to).unwrap();
        let read = read_weights(to, from).unwrap().tensors;
        assert_eq!(read, [("conv1/conv/kernel".to_string(), vec![2], vec![1.0, 2.0])]);
        write(from, |root| fill(root, &["conv1/conv", "conv1/bn"]));
        let error = rewrite_weights(from, to).unwrap_err().to_string();
        assert!(error.contains("layer_names has conv1/bn"), "{error}");
    }

    #[test]
    fn errors_about_a_copy_name_the_original() {
        let [Temporary(from), Temporary(to)] = &paths();
        let groups = |root: &NewGroup, names: &[&str]| names.iter().try_for_each(|name| root.create(name).map(drop));
        // large weights without the group `trireme` are not copied
        write(from, |root| root.create("model_weights")?.put_array("kernel:0", &[1 << 16], &[0f32; 1 << 16]));
        rewrite(from, to).unwrap();
        assert!(fs::metadata(to).unwrap().len() < 4096);
        let error = ModelFile::open_copy(to, from).unwrap_err();
        assert!(matches!(&error, Error::Foreign { path, .. } if path == from), "{error}");
        write(from, |root| groups(root, &["trireme", "params", "progress"]));
        rewrite(from, to).unwrap();
        let error = ModelFile::open_copy(to, from).unwrap_err();
        assert!(matches!(&error, Error::Unsealed { path, .. } if path == from), "{error}");
    }

    #[test]
    fn attributes_of_other_types_with_names_of_trireme_are_left_out() {
        let [Temporary(from), Temporary(to)] = &paths();
        write(from, |root| {
            root.create("conv1")?.create("vars")?.put_array("0", &[2], &[1f32, 2.0])?;
            root.put_number("trireme.network", 1u32)?;
            root.put_texts("trireme.classes", &["cat".into(), "dog".into()])?;
            root.put_text("trireme.other", "unknown")?;
            root.put_text("trireme.recipe", "epochs = 1")
        });
        rewrite_weights(from, to).unwrap();
        let read = read_weights(to, from).unwrap();
        assert_eq!(read.tensors, [("conv1/0".to_string(), vec![2], vec![1.0, 2.0])]);
        assert_eq!(read.about, BTreeMap::from([("trireme.recipe".to_string(), "epochs = 1".to_string())]));
    }

    #[test]
    fn texts_count_against_the_limit_for_values() {
        let mut budget = ValueBudget { left: 5, total: 5 };
        assert!(budget.take(3) && !budget.take(3) && budget.take(2) && !budget.take(1));
    }

    #[test]
    fn weights_in_virtual_datasets_are_left_out() {
        let [Temporary(from), Temporary(to)] = &paths();
        {
            let file = hdf5::File::create(from).unwrap();
            let group = file.create_group("conv1").unwrap().create_group("vars").unwrap();
            group.new_dataset::<f32>().shape(2).create("0").unwrap().write_raw(&[1f32, 2.0]).unwrap();
            let other = group.new_dataset::<f32>().virtual_map("other.h5", "x", (1, 2, 3), .., (1, 2, 3), ..);
            other.shape((1, 2, 3)).create("1").unwrap();
        }
        rewrite_weights(from, to).unwrap();
        assert_eq!(read_weights(to, from).unwrap().tensors, [("conv1/0".to_string(), vec![2], vec![1.0, 2.0])]);
    }
}
