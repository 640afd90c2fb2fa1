//! Decides which samples go to which shard, and in which order the samples of a split are converted.
//!
//! Usually all samples are shuffled together. If a source is only fast when read block by block, the blocks are
//! shuffled, and samples are shuffled within windows of a few blocks.

use std::ops::Range;
use std::path::Path;

use loaders::Permutation;

use crate::error::Error;
use crate::source::{Blocks, Source};
use crate::splits::TRAIN;

/// Threads work on at most this many consecutive samples at a time.
pub(super) const CHUNK_SAMPLES: u64 = 256;

pub(super) enum Order {
    /// All samples are shuffled together.
    Full(Permutation),
    Windows(Windows),
}

/// Consecutive windows over the shuffled blocks. The samples of each window are shuffled.
pub(super) struct Windows {
    /// All blocks, in shuffled order.
    blocks: Vec<Block>,
    windows: Vec<Window>,
}

struct Block {
    first: u64,
    /// Number of samples in the blocks before this one in the same window.
    before: u64,
}

struct Window {
    /// Position of the window's first sample in the split's order.
    start: u64,
    /// Index of the window's first block.
    block: usize,
    samples: Permutation,
}

impl Order {
    /// Creates a shuffled order of `len` samples. If the source has `blocks`, it shuffles the blocks, and samples only
    /// within windows of a few blocks.
    pub(super) fn new(seed: u64, len: u64, blocks: Option<Blocks>) -> Self {
        match blocks {
            None => Order::Full(Permutation::new(seed, 0, len)),
            Some(blocks) => Order::Windows(Windows::new(seed, &blocks)),
        }
    }

    pub(super) fn all(source: &dyn Source, seed: u64) -> Vec<Self> {
        let splits = source.splits().iter().enumerate();
        splits.map(|(at, split)| Order::new(seed, split.len, source.blocks(at))).collect()
    }

    /// Appends the indices of the samples at these positions to `out`.
    pub(super) fn extend(&self, positions: Range<u64>, out: &mut Vec<u64>) {
        match self {
            Order::Full(permutation) => permutation.extend(positions, out),
            Order::Windows(windows) => out.extend(positions.map(|position| windows.get(position))),
        }
    }
}

impl Windows {
    fn new(seed: u64, given: &Blocks) -> Self {
        let lengths: Vec<u64> = given.lengths.iter().copied().filter(|&length| length > 0).collect();
        let mut firsts = vec![0];
        lengths.iter().for_each(|length| firsts.push(firsts[firsts.len() - 1] + length));
        let shuffled = Permutation::new(seed, 0, lengths.len() as u64);
        let order: Vec<usize> = (0..lengths.len() as u64).map(|i| shuffled.get(i) as usize).collect();
        let (mut blocks, mut windows, mut start) = (Vec::new(), Vec::new(), 0);
        for (number, part) in (1u32..).zip(order.chunks(given.together.max(1))) {
            let (block, mut before) = (blocks.len(), 0);
            for &at in part {
                blocks.push(Block { first: firsts[at], before });
                before += lengths[at];
            }
            windows.push(Window { start, block, samples: Permutation::new(seed, number, before) });
            start += before;
        }
        Windows { blocks, windows }
    }

    fn get(&self, position: u64) -> u64 {
        let at = self.windows.partition_point(|window| window.start <= position) - 1;
        let (window, end) = (&self.windows[at], self.windows.get(at + 1).map_or(self.blocks.len(), |next| next.block));
        let sample = window.samples.get(position - window.start);
        let blocks = &self.blocks[window.block..end];
        let block = &blocks[blocks.partition_point(|block| block.before <= sample) - 1];
        block.first + sample - block.before
    }
}

/// A shard to write, and the samples that belong to it.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub split: usize,
    pub name: String,
    /// Range of positions in the split's shuffled order.
    pub positions: Range<u64>,
}

impl Task {
    pub fn samples(&self) -> u64 {
        self.positions.end - self.positions.start
    }
}

pub(super) fn plan(source: &dyn Source, shards: usize) -> Result<Vec<Task>, Error> {
    let mut tasks = Vec::new();
    for (split, info) in source.splits().iter().enumerate() {
        if info.len == 0 {
            return Err(Error::input(Path::new(&info.name), "this split has no samples"));
        }
        tasks.extend(split_tasks(split, &info.name, info.len, shards));
    }
    Ok(tasks)
}

/// Plans the shards of a split with `len` samples. `train` gets `shards`, and other splits get a quarter. No split gets
/// more shards than samples.
pub(crate) fn split_tasks(split: usize, name: &str, len: u64, shards: usize) -> impl Iterator<Item = Task> {
    let requested = if name == TRAIN { shards } else { (shards / 4).max(1) };
    let count = (requested as u64).min(len);
    let bound = move |i: u64| (u128::from(i) * u128::from(len) / u128::from(count)) as u64;
    (0..count).map(move |shard| Task {
        split,
        name: format!("{name}-{shard:05}-of-{count:05}.tfrecord"),
        positions: bound(shard)..bound(shard + 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_comes_once_and_few_blocks_at_a_time() {
        let lengths = vec![5, 0, 12, 1, 7, 9, 3, 8, 2, 6];
        let len: u64 = lengths.iter().sum();
        let firsts: Vec<u64> = lengths.iter().scan(0, |sum, &n| Some(std::mem::replace(sum, *sum + n))).collect();
        for together in [1, 3, 100] {
            let order = Order::new(7, len, Some(Blocks { lengths: lengths.clone(), together }));
            let mut got = Vec::new();
            order.extend(0..len / 2, &mut got);
            order.extend(len / 2..len, &mut got);
            let mut sorted = got.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..len).collect::<Vec<_>>());
            assert!(!got.is_sorted());
            // All samples of a block are in the same window, which has at most 12 * `together` samples.
            let block = |sample: u64| firsts.partition_point(|&first| first <= sample) - 1;
            for (number, _) in lengths.iter().enumerate() {
                let places: Vec<usize> = (0..got.len()).filter(|&i| block(got[i]) == number).collect();
                let span = places.last().map_or(0, |last| last + 1 - places[0]);
                assert!(span <= 12 * together, "{together}: {places:?}");
            }
        }
    }
}
