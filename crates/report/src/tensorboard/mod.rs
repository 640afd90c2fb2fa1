//! Event files of TensorBoard, beside metrics.jsonl: `tensorboard --logdir runs` shows each OUT as a run.

mod confusion;
mod event_file;
mod hparams;
mod value;

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use data_tools::Thumbnail;

use self::event_file::EventFile;
use self::value::{histogram, images, scalar, text};
use super::message::Message;
use super::window::Window;
use super::{Error, EvaluationFile, Event, Layers, Sink, Start};

/// Time between two points of the curves over the steps: TensorBoard itself keeps about a thousand of each.
const POINTS_EVERY: Duration = Duration::from_secs(1);

/// Writes an event file.
pub struct Tensorboard {
    file: EventFile,
    /// Shown as hyperparameters.
    recipe: toml::Table,
    window: Window,
    written: Option<Instant>,
}

impl Tensorboard {
    /// A sink that makes a new event file in `out` when the run begins, for a run of this recipe (TOML).
    pub fn new(out: &Path, recipe: &str) -> Self {
        let recipe = recipe.parse().unwrap_or_default();
        Self { file: EventFile::new(out), recipe, window: Window::default(), written: None }
    }

    /// The start: what was there of later steps counts no more, as after a resume from an earlier checkpoint.
    fn begin(&mut self, start: &Start) -> io::Result<()> {
        self.file.open()?;
        // session_log (7): status (1) START
        self.file.write(start.step + 1, Message::new().message(7, Message::new().number(1, 1)))?;
        let mut rows = vec![format!("model | {}", start.model), format!("ranks | {}", start.ranks)];
        rows.extend(start.facts.iter().map(|(name, fact)| format!("{name} | {}", fact.replace('|', "\\|"))));
        let table = format!("fact | value\n--- | ---\n{}", rows.join("\n"));
        self.file.summary(start.step, [text("start", &table)])?;
        self.file.summary(start.step, [hparams::start(&self.recipe)])
    }

    /// Scalars of one step. Those that are no numbers are left out.
    fn scalars(&mut self, step: u64, values: &[(&str, f64)]) -> io::Result<()> {
        let known = values.iter().filter(|(_, value)| value.is_finite());
        self.file.summary(step, known.map(|(tag, value)| scalar(tag, *value)))
    }

    /// The means over the steps since the last point.
    fn point(&mut self) -> io::Result<()> {
        let Some(mean) = self.window.take() else { return Ok(()) };
        self.written = Some(Instant::now());
        self.scalars(
            mean.step,
            &[
                ("train/loss", mean.loss),
                ("train/top1", mean.top1),
                ("train/lr", mean.lr),
                ("train/grad_norm", mean.grad_norm.unwrap_or(f64::NAN)),
                ("speed/img_per_s", mean.img_per_s),
                ("speed/step_ms", mean.step_ms),
                ("wait/data_ms", mean.data_wait_ms),
                ("wait/ranks_ms", mean.comm_wait_ms),
            ],
        )
    }

    /// Distributions of the parameters and of their gradients, and the share of codes that are 0.
    fn layers(&mut self, layers: &Layers) -> io::Result<()> {
        let mut values = Vec::new();
        for tensor in &layers.tensors {
            let all = [("weight", &tensor.weight), ("gradient", &tensor.gradient)];
            let known = all.into_iter().filter(|(_, spread)| !spread.bins.is_empty());
            values
                .extend(known.map(|(of, spread)| histogram(&format!("{of}/{}", tensor.name), tensor.elements, spread)));
            values.extend(tensor.zero_codes.map(|share| scalar(&format!("zero_codes/{}", tensor.name), share)));
        }
        self.file.summary(layers.step, values)
    }

    fn take(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::Start(start) => self.begin(start),
            Event::Step(step) => {
                self.window.add(step);
                let due = self.written.is_none_or(|written| written.elapsed() >= POINTS_EVERY);
                if due { self.point() } else { Ok(()) }
            }
            Event::Epoch(epoch) => {
                self.point()?;
                self.scalars(epoch.step, &[("epoch/loss", epoch.loss), ("epoch/top1", epoch.top1)])
            }
            Event::Eval(eval) => {
                let of = if eval.ema { "_ema" } else { "" };
                let tag = |name: &str| format!("{}{of}/{name}", eval.split);
                let [loss, top1, top5] = ["loss", "top1", "top5"].map(tag);
                let several = [("macro_f1", eval.macro_f1), ("micro_f1", eval.micro_f1), ("map", eval.map)];
                self.scalars(eval.step, &[(&loss, eval.loss), (&top1, eval.top1), (&top5, eval.top5)])?;
                let known = several.into_iter().filter_map(|(name, value)| Some((tag(name), value?)));
                known.into_iter().try_for_each(|(name, value)| self.scalars(eval.step, &[(&name, value)]))
            }
            Event::Layers(layers) => self.layers(layers),
            Event::End(end) => {
                self.point()?;
                self.file.summary(end.step, [hparams::end()])
            }
            Event::Exchange(_) | Event::Checkpoint(_) => Ok(()),
        }
    }
}

impl Tensorboard {
    fn failed(&self, source: io::Error) -> Error {
        Error { path: self.file.path(), source }
    }
}

impl Sink for Tensorboard {
    fn is_optional(&self) -> bool {
        true
    }

    fn event(&mut self, event: &Event) -> Result<(), Error> {
        self.take(event).map_err(|source| self.failed(source))
    }

    fn evaluation(&mut self, evaluation: &EvaluationFile) -> Result<(), Error> {
        let written = self.file.summary(evaluation.step, confusion::picture(evaluation));
        written.map_err(|source| self.failed(source))
    }

    fn pictures(&mut self, step: u64, pictures: &[Thumbnail]) -> Result<(), Error> {
        let Some(first) = pictures.first() else { return Ok(()) };
        let files: Vec<&[u8]> = pictures.iter().map(|picture| picture.bytes.as_slice()).collect();
        let value = images("train/images", (first.width, first.height), &files);
        self.file.summary(step, [value]).map_err(|source| self.failed(source))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Epoch, Eval, Step};
    use super::*;
    use loaders::record::read_record;

    /// Payloads of the records of the one event file in a folder, which is removed.
    fn payloads(folder: &Path) -> Vec<Vec<u8>> {
        let entry = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap();
        assert!(entry.file_name().to_string_lossy().starts_with("events.out.tfevents."));
        let bytes = std::fs::read(entry.path()).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        let (mut all, mut at) = (Vec::new(), 0);
        while at < bytes.len() as u64 {
            let (payload, next) = read_record(&bytes, at).unwrap();
            all.push(payload.to_vec());
            at = next;
        }
        all
    }

    #[test]
    fn events_become_records() {
        let folder = std::env::temp_dir().join(format!("trireme-tensorboard-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut sink = Tensorboard::new(&folder, "epochs = 3");
        sink.event(&Start { step: 40, model: "lenet".into(), ..Start::default() }.into()).unwrap();
        for step in [41, 42] {
            sink.event(&Step { step, loss: 2.5, lr: f64::NAN, ..Step::default() }.into()).unwrap();
        }
        sink.event(&Epoch { step: 42, ..Epoch::default() }.into()).unwrap();
        sink.event(&Eval { step: 42, split: "test".into(), top1: 0.5, ..Eval::default() }.into()).unwrap();
        let all = payloads(&folder);
        // version, session, facts, recipe, the point of step 41, that of step 42, epoch, score
        assert_eq!(all.len(), 8);
        assert!(all.iter().all(|event| event[0] == 0x09), "each begins with its wall time");
        assert!(all[0].ends_with(b"\x1a\x0dbrain.Event:2"));
        assert!(all[1].ends_with(&[0x10, 41, 0x3a, 2, 0x08, 1]), "{:?}", all[1]);
        // 2: loss 2.5 as f32 behind its tag
        let loss = [b"\x0a\x11\x0a\x0atrain/loss\x15".as_slice(), &2.5f32.to_le_bytes()].concat();
        assert!(all[4].windows(loss.len()).any(|window| window == loss), "{:?}", all[4]);
        assert!(!all[4].windows(8).any(|window| window == b"train/lr"), "no number, no point");
        assert!(all[7].windows(9).any(|window| window == b"test/top1"));
    }
}
