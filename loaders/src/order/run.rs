//! The samples that one worker reads in one epoch under a window order.

use std::ops::Range;

/// Consecutive samples of one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub shard: usize,
    /// Id of the first sample.
    pub first: u64,
    /// Samples of the worker's run before it.
    pub before: u64,
}

/// What a worker reads in one epoch.
#[derive(Debug, Clone, Default)]
pub(super) struct Run {
    /// Where it starts among the samples of the epoch; distinguishes its windows' permutations from those of other workers.
    pub start: u64,
    pub len: u64,
    pub pieces: Vec<Piece>,
}

impl Run {
    /// The pieces of the window that holds sample `at` of the run.
    pub fn window(&self, at: u64, k: usize) -> Range<usize> {
        let piece = self.pieces.partition_point(|piece| piece.before <= at) - 1;
        let first = piece / k * k;
        first..self.pieces.len().min(first + k)
    }

    /// The samples of these pieces.
    pub fn samples(&self, pieces: &Range<usize>) -> Range<u64> {
        self.pieces[pieces.start].before..self.pieces.get(pieces.end).map_or(self.len, |piece| piece.before)
    }

    /// The id of sample `at`, which is in one of these pieces.
    pub fn id(&self, pieces: &Range<usize>, at: u64) -> u64 {
        let pieces = &self.pieces[pieces.clone()];
        let piece = pieces[pieces.partition_point(|piece| piece.before <= at) - 1];
        piece.first + at - piece.before
    }
}
