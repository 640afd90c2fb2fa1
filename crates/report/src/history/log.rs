//! Reads metrics.jsonl. A line may be incomplete, may lack keys, and may have null for a number. The page report.html
//! contains the lines that can be serialized.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use loaders::regular;
use serde::{Deserialize, Deserializer, Serialize};

use super::eval_line::{EvalLine, nan, number};

/// Maximum length of a line in bytes. The longest line that a run writes has some thousand bytes.
const LONGEST: usize = 1 << 20;

/// All events of a run. Each list has the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// One line for the start of the run and for each time it was resumed.
    pub starts: Vec<StartLine>,
    /// The logged steps (see `log.every`).
    pub steps: Vec<StepLine>,
    pub epochs: Vec<EpochLine>,
    /// The cost of the gradient exchange. If a resumed run measured it more than once, the last measurement.
    pub exchange: Option<ExchangeLine>,
    /// Statistics of the layers. If there are too many lines, only every second (fourth, ...) line and the last line
    /// are kept.
    pub layers: Layers,
    /// Evaluations of the trained weights, on the split that is evaluated during training.
    pub evals: Vec<EvalLine>,
    /// Evaluations of the averaged weights (EMA), on the same split.
    pub averages: Vec<EvalLine>,
    /// Evaluations on the split that is evaluated only at the end of the run, of the trained and the averaged weights.
    pub at_end: Vec<EvalLine>,
    /// The step of the last checkpoint that was written.
    pub checkpoint: Option<u64>,
    /// The end event, if the last part of the run reached its end.
    pub end: Option<EndLine>,
    /// The lines that could not be read.
    pub unread: Unread,
    /// The last evaluation that is marked as best, or the best score in a later start.
    marked: Option<EvalLine>,
    /// The seconds of all steps, if [`summarise`](Self::summarise) has removed steps.
    seconds: Option<f64>,
}

/// Lines that are not valid events, for example a line that was cut off when the disk was full.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unread {
    pub lines: u64,
    /// Number of the first such line, counted from 1. 0 if all lines are valid.
    pub first: u64,
}

impl Log {
    /// Reads a file. A file that does not exist has no events.
    ///
    /// # Errors
    ///
    /// Returns an error if the file exists and cannot be read.
    pub fn read(path: &Path) -> io::Result<Self> {
        match regular::open(path) {
            Ok(file) => Self::from_lines(BufReader::new(file)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(e),
        }
    }

    /// Reads the lines of a log. Incomplete lines and lines that are not valid events are counted in `unread`. Empty
    /// lines and unknown events are ignored.
    ///
    /// # Errors
    ///
    /// Returns an error if the reader fails.
    pub fn from_lines(mut from: impl BufRead) -> io::Result<Self> {
        let (mut log, mut line, mut number) = (Self::default(), Vec::new(), 0);
        loop {
            line.clear();
            let read = io::Read::take(&mut from, LONGEST as u64).read_until(b'\n', &mut line)?;
            if read == 0 {
                return Ok(log);
            }
            number += 1;
            let whole = line.ends_with(b"\n");
            if !whole && read == LONGEST {
                from.skip_until(b'\n')?;
            }
            match serde_json::from_slice::<Line>(&line) {
                Ok(event) if whole => log.add(event),
                _ if line.iter().all(u8::is_ascii_whitespace) => {}
                _ => log.unread.note(number),
            }
        }
    }

    fn add(&mut self, line: Line) {
        match line {
            Line::Start(start) => {
                self.end = None;
                if let Some(best) = &start.best {
                    // The line of the evaluation has more scores, but a resume may have removed it.
                    let mut known = self.evals.iter().chain(&self.averages).chain(&self.marked);
                    let logged = known.rfind(|eval| (eval.step, eval.ema) == (best.step, best.ema));
                    self.marked = Some(logged.unwrap_or(best).clone());
                }
                self.starts.push(start);
            }
            Line::Step(step) => self.steps.push(step),
            Line::Epoch(epoch) => self.epochs.push(epoch),
            Line::Exchange(exchange) => self.exchange = Some(exchange),
            Line::Layers(layers) => self.layers.add(layers),
            Line::Eval(eval) if eval.at_end => self.at_end.push(eval),
            Line::Eval(eval) => {
                self.marked = eval.best.is_some().then(|| eval.clone()).or(self.marked.take());
                if eval.ema { self.averages.push(eval) } else { self.evals.push(eval) }
            }
            Line::Checkpoint { step } => self.checkpoint = Some(step),
            Line::End(end) => self.end = Some(end),
            Line::Other => {}
        }
    }

    /// Returns the number of optimizer steps that are done.
    pub fn step(&self) -> u64 {
        // `log.every` may leave out the lines of the last steps
        let lines = [
            self.starts.last().map(|start| start.step),
            self.steps.last().map(|step| step.step),
            self.epochs.last().map(|epoch| epoch.step),
            self.evals.last().map(|eval| eval.step),
            self.checkpoint,
            self.end.as_ref().map(|end| end.step),
        ];
        lines.into_iter().flatten().max().unwrap_or(0)
    }

    /// Returns true if the loss of the last step is NaN or infinite, or the last loss of an evaluation: during training,
    /// with averaged weights, or at the end.
    pub fn diverged(&self) -> bool {
        let scored = [&self.evals, &self.averages, &self.at_end].into_iter().filter_map(|evals| evals.last());
        let mut losses = self.steps.last().map(|step| step.loss).into_iter().chain(scored.map(|eval| eval.loss));
        losses.any(|loss| !loss.is_finite())
    }

    /// Removes all steps except the last, and the statistics of the layers. They need much memory.
    pub(super) fn summarise(&mut self) {
        self.seconds = Some(self.seconds_of_steps());
        self.steps = self.steps.pop().into_iter().collect();
        self.layers = Layers::default();
    }

    /// Returns the total seconds of all steps, without evaluations. If `log.every` left out steps, each counts as long
    /// as the next logged step, or at the end as the last logged step. If no step was logged, the result is the time of all
    /// complete epochs.
    pub fn seconds_of_steps(&self) -> f64 {
        if let Some(seconds) = self.seconds {
            return seconds;
        }
        let mut before = self.starts.first().map_or(0, |start| start.step);
        let mut sum = 0.0;
        for step in &self.steps {
            sum += step.step.saturating_sub(before) as f64 * finite(step.step_ms);
            before = step.step;
        }
        match self.steps.last() {
            Some(last) => (sum + self.step().saturating_sub(before) as f64 * finite(last.step_ms)) / 1e3,
            // `sum` of an empty list is -0.0, which tables would show
            None => self.epochs.iter().fold(0.0, |sum, epoch| sum + finite(epoch.seconds)),
        }
    }

    /// Returns the last evaluation that the run marked as best (`checkpoint.best_by`). After a resume this is the best
    /// score in the `start` line, unless a later evaluation is marked. The log may have no line for that score. If no
    /// evaluation is marked, returns the first one of the trained weights with the highest [`EvalLine::leading`].
    pub fn best(&self) -> Option<&EvalLine> {
        let known = self.evals.iter().filter(|eval| eval.leading().is_finite());
        let highest = || known.reduce(|best, next| if next.leading() > best.leading() { next } else { best });
        self.marked.as_ref().or_else(highest)
    }
}

/// Lines with statistics of the layers, few enough for a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layers {
    kept: Vec<LayersLine>,
    last: Option<LayersLine>,
    /// Number of lines that were added, whether kept or not.
    seen: usize,
    /// Every 2^power-th line is kept.
    power: u32,
}

impl Layers {
    /// Maximum number of lines in `kept`.
    const MOST: usize = 256;

    fn add(&mut self, line: LayersLine) {
        if self.seen.is_multiple_of(1 << self.power) {
            if self.kept.len() == Self::MOST {
                let mut keep = false;
                self.kept.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.power += 1;
            }
            if self.seen.is_multiple_of(1 << self.power) {
                self.kept.push(line.clone());
            }
        }
        self.seen += 1;
        self.last = Some(line);
    }

    /// Returns the kept lines in order, followed by the last line if it was not kept.
    pub fn lines(&self) -> Vec<&LayersLine> {
        let last = self.last.iter().filter(|last| self.kept.last().is_none_or(|kept| kept.step != last.step));
        self.kept.iter().chain(last).collect()
    }
}

fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}

impl Unread {
    fn note(&mut self, line: u64) {
        self.lines += 1;
        if self.first == 0 {
            self.first = line;
        }
    }
}

/// A line in the log. Unknown events become `Other`.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(super) enum Line {
    Start(StartLine),
    Step(StepLine),
    Epoch(EpochLine),
    Exchange(ExchangeLine),
    Layers(LayersLine),
    Eval(EvalLine),
    Checkpoint {
        step: u64,
    },
    End(EndLine),
    #[serde(other)]
    Other,
}

/// Reads minimum, median and maximum over the ranks. Null becomes NaN.
fn spread<'de, D: Deserializer<'de>>(from: D) -> Result<[f64; 3], D::Error> {
    Ok(<[Option<f64>; 3]>::deserialize(from)?.map(|value| value.unwrap_or(f64::NAN)))
}

fn nans() -> [f64; 3] {
    [f64::NAN; 3]
}

/// The start of a run or of a resumed part of it, see [`crate::Start`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct StartLine {
    pub step: u64,
    pub epoch: u32,
    pub epochs: u32,
    pub steps_per_epoch: u64,
    pub last_step: u64,
    pub model: String,
    pub parameters: u64,
    pub images: u64,
    pub batch: u64,
    pub workers: u64,
    pub ranks: u64,
    pub facts: BTreeMap<String, String>,
    pub best: Option<EvalLine>,
    /// Date and time as in RFC 3339. `None` in logs of versions that did not write it.
    pub utc: Option<String>,
}

/// One optimizer step, see [`crate::Step`].
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct StepLine {
    pub step: u64,
    #[serde(default)]
    pub epoch: u32,
    #[serde(default = "nan", deserialize_with = "number")]
    pub loss: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub top1: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub lr: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub img_per_s: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub data_wait_ms: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub comm_wait_ms: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub step_ms: f64,
    #[serde(default = "nans", deserialize_with = "spread")]
    pub data_wait_ranks: [f64; 3],
    #[serde(default = "nans", deserialize_with = "spread")]
    pub comm_wait_ranks: [f64; 3],
    #[serde(default = "nans", deserialize_with = "spread")]
    pub step_ranks: [f64; 3],
    #[serde(default = "nan", deserialize_with = "number")]
    pub grad_norm: f64,
}

/// One epoch, see [`crate::Epoch`].
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct EpochLine {
    pub step: u64,
    #[serde(default)]
    pub epoch: u32,
    #[serde(default = "nan", deserialize_with = "number")]
    pub loss: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub top1: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub img_per_s: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub seconds: f64,
    #[serde(default, skip_serializing)]
    pub loader: BTreeMap<String, Option<f64>>,
}

/// Cost of the gradient exchange per step, see [`crate::Exchange`].
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ExchangeLine {
    pub codec: String,
    #[serde(default = "nan", deserialize_with = "number")]
    pub encode_ms: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub wire_ms: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub decode_ms: f64,
}

/// Statistics of the layers, see [`crate::Layers`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct LayersLine {
    pub step: u64,
    #[serde(default)]
    pub tensors: Vec<TensorLine>,
}

/// Statistics of one parameter, see [`crate::TensorSpread`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct TensorLine {
    pub name: String,
    #[serde(default)]
    pub elements: u64,
    #[serde(default)]
    pub weight: SpreadLine,
    #[serde(default)]
    pub gradient: SpreadLine,
    pub zero_codes: Option<f64>,
}

/// Statistics of a tensor's elements, see [`crate::Spread`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct SpreadLine {
    pub mean: Option<f64>,
    pub deviation: Option<f64>,
    pub least: Option<f64>,
    pub most: Option<f64>,
    pub zeros: Option<f64>,
}

/// The end of the run, see [`crate::End`].
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct EndLine {
    #[serde(skip_serializing)]
    pub step: u64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub seconds: f64,
    #[serde(default = "nan", deserialize_with = "number")]
    pub img_per_s: f64,
    #[serde(default)]
    pub digest: String,
    pub ended: Option<String>,
    pub seconds_to_target: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Log {
        Log::from_lines(text.as_bytes()).unwrap()
    }

    #[test]
    fn log_events_are_parsed() {
        let log = read(
            "{\"event\":\"start\",\"step\":0,\"epochs\":2,\"last_step\":4,\"model\":\"lenet\",\"facts\":{\"device\":\"cpu\"}}\n\
             {\"event\":\"step\",\"step\":1,\"loss\":2.5,\"step_ms\":10,\"data_wait_ranks\":[0,null,2]}\n\
             {\"event\":\"step\",\"step\":3,\"loss\":null,\"step_ms\":20.5}\n\
             {\"event\":\"eval\",\"step\":3,\"split\":\"test\",\"top1\":0.5}\n\
             {\"event\":\"eval\",\"step\":4,\"split\":\"test\",\"top1\":0.25}\n\
             {\"event\":\"end\",\"step\":4,\"digest\":\"00-11\"}\n",
        );
        assert_eq!((log.starts[0].model.as_str(), log.starts[0].facts["device"].as_str()), ("lenet", "cpu"));
        assert_eq!((log.steps[0].loss, log.steps[0].data_wait_ranks[2]), (2.5, 2.0));
        assert!(log.steps[0].data_wait_ranks[1].is_nan() && log.steps[1].loss.is_nan() && log.steps[0].lr.is_nan());
        assert_eq!((log.step(), log.best().unwrap().step, log.seconds_of_steps()), (4, 3, 0.0715));
        assert_eq!((log.end.unwrap().digest.as_str(), log.unread), ("00-11", Unread::default()));
    }

    /// The run began with another run's checkpoint, and `log.every` left out the lines of its last steps.
    #[test]
    fn step_is_the_last_step_of_any_event() {
        let begin = "{\"event\":\"start\",\"step\":10000}\n{\"event\":\"step\",\"step\":10001,\"step_ms\":2000}\n";
        let log = read(begin);
        assert_eq!((log.step(), log.seconds_of_steps()), (10_001, 2.0));
        let longer = format!("{begin}{{\"event\":\"step\",\"step\":10002,\"step_ms\":500,\"loss\":null}}\n");
        let whole = read(&longer);
        let mut summary = whole.clone();
        summary.summarise();
        let of = |log: &Log| (log.step(), log.seconds_of_steps(), log.diverged());
        assert_eq!((of(&summary), summary.steps.len()), (of(&whole), 1));
        for line in ["\"epoch\"", "\"eval\"", "\"checkpoint\""] {
            let log = read(&format!("{begin}{{\"event\":{line},\"step\":10047}}\n"));
            assert_eq!(log.step(), 10_047, "{line}");
        }
    }

    #[test]
    fn steps_without_a_line_count_towards_the_time() {
        let epoch = "{\"event\":\"epoch\",\"step\":1500,\"seconds\":4.5}\n";
        let start = "{\"event\":\"start\",\"step\":0}\n";
        let step = "{\"event\":\"step\",\"step\":1000,\"step_ms\":2}\n";
        let mut log = read(&[start, step, epoch].concat());
        assert_eq!(log.seconds_of_steps(), 3.0);
        log.summarise();
        assert_eq!(log.seconds_of_steps(), 3.0);
        // `log.every` was larger than the number of steps.
        assert_eq!(read(&[start, epoch].concat()).seconds_of_steps(), 4.5);
        assert_eq!(read(start).seconds_of_steps(), 0.0);
    }

    #[test]
    fn best_is_chosen_by_the_score_that_the_run_named() {
        let line = |step: u64, more: &str| format!("{{\"event\":\"eval\",\"step\":{step},\"top1\":0.{step}{more}}}\n");
        let plain = [line(1, ""), line(2, ""), line(3, "")].concat();
        assert_eq!(read(&plain).best().unwrap().step, 3);
        let by_loss = [line(1, ",\"best\":\"loss\""), line(2, ",\"best\":\"loss\""), line(3, "")].concat();
        assert_eq!(read(&by_loss).best().unwrap().step, 2);
        let averages = [line(1, ""), line(2, ",\"ema\":true,\"best\":\"ema.top1\""), line(3, "")].concat();
        let log = read(&averages);
        assert!(log.best().is_some_and(|best| best.ema && best.step == 2) && log.evals.len() == 2);
        // a resumed run has dropped the line of its best score, then a later score is better
        let start = |step: u64, more: &str| {
            format!("{{\"event\":\"start\",\"step\":3,\"best\":{{\"step\":{step},\"best\":\"top1\"{more}}}}}\n")
        };
        let (first, best) = (line(1, ",\"best\":\"top1\""), start(3, ",\"top1\":0.9,\"loss\":0.5"));
        let (last, resumed) = (line(6, ",\"best\":\"top1\""), [first.clone(), best, line(4, "")].concat());
        let scores = |text: &str| read(text).best().map(|best| (best.step, best.top1, best.loss)).unwrap();
        assert_eq!(scores(&resumed), (3, 0.9, 0.5));
        assert_eq!(scores(&[resumed.as_str(), &start(3, "")].concat()), (3, 0.9, 0.5));
        assert_eq!(read(&[resumed, last].concat()).best().unwrap().step, 6);
        assert_eq!(read(&[first, start(1, "")].concat()).best().unwrap().top1, 0.1);
    }

    /// A run that continues another run's checkpoint may know only the score that selected the best one.
    #[test]
    fn a_best_score_that_is_known_alone_is_shown() {
        for (name, text) in [
            ("top1", "50.00 %"),
            ("top5", "top5 50.00 %"),
            ("loss", "loss 0.5000"),
            ("macro_f1", "macro_f1 50.00 %"),
            ("map", "map 50.00 %"),
            ("rmse", "rmse 0.5000"),
            ("mae", "mae 0.5000"),
            ("r2", "r2 0.5000"),
        ] {
            for best in [name.to_string(), format!("ema.{name}")] {
                let log = read(&format!(
                    "{{\"event\":\"start\",\"step\":9,\"best\":{{\"step\":5,\"best\":\"{best}\",\"{name}\":0.5}}}}\n"
                ));
                let line = log.best().unwrap();
                assert_eq!(line.leading_text(), text, "{best}");
                assert_eq!(line.to_json()[name], 0.5_f64, "{best}");
            }
        }
    }

    #[test]
    fn a_last_loss_that_is_not_finite_is_a_divergence() {
        for keys in ["\"step\"", "\"eval\"", "\"eval\",\"ema\":true", "\"eval\",\"at_end\":true"] {
            let line = |loss: &str| format!("{{\"event\":{keys},\"step\":1,\"loss\":{loss}}}\n");
            for (losses, diverged) in [(["1.5", "null"], true), (["null", "1.5"], false)] {
                assert_eq!(read(&losses.map(line).concat()).diverged(), diverged, "{keys} {losses:?}");
            }
        }
    }

    /// Incomplete lines and lines that are not valid events are counted. Unknown events and keys, which later versions
    /// may write, are ignored.
    #[test]
    fn invalid_lines_are_counted() {
        let log = read(
            "{\"event\":\"weather\",\"sun\":true}\nhello\n{\"event\":\"step\",\"step\":-1}\n\n\
             {\"event\":\"step\",\"step\":7,\"more\":[1]}\n{\"event\":\"step\",\"step\":8",
        );
        assert_eq!((log.steps.len(), log.steps[0].step), (1, 7));
        assert_eq!(log.unread, Unread { lines: 3, first: 2 });
        let long = format!("{}\n{{\"event\":\"step\",\"step\":2}}\n", "x".repeat(3 * LONGEST));
        let log = read(&long);
        assert_eq!((log.steps.len(), log.unread.lines), (1, 1));
    }

    #[test]
    fn layer_events_are_thinned_out_but_keep_the_last() {
        let line = |step: u64| {
            format!(
                "{{\"event\":\"layers\",\"step\":{step},\"tensors\":[{{\"name\":\"a\",\"weight\":{{\"mean\":null}}}}]}}\n"
            )
        };
        let log = read(&(1..=1000).map(line).collect::<String>());
        let steps: Vec<u64> = log.layers.lines().iter().map(|line| line.step).collect();
        assert_eq!((&steps[..3], steps.last(), steps.len()), ([1, 5, 9].as_slice(), Some(&1000), 251));
        assert_eq!(log.unread.lines, 0);
        assert_eq!(read(&line(3)).layers.lines().len(), 1);
    }

    /// A resumed run has not ended, even if its earlier part had.
    #[test]
    fn a_start_after_the_end_clears_the_end() {
        let log = read("{\"event\":\"end\",\"step\":4}\n{\"event\":\"start\",\"step\":4}\n");
        assert!(log.end.is_none() && log.step() == 4);
        assert!(Log::read(Path::new("/no/such/metrics.jsonl")).unwrap().starts.is_empty());
        assert!(Log::read(Path::new("/")).is_err());
    }
}
