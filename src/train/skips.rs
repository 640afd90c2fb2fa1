//! Says which training records were left out (`loader.on_corrupt = "skip"`): the first few by name, the rest as numbers.

use loaders::Error;

/// Lines that one rank may fill in a run.
const LINES: usize = 10;

/// What a rank has to say of records that were left out.
#[derive(Debug, Default)]
pub struct Skips {
    lines: Vec<String>,
    said: usize,
}

impl Skips {
    /// Takes the faults of a batch, found by this rank of so many.
    pub fn note(&mut self, faults: &[Error], (rank, ranks): (usize, usize)) {
        for fault in faults.iter().take(LINES.saturating_sub(self.said)) {
            let who = if ranks > 1 { format!("rank {rank}: ") } else { String::new() };
            self.lines.push(format!("{who}left out: {fault}"));
            self.said += 1;
            if self.said == LINES {
                self.lines.push(format!(
                    "{who}further records that are left out are only counted, see `trireme data verify`"
                ));
            }
        }
    }

    /// The lines since the last call.
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_are_named_and_the_rest_counted() {
        let mut skips = Skips::default();
        let fault = || Error::NoSample { split: "train".into(), id: 3, len: 2 };
        skips.note(&[fault()], (1, 4));
        assert!(skips.take()[0].starts_with("rank 1: left out: split `train` has 2 samples"));
        (0..30).for_each(|_| skips.note(&[fault(), fault()], (0, 1)));
        let lines = skips.take();
        assert_eq!(lines.len(), LINES);
        assert!(lines[LINES - 1].starts_with("further records"), "{lines:?}");
        skips.note(&[fault()], (0, 1));
        assert!(skips.take().is_empty());
    }
}
