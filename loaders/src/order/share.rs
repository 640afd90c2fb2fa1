//! How a batch is divided among workers, and workers among ranks.

use std::ops::Range;

/// The positions of worker `v` of `workers` among the `b` samples of a step:
/// floor(v*b/V) .. floor((v+1)*b/V).
pub fn worker_positions(b: usize, v: usize, workers: usize) -> Range<usize> {
    share(b, v, workers)
}

/// The workers that rank `rank` of `ranks` carries: floor(r*V/N) .. floor((r+1)*V/N).
pub fn rank_workers(rank: usize, ranks: usize, workers: usize) -> Range<usize> {
    share(workers, rank, ranks)
}

fn share(total: usize, part: usize, parts: usize) -> Range<usize> {
    let cut = |part: usize| (part as u128 * total as u128 / parts as u128) as usize;
    cut(part)..cut(part + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_the_floor_formulas() {
        let cuts = |b, w| (0..w).map(|v| worker_positions(b, v, w)).collect::<Vec<_>>();
        assert_eq!(cuts(10, 4), [0..2, 2..5, 5..7, 7..10]);
        assert_eq!(cuts(2, 4), [0..0, 0..1, 1..1, 1..2]);
        assert_eq!(rank_workers(0, 3, 4), 0..1);
        assert_eq!(rank_workers(1, 3, 4), 1..2);
        assert_eq!(rank_workers(2, 3, 4), 2..4);
    }
}
