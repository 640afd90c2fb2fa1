//! Event files for TensorBoard. `tensorboard --logdir runs` shows each output folder as a run.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use data_tools::Thumbnail;
use loaders::protobuf::Message;
use loaders::record::append_record;
use loaders::safe_create;

use super::event::Spread;
use super::pace::Window;
use super::{Error, EvaluationFile, Event, Layers, Sink, Start};

/// Minimum time between two points of a curve over the steps. TensorBoard itself keeps about a thousand points per
/// curve.
const POINTS_EVERY: Duration = Duration::from_secs(1);

pub struct Tensorboard {
    file: EventFile,
    /// The recipe, which the HParams page shows.
    recipe: toml::Table,
    window: Window,
    written: Option<Instant>,
}

impl Tensorboard {
    /// Creates a sink that writes a new event file in `out` when the run begins. `recipe` is the recipe as TOML.
    pub fn new(out: &Path, recipe: &str) -> Self {
        let recipe = recipe.parse().unwrap_or_default();
        Self { file: EventFile::new(out), recipe, window: Window::default(), written: None }
    }

    /// Starts a session. If the run was resumed from an earlier checkpoint, the folder may have points of later steps,
    /// which TensorBoard then discards.
    fn begin(&mut self, start: &Start) -> io::Result<()> {
        self.file.open()?;
        // session_log (7): status (1) START
        self.file.write(start.step + 1, Message::new().message(7, Message::new().int(1, 1)))?;
        let mut rows = vec![format!("model | {}", start.model), format!("ranks | {}", start.ranks)];
        rows.extend(start.facts.iter().map(|(name, fact)| format!("{name} | {}", fact.replace('|', "\\|"))));
        let table = format!("fact | value\n--- | ---\n{}", rows.join("\n"));
        self.file.summary(start.step, [text("start", &table)])?;
        self.file.summary(start.step, [hparams_start(&self.recipe)])
    }

    /// Writes scalars of one step, without values that are not finite.
    fn scalars(&mut self, step: u64, values: &[(&str, f64)]) -> io::Result<()> {
        let known = values.iter().filter(|(_, value)| value.is_finite());
        self.file.summary(step, known.map(|(tag, value)| scalar(tag, *value)))
    }

    /// Writes the means over the steps since the last point.
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

    /// Writes histograms of parameters and gradients, and the share of encoded gradients that are zero.
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
                // The steps already use the tags train/loss and train/top1.
                let split = match eval.split.as_str() {
                    "train" => "train_scored",
                    split => split,
                };
                let tag = |name: &str| format!("{split}{of}/{name}");
                let [loss, top1, top5] = ["loss", "top1", "top5"].map(tag);
                let several = [
                    ("macro_f1", eval.macro_f1),
                    ("micro_f1", eval.micro_f1),
                    ("map", eval.map),
                    ("rmse", eval.rmse),
                    ("mae", eval.mae),
                    ("r2", eval.r2),
                ];
                self.scalars(eval.step, &[(&loss, eval.loss), (&top1, eval.top1), (&top5, eval.top5)])?;
                let known = several.into_iter().filter_map(|(name, value)| Some((tag(name), value?)));
                known.into_iter().try_for_each(|(name, value)| self.scalars(eval.step, &[(&name, value)]))
            }
            Event::Layers(layers) => self.layers(layers),
            Event::End(end) => {
                self.point()?;
                self.file.summary(end.step, [hparams_end()])
            }
            Event::Exchange(_) | Event::Checkpoint(_) => Ok(()),
        }
    }

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
        let written = self.file.summary(evaluation.step, picture(evaluation));
        written.map_err(|source| self.failed(source))
    }

    fn pictures(&mut self, step: u64, pictures: &[Thumbnail]) -> Result<(), Error> {
        let Some(first) = pictures.first() else { return Ok(()) };
        let files: Vec<&[u8]> = pictures.iter().map(|picture| picture.bytes.as_slice()).collect();
        let value = images("train/images", (first.width, first.height), &files);
        self.file.summary(step, [value]).map_err(|source| self.failed(source))
    }
}

/// If there are at most this many classes, the whole confusion matrix is drawn.
const MOST: usize = 512;
/// If there are more classes, only this number of classes is drawn: those with the most mistakes.
const WORST: usize = 50;

/// Draws the confusion matrix. Returns `None` for multi-label data and numbers, or if drawing fails.
fn picture(evaluation: &EvaluationFile) -> Option<Message> {
    if evaluation.several.is_some() || !evaluation.numbers.is_empty() {
        return None;
    }
    let order = order(evaluation);
    let mut place = vec![None; evaluation.classes.len()];
    order.iter().enumerate().for_each(|(at, class)| place[*class] = Some(at));
    let mut rows = vec![vec![0.0; order.len()]; order.len()];
    for [label, taken, count] in &evaluation.confusion {
        let at = |class: &u64| place.get(*class as usize).copied().flatten();
        let whole = evaluation.images.get(*label as usize).copied().unwrap_or(0);
        if let (Some(row), Some(column), 1..) = (at(label), at(taken), whole) {
            rows[row][column] = *count as f64 / whole as f64;
        }
    }
    let names: Vec<String> = order.iter().map(|class| evaluation.classes[*class].clone()).collect();
    let (width, height, file) = data_tools::matrix(&names, &rows).ok()?;
    Some(images(&format!("{}/confusion", evaluation.split), (width, height), &[&file]))
}

/// Returns the classes to draw, in ascending order.
fn order(evaluation: &EvaluationFile) -> Vec<usize> {
    let count = evaluation.classes.len();
    let mut order: Vec<usize> = (0..count).collect();
    if count > MOST {
        let mut mistakes = vec![0; count];
        for [label, taken, images] in evaluation.confusion.iter().filter(|cell| cell[0] != cell[1]) {
            for class in [label, taken] {
                if let Some(sum) = mistakes.get_mut(*class as usize) {
                    *sum += images;
                }
            }
        }
        order.sort_by_key(|class| std::cmp::Reverse(mistakes[*class]));
        order.truncate(WORST);
        order.sort_unstable();
    }
    order
}

/// An event file for TensorBoard. The file is created by [`EventFile::open`].
struct EventFile {
    out: PathBuf,
    file: Option<(File, PathBuf)>,
}

impl EventFile {
    pub fn new(out: &Path) -> Self {
        Self { out: out.into(), file: None }
    }

    /// Creates a new file and writes its first event, which identifies the format.
    pub fn open(&mut self) -> io::Result<()> {
        let digits = safe_create::random_digits();
        let path = self.out.join(format!("events.out.tfevents.{:010}.trireme.{digits}", now() as u64));
        let file = safe_create::create_new(&path)?;
        self.file = Some((file, path));
        self.write(0, Message::new().text(3, "brain.Event:2"))
    }

    /// Writes one event with wall time (1), step (2) and the fields of `what`.
    pub fn write(&mut self, step: u64, what: Message) -> io::Result<()> {
        let Some((file, _)) = &mut self.file else { return Ok(()) };
        let event = Message::new().double(1, now()).int(2, step as i64).join(what);
        let mut record = Vec::new();
        append_record(&mut record, |out| out.extend_from_slice(event.bytes()));
        file.write_all(&record)
    }

    /// Writes values (1) of a summary (5).
    pub fn summary(&mut self, step: u64, values: impl IntoIterator<Item = Message>) -> io::Result<()> {
        let summary = values.into_iter().fold(Message::new(), |summary, value| summary.message(1, value));
        self.write(step, Message::new().message(5, summary))
    }

    /// Returns the path of the file. Before it is created, returns the path without the unique end of the name.
    pub fn path(&self) -> PathBuf {
        self.file.as_ref().map_or_else(|| self.out.join("events.out.tfevents"), |(_, path)| path.clone())
    }
}

/// Returns seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

// The HParams page of TensorBoard shows the keys of the recipe and how the run ended
// (tensorboard/plugins/hparams/plugin_data.proto).

const SUCCESS: i64 = 1;

/// Returns the session start with the keys and values of a recipe.
fn hparams_start(recipe: &toml::Table) -> Message {
    let info = entries("", recipe).into_iter().fold(Message::new(), |info, entry| info.message(1, entry));
    value("_hparams_/session_start_info", Message::new().message(3, info.double(5, now())))
}

/// Returns the session end of a successful run.
fn hparams_end() -> Message {
    let info = Message::new().int(1, SUCCESS).double(2, now());
    value("_hparams_/session_end_info", Message::new().message(4, info))
}

fn value(tag: &str, content: Message) -> Message {
    let plugin = Message::new().text(1, "hparams").message(2, content);
    // An empty tensor.
    let shape = Message::new().message(2, Message::new().int(1, 0));
    of_plugin(tag, plugin, TENSOR, Message::new().int(1, FLOAT).message(2, shape))
}

/// Returns the entries of a map: key 1 and value 2. A value is a `google.protobuf.Value` with a number 2, a string 3 or
/// a bool 4. Lists are converted to strings.
fn entries(prefix: &str, table: &toml::Table) -> Vec<Message> {
    let mut all = Vec::new();
    for (key, value) in table {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        let value = match value {
            toml::Value::Table(inner) => {
                all.extend(entries(&path, inner));
                continue;
            }
            toml::Value::Boolean(truth) => Message::new().int(4, i64::from(*truth)),
            toml::Value::Integer(number) => Message::new().double(2, *number as f64),
            toml::Value::Float(number) => Message::new().double(2, *number),
            toml::Value::String(text) => Message::new().text(3, text),
            other => Message::new().text(3, &other.to_string()),
        };
        all.push(Message::new().text(1, &path).message(2, value));
    }
    all
}

/// `DT_FLOAT` and `DT_STRING` of tensorflow/core/framework/types.proto.
const FLOAT: i64 = 1;
const STRING: i64 = 7;

/// `DATA_CLASS_TENSOR` and `DATA_CLASS_BLOB_SEQUENCE`.
const TENSOR: i64 = 2;
const BLOBS: i64 = 3;

fn scalar(tag: &str, value: f64) -> Message {
    Message::new().text(1, tag).float(2, value as f32)
}

/// Returns a value of a plugin (metadata 9: plugin_data 1, data_class 4) with a tensor (8).
fn of_plugin(tag: &str, plugin: Message, class: i64, tensor: Message) -> Message {
    let metadata = Message::new().message(1, plugin).int(4, class);
    Message::new().text(1, tag).message(9, metadata).message(8, tensor)
}

/// Returns a value with a Markdown text.
fn text(tag: &str, text: &str) -> Message {
    let tensor = Message::new().int(1, STRING).message(2, Message::new()).text(8, text);
    of_plugin(tag, Message::new().text(1, "text"), TENSOR, tensor)
}

/// Returns a value with encoded picture files, all of this width and height.
fn images(tag: &str, (width, height): (u32, u32), files: &[&[u8]]) -> Message {
    let dim = Message::new().int(1, 2 + files.len() as i64);
    let tensor = Message::new().int(1, STRING).message(2, Message::new().message(2, dim));
    let tensor = tensor.text(8, &width.to_string()).text(8, &height.to_string());
    let tensor = files.iter().fold(tensor, |tensor, file| tensor.raw(8, file));
    of_plugin(tag, Message::new().text(1, "images"), BLOBS, tensor)
}

/// Returns a `HistogramProto` (5) with minimum 1, maximum 2, count 3, sum 4, sum of squares 5, upper edges 6 and counts
/// 7.
fn histogram(tag: &str, elements: u64, spread: &Spread) -> Message {
    let count = elements as f64;
    let squares = count * (spread.deviation.powi(2) + spread.mean.powi(2));
    let counts: Vec<f64> = spread.bins.iter().map(|count| *count as f64).collect();
    let histogram = Message::new()
        .double(1, spread.least)
        .double(2, spread.most)
        .double(3, count)
        .double(4, count * spread.mean)
        .double(5, squares)
        .doubles(6, &spread.edges())
        .doubles(7, &counts);
    Message::new().text(1, tag).message(5, histogram)
}

#[cfg(test)]
mod tests {
    use super::super::{Epoch, Eval, Step};
    use super::*;
    use loaders::record::read_record;

    /// Returns the records of the only event file in a folder, and removes the folder.
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
    fn events_are_written_as_tensorboard_records() {
        let folder = std::env::temp_dir().join(format!("trireme-tensorboard-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut sink = Tensorboard::new(&folder, "epochs = 3");
        sink.event(&Start { step: 40, model: "lenet".into(), ..Start::default() }.into()).unwrap();
        for step in [41, 42] {
            sink.event(&Step { step, loss: 2.5, lr: f64::NAN, ..Step::default() }.into()).unwrap();
        }
        sink.event(&Epoch { step: 42, ..Epoch::default() }.into()).unwrap();
        for split in ["test", "train"] {
            sink.event(&Eval { step: 42, split: split.into(), top1: 0.5, ..Eval::default() }.into()).unwrap();
        }
        let all = payloads(&folder);
        // The events are: version, session, facts, recipe, the points of steps 41 and 42, epoch, two scores.
        assert_eq!(all.len(), 9);
        assert!(all.iter().all(|event| event[0] == 0x09), "each begins with the wall time");
        assert!(all[0].ends_with(b"\x1a\x0dbrain.Event:2"));
        assert!(all[1].ends_with(&[0x10, 41, 0x3a, 2, 0x08, 1]), "{:?}", all[1]);
        // 2: loss 2.5 as f32 after its tag.
        let loss = [b"\x0a\x11\x0a\x0atrain/loss\x15".as_slice(), &2.5f32.to_le_bytes()].concat();
        assert!(all[4].windows(loss.len()).any(|window| window == loss), "{:?}", all[4]);
        assert!(!all[4].windows(8).any(|window| window == b"train/lr"), "NaN is not written");
        assert!(all[7].windows(9).any(|window| window == b"test/top1"));
        assert!(all[8].windows(17).any(|window| window == b"train_scored/top1"));
        assert!(!all[8].windows(10).any(|window| window == b"train/top1"), "this is the curve of the steps");
    }

    #[test]
    fn only_the_most_confused_of_many_classes_are_shown() {
        let confusion = (0..600).map(|class| [class, (class + 1) % 600, if class == 300 { 9 } else { 1 }]).collect();
        let classes = (0..600).map(|class| class.to_string()).collect();
        let evaluation = EvaluationFile { classes, confusion, images: vec![9; 600], ..EvaluationFile::default() };
        let shown = order(&evaluation);
        assert!(shown.len() == 50 && shown.contains(&300) && shown.contains(&301), "{shown:?}");
        assert!(picture(&evaluation).unwrap().bytes().starts_with(b"\x0a\x0a/confusion"));
        assert_eq!(order(&EvaluationFile { classes: vec![String::new(); 3], ..evaluation }), [0, 1, 2]);
    }

    #[test]
    fn hyperparameters_are_written_with_their_types() {
        let table = "epochs = 3\nflag = false\n[schedule]\nbase_lr = 0.5\nmilestones = [1, 2]".parse().unwrap();
        let bytes: Vec<Vec<u8>> = entries("", &table).iter().map(|entry| entry.bytes().to_vec()).collect();
        let number = |key: &str, value: f64| {
            Message::new().text(1, key).message(2, Message::new().double(2, value)).bytes().to_vec()
        };
        assert_eq!(bytes.len(), 4);
        assert!(bytes.contains(&number("epochs", 3.0)) && bytes.contains(&number("schedule.base_lr", 0.5)));
        assert!(bytes.contains(&b"\x0a\x04flag\x12\x02\x20\x00".to_vec()), "{bytes:?}");
        assert!(bytes.iter().any(|entry| entry.ends_with(b"[1, 2]")));
    }
}
