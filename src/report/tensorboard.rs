//! Event files of TensorBoard, beside metrics.jsonl: `tensorboard --logdir runs` shows each OUT as a run.
//!
//! A file is TFRecords of `tensorflow.Event` (tensorflow/core/util/event.proto, tensorflow/core/framework/summary.proto), of which
//! scalars, texts and the mark of a new session are written.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use loaders::record::RecordWriter;
use loaders::safe_create;

use super::message::Message;
use super::window::Window;
use super::{Error, Event, Sink, Start};

/// Time between two points of the curves over the steps: TensorBoard itself keeps about a thousand of each.
const POINTS_EVERY: Duration = Duration::from_secs(1);

/// `DT_STRING` of tensorflow/core/framework/types.proto.
const STRING: u64 = 7;

/// Writes an event file.
pub struct Tensorboard {
    out: PathBuf,
    /// Open from the start of the run on.
    file: Option<(RecordWriter<File>, PathBuf)>,
    window: Window,
    written: Option<Instant>,
}

impl Tensorboard {
    /// A sink that makes a new event file in `out` when the run begins.
    pub fn new(out: &Path) -> Self {
        Self { out: out.into(), file: None, window: Window::default(), written: None }
    }

    fn open(&mut self) -> std::io::Result<()> {
        let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let digits = safe_create::random_digits();
        let path = self.out.join(format!("events.out.tfevents.{seconds:010}.trireme.{digits}"));
        let file = safe_create::create_new(&path)?;
        self.file = Some((RecordWriter::new(file), path));
        self.write(0, Message::new().text(3, "brain.Event:2"))
    }

    /// One event: wall time (1), step (2) and what happened.
    fn write(&mut self, step: u64, what: Message) -> std::io::Result<()> {
        let Some((file, _)) = &mut self.file else { return Ok(()) };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let event = Message::new().double(1, now).number(2, step).append(what);
        file.write(event.bytes()).map(drop)
    }

    /// The start: what was there of later steps counts no more, as after a resume from an earlier checkpoint.
    fn begin(&mut self, start: &Start) -> std::io::Result<()> {
        self.open()?;
        // session_log (7): status (1) START
        self.write(start.step + 1, Message::new().message(7, Message::new().number(1, 1)))?;
        let mut rows = vec![format!("model | {}", start.model), format!("ranks | {}", start.ranks)];
        rows.extend(start.facts.iter().map(|(name, fact)| format!("{name} | {}", fact.replace('|', "\\|"))));
        let table = format!("fact | value\n--- | ---\n{}", rows.join("\n"));
        let metadata = Message::new().message(1, Message::new().text(1, "text"));
        let tensor = Message::new().number(1, STRING).message(2, Message::new()).text(8, &table);
        let value = Message::new().text(1, "start").message(9, metadata).message(8, tensor);
        self.write(start.step, Message::new().message(5, Message::new().message(1, value)))
    }

    /// Scalars of one step. Those that are no numbers are left out.
    fn scalars(&mut self, step: u64, values: &[(&str, f64)]) -> std::io::Result<()> {
        let known = values.iter().filter(|(_, value)| value.is_finite());
        let summary = known.fold(Message::new(), |summary, (tag, value)| {
            summary.message(1, Message::new().text(1, tag).float(2, *value as f32))
        });
        self.write(step, Message::new().message(5, summary))
    }

    /// The means over the steps since the last point.
    fn point(&mut self) -> std::io::Result<()> {
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

    fn take(&mut self, event: &Event) -> std::io::Result<()> {
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
                let tag = |name: &str| format!("{}/{name}", eval.split);
                let [loss, top1, top5] = ["loss", "top1", "top5"].map(tag);
                self.scalars(eval.step, &[(&loss, eval.loss), (&top1, eval.top1), (&top5, eval.top5)])
            }
            Event::End(_) => self.point(),
            Event::Exchange(_) | Event::Checkpoint(_) => Ok(()),
        }
    }
}

impl Sink for Tensorboard {
    fn event(&mut self, event: &Event) -> Result<(), Error> {
        self.take(event).map_err(|source| {
            let path =
                self.file.as_ref().map_or_else(|| self.out.join("events.out.tfevents"), |(_, path)| path.clone());
            Error { path, source }
        })
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
        let mut sink = Tensorboard::new(&folder);
        sink.event(&Start { step: 40, model: "lenet".into(), ..Start::default() }.into()).unwrap();
        for step in [41, 42] {
            sink.event(&Step { step, loss: 2.5, lr: f64::NAN, ..Step::default() }.into()).unwrap();
        }
        sink.event(&Epoch { step: 42, ..Epoch::default() }.into()).unwrap();
        sink.event(&Eval { step: 42, split: "test".into(), top1: 0.5, ..Eval::default() }.into()).unwrap();
        let all = payloads(&folder);
        // version, session, facts, the point of step 41, that of step 42, epoch, score
        assert_eq!(all.len(), 7);
        assert!(all.iter().all(|event| event[0] == 0x09), "each begins with its wall time");
        assert!(all[0].ends_with(b"\x1a\x0dbrain.Event:2"));
        assert!(all[1].ends_with(&[0x10, 41, 0x3a, 2, 0x08, 1]), "{:?}", all[1]);
        // 2: loss 2.5 as f32 behind its tag
        let loss = [b"\x0a\x11\x0a\x0atrain/loss\x15".as_slice(), &2.5f32.to_le_bytes()].concat();
        assert!(all[3].windows(loss.len()).any(|window| window == loss), "{:?}", all[3]);
        assert!(!all[3].windows(8).any(|window| window == b"train/lr"), "no number, no point");
        assert!(all[6].windows(9).any(|window| window == b"test/top1"));
    }
}
