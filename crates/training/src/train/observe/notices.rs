//! Lines about what training has left out: records (`loader.on_corrupt = "skip"`) and, under f16, steps. The first few are named, the rest
//! counted. And about what the device does otherwise than planned.

use backend::LossScale;
use comm::WorldInfo;
use loaders::Error;

/// Lines of each kind that one rank may print in a run.
const LINES: usize = 10;

/// One rank's lines about what was left out.
#[derive(Debug, Default)]
pub struct Notices {
    lines: Vec<String>,
    records: usize,
    steps: usize,
}

impl Notices {
    /// Takes the faults of a batch, found by this rank.
    pub fn records(&mut self, faults: &[Error], world: &WorldInfo) {
        for fault in faults.iter().take(LINES.saturating_sub(self.records)) {
            let who = world.who();
            self.lines.push(format!("{who}left out: {fault}"));
            self.records += 1;
            if self.records == LINES {
                self.lines.push(format!(
                    "{who}further records that are left out are only counted, see `trireme data verify`"
                ));
            }
        }
    }

    /// Takes the scale of the losses after a step that was left out because the scale was too large for it.
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

    /// Takes what this rank's device says of itself.
    pub fn device(&mut self, notes: Vec<String>, world: &WorldInfo) {
        let who = world.who();
        self.lines.extend(notes.into_iter().map(|note| format!("{who}{note}")));
    }

    /// The lines since the last call.
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comm::ThreadLevel;

    fn world(rank: usize, size: usize) -> WorldInfo {
        let (host, library) = (String::new(), String::new());
        WorldInfo { rank, size, node_rank: rank, node_size: size, host, thread_level: ThreadLevel::Multiple, library }
    }

    #[test]
    fn the_first_are_named_and_the_rest_counted() {
        let mut notices = Notices::default();
        let fault = || Error::NoSample { split: "train".into(), id: 3, len: 2 };
        notices.records(&[fault()], &world(1, 4));
        assert!(notices.take()[0].starts_with("rank 1: left out: split `train` has 2 samples"));
        (0..30).for_each(|_| notices.records(&[fault(), fault()], &world(0, 1)));
        let lines = notices.take();
        assert_eq!(lines.len(), LINES);
        assert!(lines[LINES - 1].starts_with("further records"), "{lines:?}");
        notices.records(&[fault()], &world(0, 1));
        assert!(notices.take().is_empty());
        notices.device(vec!["note: slow".into()], &world(1, 4));
        notices.device(vec!["note: slow".into()], &world(0, 1));
        assert_eq!(notices.take(), ["rank 1: note: slow", "note: slow"]);
        (1..=20).for_each(|step| notices.step(step, &LossScale { scale: 0.5, ..LossScale::default() }));
        let lines = notices.take();
        assert!(lines[0].starts_with("step 1 left out: ") && lines[0].ends_with("is 0.5 now"), "{lines:?}");
        assert!(lines.len() == LINES && lines[LINES - 1].contains("lost_steps"), "{lines:?}");
    }
}
