//! Says what training has left out: records (`loader.on_corrupt = "skip"`) and, under f16, steps; the first few by name, the rest as
//! numbers.

use crate::backend::LossScale;
use loaders::Error;

/// Lines that one rank may fill in a run with each.
const LINES: usize = 10;

/// What a rank has to say of what was left out.
#[derive(Debug, Default)]
pub struct Skips {
    lines: Vec<String>,
    records: usize,
    steps: usize,
}

impl Skips {
    /// Takes the faults of a batch, found by this rank of so many.
    pub fn note(&mut self, faults: &[Error], (rank, ranks): (usize, usize)) {
        for fault in faults.iter().take(LINES.saturating_sub(self.records)) {
            let who = if ranks > 1 { format!("rank {rank}: ") } else { String::new() };
            self.lines.push(format!("{who}left out: {fault}"));
            self.records += 1;
            if self.records == LINES {
                self.lines.push(format!(
                    "{who}further records that are left out are only counted, see `trireme data verify`"
                ));
            }
        }
    }

    /// Takes the scale of the losses after a step that was left out because it was too large for it.
    pub fn step(&mut self, step: u64, scale: &LossScale) {
        self.steps += 1;
        if self.steps <= LINES {
            let last = if self.steps == LINES {
                "; further ones are only counted, as lost_steps in metrics.jsonl"
            } else {
                ""
            };
            self.lines.push(format!(
                "step {step} left out: a gradient was Inf or NaN in f16; the scale of the losses is {} now{last}",
                scale.scale
            ));
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
        (1..=20).for_each(|step| skips.step(step, &LossScale { scale: 0.5, ..LossScale::default() }));
        let lines = skips.take();
        assert!(lines[0].starts_with("step 1 left out: ") && lines[0].ends_with("is 0.5 now"), "{lines:?}");
        assert!(lines.len() == LINES && lines[LINES - 1].contains("lost_steps"), "{lines:?}");
    }
}
