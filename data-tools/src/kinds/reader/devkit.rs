//! Reads the metadata of ImageNet: the development kit of ILSVRC2012 with its MATLAB table, and boxes of objects in
//! Pascal VOC's XML format.
//!
//! The development kit contains the classes and the ground truth of the validation images. Its class numbers
//! (ILSVRC2012_ID, 1 to 1000) have their own order. Labels are positions in the sorted list of WordNet ids instead.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flate2::read::ZlibDecoder;
use loaders::Limits;
use loaders::example::BoundingBox;

use super::arrays::all;
use super::input::{Budget, read_bounded};
use super::{archive, input};
use crate::error::Error;
use crate::text::without_mark;

const META: &str = "meta.mat";
const TRUTH: &str = "ILSVRC2012_validation_ground_truth.txt";
const HINT: &str = "expected ILSVRC2012_devkit_t12.tar.gz or its unpacked folder";

/// Memory per line of the ground truth in bytes.
const LINE: u64 = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Synset {
    /// WordNet id, such as `n01440764`.
    pub wnid: String,
    /// Description, such as `tench, Tinca tinca`.
    pub words: String,
}

#[derive(Debug, Default)]
pub(crate) struct Devkit {
    /// The classes, sorted by WordNet id.
    pub synsets: Vec<Synset>,
    /// WordNet id of each validation image, in order of the image numbers.
    pub truth: Vec<String>,
    /// Path of the ground truth, for messages.
    pub truth_path: PathBuf,
}

impl Devkit {
    /// Returns the WordNet id of a validation image, using the number in its name, as in
    /// `ILSVRC2012_val_00000001.JPEG`.
    pub(crate) fn truth_of(&self, name: &str) -> Option<&String> {
        let (stem, _) = name.split_once('.')?;
        let number: usize = stem.strip_prefix("ILSVRC2012_val_")?.parse().ok()?;
        self.truth.get(number.checked_sub(1)?)
    }
}

/// Returns the path of the development kit in `src`, if it exists.
pub(crate) fn find(src: &Path) -> Option<PathBuf> {
    let names = ["ILSVRC2012_devkit_t12.tar.gz", "ILSVRC2012_devkit_t12.tar", "ILSVRC2012_devkit_t12"];
    let unpacked = src.join("data").join(META).is_file().then(|| src.to_path_buf());
    names.iter().map(|name| src.join(name)).find(|path| path.exists()).or(unpacked)
}

/// Reads the development kit from an archive or a folder.
pub(crate) fn read_devkit(path: &Path, limits: &Limits) -> Result<Devkit, Error> {
    let mut budget = Budget::new(*limits);
    let wanted = archive::WantedFiles { folder: "data", names: &[META, TRUTH], other: "", hint: HINT };
    let mut members = wanted.read(path, &mut budget)?.into_iter();
    let mut next = |name: &str| -> Result<(PathBuf, Vec<u8>), Error> {
        let missing = || Error::missing(path.join("data").join(name), HINT);
        let member: archive::Member = members.next().flatten().ok_or_else(missing)?;
        Ok((member.path.clone(), member.whole()?))
    };
    let ((meta_path, meta), (truth_path, truth)) = (next(META)?, next(TRUTH)?);
    let records = read_structs(&meta, "synsets", budget.left()).map_err(|problem| match problem {
        Problem::Memory => budget.exceeded(&meta_path),
        Problem::Format(what) => Error::input(&meta_path, what),
    })?;
    let by_id = leaf_synsets(&meta_path, records)?;
    // Reserve memory for one WordNet id per line.
    budget.take(&truth_path, LINE * truth.iter().filter(|&&byte| byte == b'\n').count() as u64)?;
    let wnids = wnids(&truth_path, &truth, &by_id)?;
    let mut synsets: Vec<Synset> = by_id.into_values().collect();
    synsets.sort_by(|a, b| a.wnid.cmp(&b.wnid));
    Ok(Devkit { synsets, truth: wnids, truth_path })
}

/// Returns the WordNet id for each line of the ground truth.
fn wnids(path: &Path, truth: &[u8], by_id: &BTreeMap<u64, Synset>) -> Result<Vec<String>, Error> {
    let text = String::from_utf8_lossy(truth);
    let lines = without_mark(&text).lines().map(str::trim).filter(|line| !line.is_empty());
    let wnid = |(i, line): (usize, &str)| {
        let id = line.parse().ok().and_then(|id: u64| by_id.get(&id));
        id.map(|s| s.wnid.clone()).ok_or_else(|| {
            let what = format!(
                "line {}: `{line}` is not one of the {} class numbers in {META}; both files must belong to the same development kit: \
                 fetch it again",
                i + 1,
                by_id.len()
            );
            Error::input(path, what)
        })
    };
    lines.enumerate().map(wnid).collect()
}

fn describe(value: Option<&Value>) -> String {
    match value {
        Some(Value::Numbers(numbers)) if numbers.len() == 1 => numbers[0].to_string(),
        Some(Value::Numbers(numbers)) => format!("an array of {} numbers", numbers.len()),
        Some(Value::Text(text)) => format!("\"{}\"", text.escape_debug()),
        Some(Value::Other) => "a value of another type".into(),
        None => "missing".into(),
    }
}

/// Returns the classes by number. Classes are the synsets without children.
fn leaf_synsets(path: &Path, records: Vec<Record>) -> Result<BTreeMap<u64, Synset>, Error> {
    let mut found = BTreeMap::new();
    for (at, record) in records.iter().enumerate() {
        let field = |name: &str| record.iter().find(|(field, _)| **field == *name).map(|(_, value)| value);
        let wrong = |name: &str, wanted: &str| {
            let found = describe(field(name));
            Error::input(path, format!("synset {at}: `{name}` is {found}, expected {wanted}"))
        };
        let number = |name: &str| match field(name) {
            Some(Value::Numbers(n)) if n.len() == 1 && n[0] >= 0.0 => Ok(n[0] as u64),
            _ => Err(wrong(name, "a number")),
        };
        let text = |name: &str| match field(name) {
            Some(Value::Text(text)) => Ok(text.clone()),
            _ => Err(wrong(name, "a string")),
        };
        if number("num_children")? > 0 {
            continue;
        }
        let synset = Synset { wnid: text("WNID")?, words: text("words")? };
        if found.insert(number("ILSVRC2012_ID")?, synset).is_some() {
            return Err(Error::input(path, format!("synset {at}: another synset has the same ILSVRC2012_ID")));
        }
    }
    match found.len() {
        0 => Err(Error::input(path, "there are no synsets without children, so there are no classes")),
        _ => Ok(found),
    }
}

// Parses MATLAB 5 files as far as necessary for a table: a struct array with fields of numbers and texts. Elements may
// be compressed. (MathWorks, "MAT-File Format", chapter 1.)

const HEADER: usize = 128;

/// Data types of elements, as numbered by the format.
const MATRIX: u32 = 14;
const COMPRESSED: u32 = 15;
/// Classes of arrays, as numbered by the format.
const STRUCT: u8 = 2;
const CHAR: u8 = 4;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// Values from a numeric array with any shape.
    Numbers(Vec<f64>),
    Text(String),
    Other,
}

/// A record: pairs of field name and value, in file order.
pub(crate) type Record = Vec<(Rc<str>, Value)>;

/// The reason why a table cannot be read.
#[derive(Debug, PartialEq)]
pub(crate) enum Problem {
    /// The memory limit is exceeded.
    Memory,
    /// The file violates the format.
    Format(String),
}

impl From<&str> for Problem {
    fn from(what: &str) -> Self {
        Self::Format(what.into())
    }
}

/// Returns the records of the struct array `name` in the file `bytes`. Decompressed elements and records may use up to
/// `memory` bytes.
pub(crate) fn read_structs(bytes: &[u8], name: &str, memory: u64) -> Result<Vec<Record>, Problem> {
    let body = match bytes.get(HEADER - 4..HEADER) {
        Some([_, _, b'I', b'M']) => &bytes[HEADER..],
        Some([_, _, b'M', b'I']) => {
            return Err("big-endian MATLAB files are not supported; save it on a little-endian machine".into());
        }
        _ => return Err("not a MATLAB 5 file".into()),
    };
    let mut left = MemoryLeft(memory);
    let mut rest = Bytes(body);
    while !rest.0.is_empty() {
        let (kind, data) = rest.element(false)?;
        let unpacked;
        let data = match kind {
            COMPRESSED => {
                unpacked = unpack(data, &left)?;
                left.take(unpacked.len())?;
                Bytes(&unpacked).element(true)?.1
            }
            _ => data,
        };
        let matrix = Matrix::read(data)?;
        if matrix.name == name.as_bytes() && matrix.class == STRUCT {
            return matrix.records(&mut left);
        }
        // This array is not needed, so its memory is free again.
        left = MemoryLeft(memory);
    }
    Err(Problem::Format(format!("there is no struct array `{name}`")))
}

struct MemoryLeft(u64);

impl MemoryLeft {
    fn take(&mut self, bytes: usize) -> Result<(), Problem> {
        self.0 = self.0.checked_sub(bytes as u64).ok_or(Problem::Memory)?;
        Ok(())
    }
}

fn unpack(data: &[u8], left: &MemoryLeft) -> Result<Vec<u8>, Problem> {
    let unpacked = read_bounded(&mut ZlibDecoder::new(data), left.0);
    unpacked.map_err(|e| Problem::Format(format!("compressed data: {e}")))?.ok_or(Problem::Memory)
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Problem> {
        let (head, rest) = self.0.split_at_checked(count).ok_or("cut short")?;
        self.0 = rest;
        Ok(head)
    }

    fn word(&mut self) -> Result<u32, Problem> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Returns type and data of the next element. `padded` means that compressed elements are padded to a multiple of 8
    /// bytes too.
    fn element(&mut self, padded: bool) -> Result<(u32, &'a [u8]), Problem> {
        let word = self.word()?;
        if word >> 16 != 0 {
            // Small format: one word with size and type, followed by up to four bytes of data.
            let data = self.take(4)?;
            let data = data.get(..(word >> 16) as usize).ok_or("a small element of more than 4 bytes")?;
            return Ok((word & 0xffff, data));
        }
        let size = self.word()? as usize;
        let data = self.take(size)?;
        if (padded || word != COMPRESSED) && !size.is_multiple_of(8) {
            self.0 = self.0.get(8 - size % 8..).unwrap_or(&[]);
        }
        Ok((word, data))
    }
}

/// An array: its parsed header and the remaining bytes.
struct Matrix<'a> {
    class: u8,
    count: usize,
    name: &'a [u8],
    rest: Bytes<'a>,
}

impl<'a> Matrix<'a> {
    fn read(data: &'a [u8]) -> Result<Self, Problem> {
        let mut rest = Bytes(data);
        let class = *rest.element(true)?.1.first().ok_or("an array without flags")?;
        let axes = rest.element(true)?.1;
        let sizes = axes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize);
        let count = sizes.fold(1usize, usize::saturating_mul);
        let name = rest.element(true)?.1;
        Ok(Matrix { class, count, name, rest })
    }

    fn records(mut self, left: &mut MemoryLeft) -> Result<Vec<Record>, Problem> {
        let width = self.rest.element(true)?.1;
        let width = width.first_chunk().map_or(0, |w| u32::from_le_bytes(*w)) as usize;
        let names = self.rest.element(true)?.1;
        if width == 0 || names.is_empty() || !names.len().is_multiple_of(width) {
            return Err("a struct array whose fields have no names or empty names".into());
        }
        left.take(names.len() / width * FIELD + names.len())?;
        let text = |name: &[u8]| String::from_utf8_lossy(name.split(|&b| b == 0).next().unwrap_or(&[])).into();
        let names: Vec<Rc<str>> = names.chunks(width).map(text).collect();
        let mut records = Vec::new();
        // A count that is too large ends with an error at the end of the data, because each field has at least a few
        // bytes.
        for _ in 0..self.count {
            left.take(2 * size_of::<Record>() + names.len() * FIELD)?;
            let mut record = Vec::with_capacity(names.len());
            for name in &names {
                record.push((name.clone(), value(self.rest.element(true)?, left)?));
            }
            records.push(record);
        }
        Ok(records)
    }
}

/// Memory for a field of a record.
const FIELD: usize = size_of::<(Rc<str>, Value)>();

fn value((kind, data): (u32, &[u8]), left: &mut MemoryLeft) -> Result<Value, Problem> {
    if kind != MATRIX || data.is_empty() {
        return Ok(Value::Other);
    }
    // Each byte of the data may become a number of eight bytes.
    left.take(8 * data.len())?;
    let mut matrix = Matrix::read(data)?;
    match matrix.class {
        CHAR => {
            let (kind, data) = if matrix.count == 0 { (1, &[][..]) } else { matrix.rest.element(true)? };
            let codes: Vec<u16> = match kind {
                4 | 17 => data.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect(),
                16 => return Ok(Value::Text(String::from_utf8_lossy(data).into_owned())),
                _ => data.iter().map(|&b| u16::from(b)).collect(),
            };
            Ok(Value::Text(String::from_utf16_lossy(&codes)))
        }
        6..=15 if matrix.count == 0 => Ok(Value::Numbers(Vec::new())),
        6..=15 => numbers(matrix.rest.element(true)?).map(Value::Numbers),
        _ => Ok(Value::Other),
    }
}

/// Converts numbers to f64. MATLAB stores them in the smallest type that holds them, independent of the array's class.
fn numbers((kind, data): (u32, &[u8])) -> Result<Vec<f64>, Problem> {
    Ok(match kind {
        1 => all(data, |b| f64::from(i8::from_le_bytes(b))),
        2 => all(data, |b| f64::from(u8::from_le_bytes(b))),
        3 => all(data, |b| f64::from(i16::from_le_bytes(b))),
        4 => all(data, |b| f64::from(u16::from_le_bytes(b))),
        5 => all(data, |b| f64::from(i32::from_le_bytes(b))),
        6 => all(data, |b| f64::from(u32::from_le_bytes(b))),
        7 => all(data, |b| f64::from(f32::from_le_bytes(b))),
        9 => all(data, f64::from_le_bytes),
        12 => all(data, |b| i64::from_le_bytes(b) as f64),
        13 => all(data, |b| u64::from_le_bytes(b) as f64),
        other => return Err(Problem::Format(format!("numbers of the unknown type {other}"))),
    })
}

/// The limit for the size of an XML file.
const MAX_XML_BYTES: u64 = 1 << 20;

/// Boxes by image name without extension.
pub(crate) type Annotations = HashMap<String, Vec<BoundingBox>>;

/// Adds the boxes in the archive at `path`, `.tar` or `.tar.gz`, to `found`. Returns an error if the file is not such
/// an archive or is truncated, or if an XML file has no image size or invalid edges.
pub(crate) fn read_annotations(path: &Path, budget: &mut Budget, found: &mut Annotations) -> Result<(), Error> {
    let stream = input::open(path, budget)?;
    let mut archive = tar::Archive::new(stream);
    let failed = |e: io::Error, budget: &Budget| input::read_error(path, budget, e);
    for entry in archive.entries().map_err(|e| failed(e, budget))? {
        let mut entry = entry.map_err(|e| failed(e, budget))?;
        let name = entry.path().map_err(|e| failed(e, budget))?.into_owned();
        if name.extension().is_none_or(|ending| ending != "xml") {
            continue;
        }
        let bytes = read_bounded(&mut entry, MAX_XML_BYTES).map_err(|e| failed(e, budget))?;
        let wrong = |what: &str| Error::input(&path.join(&name), format!("{what}; fetch it again"));
        let bytes = bytes.ok_or_else(|| wrong("the file is too large for the boxes of an image"))?;
        let boxes = parse(&String::from_utf8_lossy(&bytes)).map_err(wrong)?;
        let stem = name.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        budget.take(path, (stem.len() + boxes.len() * size_of::<BoundingBox>() + 64) as u64)?;
        found.insert(stem, boxes);
    }
    // Read to the end of the stream: gzip only checks there whether its content was complete.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map(drop).map_err(|e| failed(e, budget))
}

/// Returns the text of the first element `name` in `xml`, and the text after it.
fn element<'a>(xml: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>"))
}

/// Parses the boxes in an XML file. Coordinates are fractions of the image size. Boxes without width or height are left
/// out.
fn parse(xml: &str) -> Result<Vec<BoundingBox>, &'static str> {
    let number = |xml: &str, name: &str| -> Result<f32, &'static str> {
        let text = element(xml, name).ok_or("an edge or size is missing")?.0;
        text.trim().parse().map_err(|_| "an edge or size is not a number")
    };
    let (size, mut rest) = element(xml, "size").ok_or("the image size is missing")?;
    let (width, height) = (number(size, "width")?, number(size, "height")?);
    if !(width > 0.0 && height > 0.0) {
        return Err("the image size is not above 0");
    }
    let mut boxes = Vec::new();
    while let Some((object, following)) = element(rest, "object") {
        rest = following;
        let edges = element(object, "bndbox").ok_or("an object has no bndbox")?.0;
        let edge = |name: &str, length: f32| number(edges, name).map(|edge| (edge / length).clamp(0.0, 1.0));
        let found = BoundingBox {
            ymin: edge("ymin", height)?,
            xmin: edge("xmin", width)?,
            ymax: edge("ymax", height)?,
            xmax: edge("xmax", width)?,
        };
        if found.ymax > found.ymin && found.xmax > found.xmin {
            boxes.push(found);
        }
    }
    Ok(boxes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLENTY: u64 = 1 << 20;
    /// Written with SciPy, see `tests/data/meta.py`.
    const FILE: &[u8] = include_bytes!("../../../tests/data/meta.mat");

    #[test]
    fn a_file_of_another_program() {
        let records = read_structs(FILE, "synsets", PLENTY).unwrap();
        let get = |i: usize, name: &str| records[i].iter().find(|(field, _)| **field == *name).unwrap().1.clone();
        let text = |text: &str| Value::Text(text.to_string());
        assert_eq!(records.len(), 3);
        assert_eq!((get(0, "WNID"), get(1, "words")), (text("n02119789"), text("tench, Tinca tinca")));
        assert_eq!(
            (get(2, "ILSVRC2012_ID"), get(1, "num_children")),
            (Value::Numbers(vec![1234.0]), Value::Numbers(vec![0.0]))
        );
        assert_eq!((get(0, "gloss"), get(2, "children")), (text("glöss"), Value::Numbers(vec![0.0; 3])));
        let missing = read_structs(FILE, "synset", PLENTY).unwrap_err();
        assert!(matches!(&missing, Problem::Format(what) if what.contains("`synset`")), "{missing:?}");
        for cut in 0..FILE.len() {
            assert!(read_structs(&FILE[..cut], "synsets", PLENTY).is_err(), "cut at {cut}");
        }
        // The same table with a memory limit that is too low.
        assert_eq!(read_structs(FILE, "synsets", 3000), Err(Problem::Memory));
    }

    #[test]
    fn boxes_are_parts_of_the_image() {
        let object = |edges: [f32; 4]| {
            let [a, b, c, d] = edges;
            format!(
                "<object><name>n0</name><bndbox>\n<xmin>{a}</xmin><ymin>{b}</ymin><xmax>{c}</xmax><ymax>{d}</ymax></bndbox></object>"
            )
        };
        let size = "<annotation><size>\n<width>200</width><height>100</height><depth>3</depth></size>";
        let xml = format!(
            "{size}{}{}{}",
            object([20.0, 25.0, 100.0, 75.0]),
            object([5.0, 5.0, 5.0, 9.0]),
            object([0.0, 0.0, 300.0, 100.0])
        );
        let found = parse(&xml).unwrap();
        assert_eq!(found[0], BoundingBox { ymin: 0.25, xmin: 0.1, ymax: 0.75, xmax: 0.5 });
        assert_eq!(found[1..], [BoundingBox { ymin: 0.0, xmin: 0.0, ymax: 1.0, xmax: 1.0 }]);
        assert!(parse("<annotation></annotation>").is_err());
        assert!(parse(&xml.replace("<xmin>20</xmin>", "<xmin>x</xmin>")).is_err());
    }
}
