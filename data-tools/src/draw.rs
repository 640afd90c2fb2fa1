//! Draws a share of the samples of each class.

use loaders::Permutation;
use std::collections::BTreeSet;

/// Which samples are drawn of those with these labels: of a class of n samples `wanted(n)`. A permutation of each class decides, keyed by
/// `seed`.
pub(crate) fn draw(labels: &[u32], classes: usize, wanted: impl Fn(u64) -> u64, seed: u64) -> Vec<bool> {
    let mut counts = vec![0u64; classes];
    labels.iter().for_each(|&label| counts[label as usize] += 1);
    // epoch 0 shuffles the samples over the shards
    let drawn = |(class, &count): (usize, &u64)| -> BTreeSet<u64> {
        let draw = Permutation::new(seed, 1 + class as u32, count.max(1));
        (0..wanted(count).min(count)).map(|i| draw.get(i)).collect()
    };
    let mut drawn: Vec<BTreeSet<u64>> = counts.iter().enumerate().map(drawn).collect();
    let mut next = vec![0u64; classes];
    let goes = |&label: &u32| {
        let class = label as usize;
        next[class] += 1;
        drawn[class].remove(&(next[class] - 1))
    };
    labels.iter().map(goes).collect()
}
