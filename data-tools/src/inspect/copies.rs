//! Finds near copies across splits: images of a later split that also occur in an earlier one, perhaps at a different
//! size, quality or brightness. A model can score well on such images by memorising them.
//!
//! Each image is kept as 16 x 16 grey values (about 280 bytes). For each image only the nearest original in each
//! earlier split is reported, so the report does not grow with the number of copies of one original.

use std::collections::{BTreeMap, HashSet};
use std::f32::consts::PI;
use std::fmt::{self, Write};
use std::path::Path;
use std::sync::LazyLock;

use base::text::printable;
use loaders::overwrite::Content;
use loaders::{Dataset, Example, Split, replace};
use serde_json::json;

use crate::error::Error;
use crate::{pool, text};

use crate::image::pixels::Reduced;
use loaders::crc32c::crc32c;

/// Number of images that one task compares.
const TASK: usize = 4096;

/// The data kept for comparing an image.
#[derive(Debug, Clone)]
pub(super) struct Picture {
    /// Index of the image in its shard, or in its split if the picture is in a [`Gallery`].
    number: u64,
    thumbnail: GreyThumbnail,
    /// Checksum and length of the record's image data.
    bytes: (u32, u64),
}

impl Picture {
    pub(super) fn new(number: u64, example: &Example<'_>, pixels: &Reduced<'_>) -> Self {
        let bytes = (crc32c(example.encoded), example.encoded.len() as u64);
        Picture { number, thumbnail: GreyThumbnail::from_pixels(pixels), bytes }
    }
}

/// The images of all splits, by split name.
#[derive(Debug, Default)]
pub(super) struct Gallery(BTreeMap<String, Vec<Picture>>);

impl Gallery {
    /// Adds the images of a shard. `first` is the index that the shard's first record has in the split.
    pub(super) fn add(&mut self, split: &str, first: u64, pictures: Vec<Picture>) {
        let all = self.0.entry(split.to_string()).or_default();
        all.extend(pictures.into_iter().map(|picture| Picture { number: first + picture.number, ..picture }));
    }

    /// Finds the images of each split that an earlier split also has: images of `validation` in `train`, and images of
    /// `test` in either.
    pub(super) fn near_copies(&self, jobs: usize) -> Result<Vec<NearCopy>, Error> {
        let mut splits: Vec<(&String, &Vec<Picture>)> = self.0.iter().collect();
        splits.sort_by_key(|(name, _)| rank(name));
        let mut found = Vec::new();
        for (at, (of, originals)) in splits.iter().enumerate() {
            let originals = distinct(originals);
            let lookup = HashIndex::new(originals.iter().map(|picture| picture.thumbnail.hash()));
            for (split, pictures) in &splits[at + 1..] {
                let tasks: Vec<&[Picture]> = pictures.chunks(TASK).collect();
                let parts = pool::run(tasks.len(), jobs, |i| Ok(search(tasks[i], &originals, &lookup)))?;
                found.extend(parts.into_iter().flatten().map(|pair| pair.named(split, of)));
            }
        }
        found.sort_by(|a, b| (rank(&a.split), &a.split, a.number).cmp(&(rank(&b.split), &b.split, b.number)));
        Ok(found)
    }
}

/// Returns the pictures in order and leaves out each picture with the same bytes as an earlier picture. Such a picture
/// could only be found at the same distance. A large number of equal pictures, such as blank images, would make the
/// search slow.
fn distinct(pictures: &[Picture]) -> Vec<&Picture> {
    let (mut seen, mut all) = (HashSet::new(), pictures.iter().collect::<Vec<_>>());
    all.sort_by_key(|picture| picture.number);
    all.retain(|picture| seen.insert((picture.bytes, &picture.thumbnail)));
    all
}

/// Returns the position of a split in the order training, model selection, final scoring.
fn rank(split: &str) -> u8 {
    match split {
        "train" => 0,
        "validation" => 1,
        "test" => 3,
        _ => 2,
    }
}

/// A copy, its nearest original, and how much they differ.
struct CopyPair<'a> {
    copy: &'a Picture,
    original: &'a Picture,
    difference: f64,
}

impl CopyPair<'_> {
    fn named(&self, split: &str, of: &str) -> NearCopy {
        NearCopy {
            split: split.to_string(),
            number: self.copy.number,
            of: of.to_string(),
            original: self.original.number,
            same_bytes: same_bytes(self.copy, self.original),
            difference: self.difference,
        }
    }
}

/// Returns the nearest original of each image that has one.
fn search<'a>(pictures: &'a [Picture], originals: &[&'a Picture], lookup: &HashIndex) -> Vec<CopyPair<'a>> {
    let nearest = |copy: &'a Picture| {
        let mut best: Option<CopyPair<'a>> = None;
        lookup.near(copy.thumbnail.hash(), |at| {
            let original = originals[at];
            let found =
                if same_bytes(copy, original) { Some(0.0) } else { copy.thumbnail.difference(&original.thumbnail) };
            if let Some(difference) = found
                && best.as_ref().is_none_or(|b| (difference, original.number) < (b.difference, b.original.number))
            {
                best = Some(CopyPair { copy, original, difference });
            }
        });
        best
    };
    pictures.iter().filter_map(nearest).collect()
}

/// Returns true if both records contain the same image data: equal length and checksum. The thumbnails are compared
/// too, because checksums can be equal by chance.
fn same_bytes(a: &Picture, b: &Picture) -> bool {
    a.bytes == b.bytes && a.thumbnail == b.thumbnail
}

/// An image that occurs in two splits.
#[derive(Debug, Clone, PartialEq)]
pub struct NearCopy {
    /// The later split, such as `test`.
    pub split: String,
    /// Index of the image in the later split.
    pub number: u64,
    /// The earlier split, such as `train`.
    pub of: String,
    /// Index of the original in the earlier split.
    pub original: u64,
    /// True if both records contain the same bytes.
    pub same_bytes: bool,
    /// 1 - correlation of the 16 x 16 grey values of the two images.
    pub difference: f64,
}

/// How many near copies are listed by name for each pair of splits.
const EXAMPLES: usize = 3;

/// Number of near copies that a pair of splits shares.
#[derive(Debug, PartialEq)]
struct Count<'a> {
    split: &'a str,
    of: &'a str,
    images: u64,
    same_bytes: u64,
}

fn counts(copies: &[NearCopy]) -> Vec<Count<'_>> {
    let mut counts: Vec<Count<'_>> = Vec::new();
    for copy in copies {
        let at = counts.iter().position(|c| c.split == copy.split && c.of == copy.of).unwrap_or_else(|| {
            counts.push(Count { split: &copy.split, of: &copy.of, images: 0, same_bytes: 0 });
            counts.len() - 1
        });
        counts[at].images += 1;
        counts[at].same_bytes += u64::from(copy.same_bytes);
    }
    counts
}

/// The names of a near copy and its original.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyNames {
    pub split: String,
    /// Name of the image in the later split.
    pub name: String,
    /// The earlier split, such as `train`.
    pub of: String,
    /// Name of the original image in the earlier split.
    pub original: String,
}

/// Returns the names of the first near copies of each pair of splits. Returns no names if the data set cannot be
/// opened, because `verify` reports that separately.
pub(super) fn examples(dir: &Path, copies: &[NearCopy]) -> Vec<CopyNames> {
    let mut shown: Vec<CopyNames> = Vec::new();
    let Some(splits) = copies.first().and_then(|_| open_splits(dir).ok()) else { return shown };
    for NearCopy { split, number, of, original, .. } in copies {
        if shown.iter().filter(|shown| shown.split == *split && shown.of == *of).count() < EXAMPLES {
            let name = |split: &str, number| match record_info(&splits, split, number).name {
                name if name.is_empty() => format!("image {number}"),
                name => name,
            };
            let (name, original) = (name(split, *number), name(of, *original));
            shown.push(CopyNames { split: split.clone(), name, of: of.clone(), original });
        }
    }
    shown
}

/// Writes a line for each pair of splits that share images, followed by the names of some of these images.
pub(super) fn write_counts(copies: &[NearCopy], examples: &[CopyNames], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for Count { split, of, images, same_bytes } in counts(copies) {
        let (has, images) = (if images == 1 { "has" } else { "have" }, text::plural(images, "image"));
        let same = text::count(same_bytes);
        write!(f, "\n  {images} of {split} {has} a near copy in {of}, {same} of them with the same bytes: ")?;
        write!(f, "scores on {split} may be too high; list the copies with --duplicates FILE")?;
        for CopyNames { name, original, .. } in examples.iter().filter(|names| names.split == split && names.of == of) {
            write!(f, "\n    {} in {split} is a copy of {} in {of}", printable(name), printable(original))?;
        }
    }
    Ok(())
}

pub(super) fn counts_json(copies: &[NearCopy], examples: &[CopyNames]) -> Vec<serde_json::Value> {
    let count = |c: Count<'_>| {
        let names = examples.iter().filter(|names| names.split == c.split && names.of == c.of);
        let names: Vec<[&str; 2]> = names.map(|names| [names.name.as_str(), names.original.as_str()]).collect();
        json!({"split": c.split, "of": c.of, "images": c.images, "same_bytes": c.same_bytes, "examples": names})
    };
    counts(copies).into_iter().map(count).collect()
}

/// Header line of the file that lists near copies.
const COLUMNS: &str = "split\timage\tclass\tname\tof_split\tof_image\tof_class\tof_name\tsame_bytes\tdifference\n";

/// Recognises a list of near copies. Writing such a list never overwrites any other file.
pub const COPIES: Content =
    Content { name: "a list of near copies", begins: |head| head.starts_with(b"split\timage\t") };

/// Writes the list of near copies of the data set in `dir` to `file`, with one line per copy and columns separated by
/// tabs. The file is replaced atomically.
///
/// # Errors
///
/// Returns an error if the data set cannot be read or the file cannot be written.
pub fn write_duplicates(dir: &Path, copies: &[NearCopy], file: &Path) -> Result<(), Error> {
    let splits = open_splits(dir)?;
    let mut text = String::from(COLUMNS);
    for copy in copies {
        let mut columns = String::new();
        for (split, number) in [(&copy.split, copy.number), (&copy.of, copy.original)] {
            let RecordInfo { class, name } = record_info(&splits, split, number);
            // Writing to a `String` cannot fail.
            let _ = write!(columns, "{}\t{number}\t{}\t{}\t", printable(split), printable(&class), printable(&name));
        }
        let same = if copy.same_bytes { "yes" } else { "no" };
        let _ = writeln!(text, "{columns}{same}\t{:.6}", copy.difference);
    }
    Ok(replace::replace(file, text.as_bytes())?)
}

/// The class and name of a record's image.
#[derive(Default)]
struct RecordInfo {
    class: String,
    name: String,
}

/// Returns all splits of a data set. Each shard is opened on first use, so a bad shard does not affect the remaining shards.
fn open_splits(dir: &Path) -> Result<Vec<Split>, loaders::Error> {
    let dataset = Dataset::open(dir)?;
    dataset.manifest.splits.keys().map(|name| dataset.split_lazily(name)).collect()
}

/// Returns empty texts if the record cannot be read, because `verify` reports its fault.
fn record_info(splits: &[Split], split: &str, number: u64) -> RecordInfo {
    let mut copy = Vec::new();
    let Some(split) = splits.iter().find(|found| found.name() == split) else { return RecordInfo::default() };
    let read = split.record(number, &mut copy);
    let about = read.map(|(example, _)| RecordInfo {
        class: split.class_text(&example).unwrap_or_default(),
        name: example.filename.to_string(),
    });
    about.unwrap_or_default()
}

// Finds 64-bit hashes that differ from a given hash in at most 7 bits without comparing all of them.
//
// A hash is divided into four words of 16 bits. If two hashes differ in at most 7 bits, at least one word differs in at
// most one bit. So it is enough to have a table for each word and to look up the word itself and its 16 variants with
// one changed bit.

const WORDS: usize = 4;
const BITS: usize = 16;
/// The highest number of different bits for hashes that count as near.
const MAX_DISTANCE: u32 = 7;

/// Hashes, indexed by each of their words.
struct HashIndex {
    hashes: Vec<u64>,
    tables: [Table; WORDS],
}

/// For each value of a word, the hashes that contain it.
struct Table {
    /// Start of each value's list in `numbers`, followed by the end of the last list.
    starts: Vec<u32>,
    /// Indices of hashes, grouped by value.
    numbers: Vec<u32>,
}

fn word(hash: u64, at: usize) -> usize {
    (hash >> (BITS * at)) as usize & ((1 << BITS) - 1)
}

impl Table {
    fn new(hashes: &[u64], at: usize) -> Self {
        let mut starts = vec![0u32; (1 << BITS) + 1];
        hashes.iter().for_each(|&hash| starts[word(hash, at) + 1] += 1);
        (0..1 << BITS).for_each(|value| starts[value + 1] += starts[value]);
        let (mut next, mut numbers) = (starts.clone(), vec![0; hashes.len()]);
        for (number, &hash) in (0u32..).zip(hashes) {
            let place = &mut next[word(hash, at)];
            numbers[*place as usize] = number;
            *place += 1;
        }
        Table { starts, numbers }
    }

    fn with(&self, value: usize) -> &[u32] {
        &self.numbers[self.starts[value] as usize..self.starts[value + 1] as usize]
    }
}

impl HashIndex {
    /// Indexes these hashes. There may be at most 2^32.
    fn new(hashes: impl Iterator<Item = u64>) -> Self {
        let hashes: Vec<u64> = hashes.collect();
        let tables = std::array::from_fn(|at| Table::new(&hashes, at));
        HashIndex { hashes, tables }
    }

    /// Calls `visit` with the index of each hash near `hash`. An index may occur more than once.
    fn near(&self, hash: u64, mut visit: impl FnMut(usize)) {
        for (at, table) in self.tables.iter().enumerate() {
            let value = word(hash, at);
            let places = std::iter::once(value).chain((0..BITS).map(|bit| value ^ 1 << bit));
            let numbers = places.flat_map(|place| table.with(place)).map(|&number| number as usize);
            numbers.filter(|&number| (self.hashes[number] ^ hash).count_ones() <= MAX_DISTANCE).for_each(&mut visit);
        }
    }
}

// Thumbnails of 16 x 16 grey values. Their correlation does not depend on brightness and contrast, and near copies have
// almost equal hashes.

const SIDE: usize = 16;
const AREA: usize = SIDE * SIDE;
/// Number of frequencies per direction in the hash.
const WAVES: usize = 8;
/// Frequencies below this fraction of the total amplitude are treated as noise.
const NOISE_LEVEL: f32 = 0.01;
/// Two images are near copies if 1 - correlation of their thumbnails is at most this value.
const MAX_DIFFERENCE: f64 = 0.003;
/// An image whose grey values have a smaller standard deviation has too little content for a comparison.
const MIN_DEVIATION: f64 = 6.0;

/// The cosine of each frequency at the centre of each cell.
static COSINES: LazyLock<[[f32; SIDE]; WAVES]> = LazyLock::new(|| {
    std::array::from_fn(|wave| std::array::from_fn(|at| (PI * wave as f32 * (at as f32 + 0.5) / SIDE as f32).cos()))
});

/// The mean grey value of each cell in a 16 x 16 grid over the image.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct GreyThumbnail([u8; AREA]);

/// The overlap of a pixel with a cell along one axis. `weight` is the length of the overlap in cells.
struct Share {
    cell: usize,
    weight: f32,
}

/// Returns the cells that pixel `at` of a line of `length` pixels overlaps, at most 16.
fn shares(at: usize, length: usize) -> impl Iterator<Item = Share> {
    let scale = SIDE as f32 / length as f32;
    let (from, to) = (at as f32 * scale, (at + 1) as f32 * scale);
    (from as usize..(to.ceil() as usize).min(SIDE)).map(move |cell| {
        let weight = to.min((cell + 1) as f32) - from.max(cell as f32);
        Share { cell, weight: weight.max(0.0) }
    })
}

impl GreyThumbnail {
    /// Computes the thumbnail of an image with at least one pixel.
    fn from_pixels(picture: &Reduced<'_>) -> Self {
        let Reduced { height, width, channels, bytes } = *picture;
        let columns: Vec<Vec<Share>> = (0..width).map(|x| shares(x, width).collect()).collect();
        let mut sums = [0f32; AREA];
        for (y, row) in bytes.chunks_exact(width * channels).take(height).enumerate() {
            let mut line = [0f32; SIDE];
            for (pixel, shares) in row.chunks_exact(channels).zip(&columns) {
                let grey = grey(pixel);
                shares.iter().for_each(|share| line[share.cell] += share.weight * grey);
            }
            for Share { cell, weight } in shares(y, height) {
                let cells = &mut sums[cell * SIDE..][..SIDE];
                cells.iter_mut().zip(&line).for_each(|(sum, value)| *sum += weight * value);
            }
        }
        GreyThumbnail(sums.map(|sum| (sum + 0.5) as u8))
    }

    /// Hashes the signs of the 63 lowest frequencies of the image's cosine transform, without the mean. A bit is set if
    /// its coefficient is positive and above the noise level.
    fn hash(&self) -> u64 {
        let mut rows = [[0f32; SIDE]; WAVES];
        for (y, line) in self.0.as_chunks::<SIDE>().0.iter().enumerate() {
            for (row, cosines) in rows.iter_mut().zip(&*COSINES) {
                row.iter_mut().zip(line).for_each(|(sum, &value)| *sum += cosines[y] * f32::from(value));
            }
        }
        let product =
            |row: &[f32; SIDE], cosines: &[f32; SIDE]| -> f32 { cosines.iter().zip(row).map(|(a, b)| a * b).sum() };
        let waves = rows.iter().flat_map(|row| COSINES.iter().map(move |cosines| product(row, cosines)));
        // The first coefficient is the mean.
        let waves: Vec<f32> = waves.skip(1).collect();
        let least = NOISE_LEVEL * waves.iter().map(|wave| wave * wave).sum::<f32>().sqrt();
        waves.iter().fold(0, |hash, &wave| hash << 1 | u64::from(wave > least))
    }

    /// Returns 1 - correlation of two thumbnails, or `None` if they are not near copies.
    fn difference(&self, other: &Self) -> Option<f64> {
        let (mut a1, mut b1, mut aa, mut bb, mut ab) = (0u64, 0u64, 0u64, 0u64, 0u64);
        for (&a, &b) in self.0.iter().zip(&other.0) {
            let (a, b) = (u64::from(a), u64::from(b));
            (a1, b1, aa, bb, ab) = (a1 + a, b1 + b, aa + a * a, bb + b * b, ab + a * b);
        }
        let n = AREA as f64;
        let spread = |sum: u64, squares: u64| squares as f64 / n - (sum as f64 / n).powi(2);
        let (va, vb) = (spread(a1, aa), spread(b1, bb));
        if va.min(vb) < MIN_DEVIATION * MIN_DEVIATION {
            return None;
        }
        let covariance = ab as f64 / n - a1 as f64 / n * (b1 as f64 / n);
        Some((1.0 - covariance / (va * vb).sqrt()).max(0.0)).filter(|&difference| difference <= MAX_DIFFERENCE)
    }
}

/// Returns the brightness of a pixel with any number of channels.
fn grey(pixel: &[u8]) -> f32 {
    match *pixel {
        [grey] => f32::from(grey),
        [r, g, b] => 0.299 * f32::from(r) + 0.587 * f32::from(g) + 0.114 * f32::from(b),
        _ => pixel.iter().map(|&v| f32::from(v)).sum::<f32>() / pixel.len().max(1) as f32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Generates an image of waves. Each `salt` gives a different image.
    fn waves(height: usize, width: usize, salt: usize) -> Vec<u8> {
        let value = |y: usize, x: usize| {
            let (y, x, s) = (y as f64 / height as f64, x as f64 / width as f64, salt as f64);
            let wave = (7.0 * y + s).sin() + (5.0 * x * (1.0 + s % 3.0)).cos() + (9.0 * x * y + 2.0 * s).sin();
            (128.0 + 40.0 * wave) as u8
        };
        (0..height * width).map(|i| value(i / width, i % width)).collect()
    }

    fn picture(number: u64, (height, width): (usize, usize), bytes: &[u8]) -> Picture {
        let pixels = Reduced { height, width, channels: 1, bytes };
        Picture { number, thumbnail: GreyThumbnail::from_pixels(&pixels), bytes: (crc32c(bytes), bytes.len() as u64) }
    }

    #[test]
    fn copies_are_found_at_other_sizes_and_brightness_and_each_once() {
        let mut gallery = Gallery::default();
        let train = |salt| waves(40, 48, salt);
        gallery.add("train", 0, (0..30).map(|i| picture(i, (40, 48), &train(i as usize))).collect());
        gallery.add("train", 30, vec![picture(0, (40, 48), &train(4))]);
        let dim: Vec<u8> = train(7).iter().map(|&v| v / 2 + 60).collect();
        let test = [waves(40, 48, 4), waves(90, 100, 11), dim, waves(40, 48, 200)];
        let sizes = [(40, 48), (90, 100), (40, 48), (40, 48)];
        gallery.add("test", 0, (0..4).map(|i| picture(i as u64, sizes[i], &test[i])).collect());
        let found = gallery.near_copies(2).unwrap();
        let pairs: Vec<_> = found.iter().map(|c| (c.number, c.original, c.same_bytes)).collect();
        assert_eq!(pairs, [(0, 4, true), (1, 11, false), (2, 7, false)]);
        assert!(found.iter().all(|c| (c.split.as_str(), c.of.as_str()) == ("test", "train")));
    }

    #[test]
    fn a_picture_of_one_colour_is_a_copy_only_of_the_same_bytes() {
        let mut gallery = Gallery::default();
        let plain = |value| vec![value; 400];
        gallery.add("train", 0, vec![picture(0, (20, 20), &plain(9))]);
        gallery.add("test", 0, vec![picture(0, (20, 20), &plain(10)), picture(1, (20, 20), &plain(9))]);
        let found = gallery.near_copies(1).unwrap();
        assert_eq!(found.iter().map(|c| (c.number, c.same_bytes)).collect::<Vec<_>>(), [(1, true)]);
    }

    #[test]
    fn copies_are_counted_by_pairs_of_splits() {
        let copy = |split: &str, of: &str, same_bytes| NearCopy {
            split: split.into(),
            number: 1,
            of: of.into(),
            original: 2,
            same_bytes,
            difference: 0.0,
        };
        let copies = [copy("validation", "train", true), copy("test", "train", false), copy("test", "train", true)];
        let expected = [("validation", "train", 1, 1), ("test", "train", 2, 1)]
            .map(|(split, of, images, same_bytes)| Count { split, of, images, same_bytes });
        assert_eq!(counts(&copies), expected);
    }

    #[test]
    fn all_near_hashes_are_found_and_no_other() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state ^ state >> 33
        };
        let centre = random();
        let flipped = |random: &mut dyn FnMut() -> u64| {
            let flips = random() % 20;
            (0..flips).fold(centre, |hash, _| hash ^ 1 << (random() % 64))
        };
        let hashes: Vec<u64> = (0..3000).map(|_| flipped(&mut random)).collect();
        let lookup = HashIndex::new(hashes.iter().copied());
        let mut found = Vec::new();
        lookup.near(centre, |number| found.push(number));
        found.sort_unstable();
        found.dedup();
        let expected: Vec<usize> = (0..3000).filter(|&i| (hashes[i] ^ centre).count_ones() <= 7).collect();
        assert!(expected.len() > 300 && expected.len() < 2700);
        assert_eq!(found, expected);
    }

    #[test]
    fn cells_are_means_of_their_pixels_at_any_size() {
        for (height, width) in [(16, 16), (32, 48), (5, 7), (1, 1), (37, 300)] {
            let ramp: Vec<u8> = (0..height * width).map(|i| (i % width * 255 / width.max(2)) as u8).collect();
            let thumbnail = GreyThumbnail::from_pixels(&Reduced { height, width, channels: 1, bytes: &ramp });
            let mean = ramp.iter().map(|&v| f64::from(v)).sum::<f64>() / ramp.len() as f64;
            let cells = thumbnail.0.iter().map(|&v| f64::from(v)).sum::<f64>() / AREA as f64;
            assert!((mean - cells).abs() < 1.0, "{height} x {width}: {mean} {cells}");
            assert!(thumbnail.0.chunks(SIDE).all(|row| row.is_sorted() && row == &thumbnail.0[..SIDE]));
        }
        let colour = GreyThumbnail::from_pixels(&Reduced { height: 1, width: 1, channels: 3, bytes: &[255, 0, 0] });
        assert_eq!(colour.0, [76; AREA]);
    }

    #[test]
    fn a_hash_and_a_correlation_do_not_see_brightness() {
        let value = |i: usize| (i * 7919 % 101) as u8 + 40;
        let one = GreyThumbnail(std::array::from_fn(value));
        let brighter = GreyThumbnail(std::array::from_fn(|i| value(i) + 50));
        let other = GreyThumbnail(std::array::from_fn(|i| (i * 104_729 % 97) as u8));
        assert_eq!(one.hash(), brighter.hash());
        assert!(one.difference(&brighter).unwrap() < 1e-9);
        assert_eq!(one.difference(&other), None);
    }
}
