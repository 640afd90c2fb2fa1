//! How batches are divided into pieces, of which each is the work of one thread.

/// How batches are divided into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    /// Pieces of a batch, at most.
    pub pieces: usize,
    /// Samples of a piece, at least.
    pub samples: usize,
}

impl Division {
    /// Pieces of a batch of so many samples.
    pub fn of(self, samples: usize) -> usize {
        (samples / self.samples).clamp(1, self.pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_batch() {
        let division = Division { pieces: 4, samples: 3 };
        let pieces = [0, 1, 3, 4, 9, 10, 1000].map(|samples| division.of(samples));
        assert_eq!(pieces, [1, 1, 1, 1, 3, 3, 4]);
        assert_eq!(Division { pieces: 1, samples: 1 }.of(64), 1);
    }
}
