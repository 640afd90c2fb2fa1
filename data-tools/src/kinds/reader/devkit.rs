//! The development kit of ILSVRC2012: the meaning of its class numbers, and the ground truth of the validation images.
//!
//! Its numbers (ILSVRC2012_ID, 1 to 1000) have an order of their own; labels are positions in the sorted WordNet ids.

use super::archive;
use super::budget::Budget;
use super::matlab::{self, Value};
use crate::error::Error;
use crate::text::without_mark;
use loaders::Limits;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const META: &str = "meta.mat";
const TRUTH: &str = "ILSVRC2012_validation_ground_truth.txt";
const HINT: &str = "expected ILSVRC2012_devkit_t12.tar.gz, or the folder that it unpacks to";

/// Bytes of memory for a line of the ground truth.
const LINE: u64 = 64;

/// A class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Synset {
    /// WordNet id, such as `n01440764`.
    pub wnid: String,
    /// Its words, such as `tench, Tinca tinca`.
    pub words: String,
}

/// The content of the kit.
#[derive(Debug, Default)]
pub(crate) struct Devkit {
    /// The classes, sorted by WordNet id.
    pub synsets: Vec<Synset>,
    /// WordNet id of each validation image, from the first on.
    pub truth: Vec<String>,
    /// Path of the ground truth, for messages.
    pub truth_path: PathBuf,
}

impl Devkit {
    /// The WordNet id of a validation image, by the number in `ILSVRC2012_val_00000001.JPEG`.
    pub(crate) fn truth_of(&self, name: &str) -> Option<&String> {
        let (stem, _) = name.split_once('.')?;
        let number: usize = stem.strip_prefix("ILSVRC2012_val_")?.parse().ok()?;
        self.truth.get(number.checked_sub(1)?)
    }
}

/// The kit in `src`, if there is one.
pub(crate) fn find(src: &Path) -> Option<PathBuf> {
    let names = ["ILSVRC2012_devkit_t12.tar.gz", "ILSVRC2012_devkit_t12.tar", "ILSVRC2012_devkit_t12"];
    let unpacked = src.join("data").join(META).is_file().then(|| src.to_path_buf());
    names.iter().map(|name| src.join(name)).find(|path| path.exists()).or(unpacked)
}

/// Reads the kit: an archive or a folder.
pub(crate) fn read(path: &Path, limits: &Limits) -> Result<Devkit, Error> {
    let mut budget = Budget::new(*limits);
    let wanted = archive::Wanted { folder: "data", names: &[META, TRUTH], other: "", hint: HINT };
    let mut members = wanted.read(path, &mut budget)?.into_iter();
    let mut next = |name: &str| -> Result<Whole, Error> {
        let missing = || Error::Missing { path: path.join("data").join(name), hint: HINT.to_string() };
        let member: archive::Member = members.next().flatten().ok_or_else(missing)?;
        Ok(Whole { path: member.path.clone(), data: member.whole()? })
    };
    let (meta, truth) = (next(META)?, next(TRUTH)?);
    let records = matlab::read_structs(&meta.data, "synsets", budget.left()).map_err(|problem| match problem {
        matlab::Problem::Memory => budget.exceeded(&meta.path),
        matlab::Problem::Format(what) => Error::input(&meta.path, what),
    })?;
    let by_id = leaves(&meta.path, records)?;
    // a WordNet id for each line
    budget.take(&truth.path, LINE * truth.data.iter().filter(|&&byte| byte == b'\n').count() as u64)?;
    let wnids = wnids(&truth, &by_id)?;
    let mut synsets: Vec<Synset> = by_id.into_values().collect();
    synsets.sort_by(|a, b| a.wnid.cmp(&b.wnid));
    Ok(Devkit { synsets, truth: wnids, truth_path: truth.path })
}

/// A file of the kit.
struct Whole {
    path: PathBuf,
    data: Vec<u8>,
}

/// The WordNet id of each line of the ground truth.
fn wnids(truth: &Whole, by_id: &BTreeMap<u64, Synset>) -> Result<Vec<String>, Error> {
    let text = String::from_utf8_lossy(&truth.data);
    let lines = without_mark(&text).lines().map(str::trim).filter(|line| !line.is_empty());
    let wnid = |(i, line): (usize, &str)| {
        let id = line.parse().ok().and_then(|id: u64| by_id.get(&id));
        id.map(|s| s.wnid.clone()).ok_or_else(|| {
            let what = format!("line {}: `{line}` is none of the {} class numbers of {META}", i + 1, by_id.len());
            Error::input(&truth.path, what)
        })
    };
    lines.enumerate().map(wnid).collect()
}

/// The classes by their numbers: the synsets without children.
fn leaves(path: &Path, records: Vec<matlab::Record>) -> Result<BTreeMap<u64, Synset>, Error> {
    let mut found = BTreeMap::new();
    for (at, record) in records.iter().enumerate() {
        let field = |name: &str| record.iter().find(|(field, _)| **field == *name).map(|(_, value)| value);
        let number = |name: &str| match field(name) {
            Some(Value::Numbers(n)) if n.len() == 1 && n[0] >= 0.0 => Ok(n[0] as u64),
            other => Err(Error::input(path, format!("synset {at}: `{name}` is {other:?}, expected a number"))),
        };
        let text = |name: &str| match field(name) {
            Some(Value::Text(text)) => Ok(text.clone()),
            other => Err(Error::input(path, format!("synset {at}: `{name}` is {other:?}, expected a text"))),
        };
        if number("num_children")? > 0 {
            continue;
        }
        let synset = Synset { wnid: text("WNID")?, words: text("words")? };
        if found.insert(number("ILSVRC2012_ID")?, synset).is_some() {
            return Err(Error::input(path, format!("synset {at}: its ILSVRC2012_ID stands there twice")));
        }
    }
    match found.len() {
        0 => Err(Error::input(path, "holds no synset without children: no class")),
        _ => Ok(found),
    }
}
