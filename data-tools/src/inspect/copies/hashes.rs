//! A picture as 16 x 16 grey values with a hash that near copies almost share, and the lookup of near hashes.
//!
//! Which of many hashes of 64 bits are near a given one: every hash at a distance of at most 7 bits is found, without looking at all.
//!
//! A hash is four words of 16 bits. Of two hashes that differ in at most 7 bits, one word differs in at most one: a table for each word
//! and 17 places to look at in it find all.

use std::f32::consts::PI;
use std::sync::LazyLock;

use crate::image::pixels::Reduced;

const WORDS: usize = 4;
const BITS: usize = 16;
/// The most bits that near hashes differ in.
const NEAR: u32 = 7;

/// Hashes, found by their words.
pub(super) struct Lookup {
    hashes: Vec<u64>,
    tables: [Table; WORDS],
}

/// For each value of a word the hashes that have it.
struct Table {
    /// Where the list of each value starts, then the end of the last.
    starts: Vec<u32>,
    /// Numbers of hashes.
    numbers: Vec<u32>,
}

fn word(hash: u64, at: usize) -> usize {
    (hash >> (BITS * at)) as usize & ((1 << BITS) - 1)
}

impl Table {
    fn of(hashes: &[u64], at: usize) -> Self {
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

impl Lookup {
    /// The lookup of these hashes, at most 2^32.
    pub(super) fn of(hashes: impl Iterator<Item = u64>) -> Self {
        let hashes: Vec<u64> = hashes.collect();
        let tables = std::array::from_fn(|at| Table::of(&hashes, at));
        Lookup { hashes, tables }
    }

    /// Calls `see` with the number of each hash near `hash`; with some of them more than once.
    pub(super) fn near(&self, hash: u64, mut see: impl FnMut(usize)) {
        for (at, table) in self.tables.iter().enumerate() {
            let value = word(hash, at);
            let places = std::iter::once(value).chain((0..BITS).map(|bit| value ^ 1 << bit));
            let numbers = places.flat_map(|place| table.with(place)).map(|&number| number as usize);
            numbers.filter(|&number| (self.hashes[number] ^ hash).count_ones() <= NEAR).for_each(&mut see);
        }
    }
}

// A picture as 16 x 16 grey values, how much two of them differ whatever their brightness and contrast, and a hash that near copies
// share but for a few bits.

const SIDE: usize = 16;
const AREA: usize = SIDE * SIDE;
/// Waves of the hash in each direction.
const WAVES: usize = 8;
/// A wave below this part of all together is noise.
const FAINT: f32 = 0.01;
/// Two pictures are near copies if 1 - correlation of their thumbnails is at most this.
const MOST: f64 = 0.003;
/// A picture whose grey values deviate less than this shows too little to be told from another one.
const PLAIN: f64 = 6.0;

/// Cosines of the waves at the middles of the cells.
static COSINES: LazyLock<[[f32; SIDE]; WAVES]> = LazyLock::new(|| {
    std::array::from_fn(|wave| std::array::from_fn(|at| (PI * wave as f32 * (at as f32 + 0.5) / SIDE as f32).cos()))
});

/// The mean grey values of the cells of a grid of 16 x 16 over a picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Thumbnail([u8; AREA]);

/// The share of a line of pixels that falls into a cell.
struct Share {
    cell: usize,
    weight: f32,
}

/// The cells that pixel `at` of `length` lies in, at most 16 of them.
fn shares(at: usize, length: usize) -> impl Iterator<Item = Share> {
    let scale = SIDE as f32 / length as f32;
    let (from, to) = (at as f32 * scale, (at + 1) as f32 * scale);
    (from as usize..(to.ceil() as usize).min(SIDE)).map(move |cell| {
        let weight = to.min((cell + 1) as f32) - from.max(cell as f32);
        Share { cell, weight: weight.max(0.0) }
    })
}

impl Thumbnail {
    /// The thumbnail of a picture of at least one pixel.
    pub(super) fn of(picture: &Reduced<'_>) -> Self {
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
        Thumbnail(sums.map(|sum| (sum + 0.5) as u8))
    }

    /// Which of the 63 longest waves of the picture stand out upwards, in one number. Waves that it hardly has count as not.
    pub(super) fn hash(&self) -> u64 {
        let mut rows = [[0f32; SIDE]; WAVES];
        for (y, line) in self.0.as_chunks::<SIDE>().0.iter().enumerate() {
            for (row, cosines) in rows.iter_mut().zip(&*COSINES) {
                row.iter_mut().zip(line).for_each(|(sum, &value)| *sum += cosines[y] * f32::from(value));
            }
        }
        let product =
            |row: &[f32; SIDE], cosines: &[f32; SIDE]| -> f32 { cosines.iter().zip(row).map(|(a, b)| a * b).sum() };
        let waves = rows.iter().flat_map(|row| COSINES.iter().map(move |cosines| product(row, cosines)));
        // the first wave is the mean
        let waves: Vec<f32> = waves.skip(1).collect();
        let least = FAINT * waves.iter().map(|wave| wave * wave).sum::<f32>().sqrt();
        waves.iter().fold(0, |hash, &wave| hash << 1 | u64::from(wave > least))
    }

    /// 1 - correlation of two thumbnails, if they are near copies.
    pub(super) fn difference(&self, other: &Self) -> Option<f64> {
        let (mut a1, mut b1, mut aa, mut bb, mut ab) = (0u64, 0u64, 0u64, 0u64, 0u64);
        for (&a, &b) in self.0.iter().zip(&other.0) {
            let (a, b) = (u64::from(a), u64::from(b));
            (a1, b1, aa, bb, ab) = (a1 + a, b1 + b, aa + a * a, bb + b * b, ab + a * b);
        }
        let n = AREA as f64;
        let spread = |sum: u64, squares: u64| squares as f64 / n - (sum as f64 / n).powi(2);
        let (va, vb) = (spread(a1, aa), spread(b1, bb));
        if va.min(vb) < PLAIN * PLAIN {
            return None;
        }
        let covariance = ab as f64 / n - a1 as f64 / n * (b1 as f64 / n);
        Some((1.0 - covariance / (va * vb).sqrt()).max(0.0)).filter(|&difference| difference <= MOST)
    }
}

/// The brightness of a pixel of any number of channels.
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
        let lookup = Lookup::of(hashes.iter().copied());
        let mut found = Vec::new();
        lookup.near(centre, |number| found.push(number));
        found.sort_unstable();
        found.dedup();
        let expected: Vec<usize> = (0..3000).filter(|&i| (hashes[i] ^ centre).count_ones() <= 7).collect();
        assert!(expected.len() > 300 && expected.len() < 2700);
        assert_eq!(found, expected);
    }
}

#[cfg(test)]
mod thumbnail_tests {
    use super::*;

    #[test]
    fn cells_are_means_of_their_pixels_at_any_size() {
        for (height, width) in [(16, 16), (32, 48), (5, 7), (1, 1), (37, 300)] {
            let ramp: Vec<u8> = (0..height * width).map(|i| (i % width * 255 / width.max(2)) as u8).collect();
            let thumbnail = Thumbnail::of(&Reduced { height, width, channels: 1, bytes: &ramp });
            let mean = ramp.iter().map(|&v| f64::from(v)).sum::<f64>() / ramp.len() as f64;
            let cells = thumbnail.0.iter().map(|&v| f64::from(v)).sum::<f64>() / AREA as f64;
            assert!((mean - cells).abs() < 1.0, "{height} x {width}: {mean} {cells}");
            assert!(thumbnail.0.chunks(SIDE).all(|row| row.is_sorted() && row == &thumbnail.0[..SIDE]));
        }
        let colour = Thumbnail::of(&Reduced { height: 1, width: 1, channels: 3, bytes: &[255, 0, 0] });
        assert_eq!(colour.0, [76; AREA]);
    }

    #[test]
    fn a_hash_and_a_correlation_do_not_see_brightness() {
        let value = |i: usize| (i * 7919 % 101) as u8 + 40;
        let one = Thumbnail(std::array::from_fn(value));
        let brighter = Thumbnail(std::array::from_fn(|i| value(i) + 50));
        let other = Thumbnail(std::array::from_fn(|i| (i * 104_729 % 97) as u8));
        assert_eq!(one.hash(), brighter.hash());
        assert!(one.difference(&brighter).unwrap() < 1e-9);
        assert_eq!(one.difference(&other), None);
    }
}
