//! Exports a data set as WebDataset tar archives, one per shard. Each sample becomes `KEY.jpg` or `KEY.png`, `KEY.cls`
//! with its label counted from 0, and `KEY.json` with its class and file name. If images may have multiple labels,
//! there is no `KEY.cls`, and `KEY.json` lists the labels. Image files are copied unchanged. 8-bit grey and RGB images
//! become PNGs. All other images become `KEY.npy` with the shape (H, W, C).

use crate::convert::staging::Staging;
use crate::error::Error;
use crate::image::false_colours::is_photo;
use crate::image::recode::png;
use crate::progress::{Counter, Progress};
use crate::{npy, pool, text};
use loaders::replace::replace;
use loaders::{Dataset, Example, Format, LabelKind, Split, decode, safe_create};
use serde_json::json;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tar::{Builder, Header};

/// What [`export_webdataset`] has written.
#[derive(Debug, Clone)]
pub struct ExportSummary {
    pub out: PathBuf,
    pub archives: u64,
    pub samples: u64,
    /// Total size of the archives in bytes.
    pub bytes: u64,
    pub elapsed: Duration,
}

/// A shard to export. `first` is the number of its first sample in the split.
struct Task {
    split: usize,
    shard: usize,
    first: u64,
    count: u64,
}

/// Writes the data set in `dir` to `out` as WebDataset archives `SPLIT-000000.tar` and so on, and `classes.txt` with
/// a line per class. If labels are numbers, it writes `targets.txt` with the targets' names instead. The path `out`
/// must not exist or must be an empty folder. `jobs` is the number of threads (0 means all cores). The output does not
/// depend on it.
///
/// # Errors
///
/// Returns an error if the data set cannot be read, a record is damaged, `out` is not empty, or the disk is full.
pub fn export_webdataset(dir: &Path, out: &Path, jobs: usize, progress: bool) -> Result<ExportSummary, Error> {
    let started = Instant::now();
    let dataset = Dataset::open(dir)?;
    let staging = Staging::new(out)?;
    let names = dataset.manifest.splits.keys();
    let splits = names.map(|name| dataset.split(name)).collect::<Result<Vec<Split>, _>>()?;
    let tasks = tasks(&splits);
    let samples = tasks.iter().map(|task| task.count).sum();
    let progress = Progress::new("exporting", Some(samples), progress);
    let sizes = pool::run(tasks.len(), jobs, |i| {
        archive(&splits[tasks[i].split], &tasks[i], staging.dir(), &mut progress.counter())
    })?;
    drop(progress);
    let outputs = dataset.manifest.outputs();
    let names: String = outputs.iter().map(|name| format!("{}\n", base::text::printable(name))).collect();
    let file = if dataset.manifest.targets.is_empty() { "classes.txt" } else { "targets.txt" };
    replace(&staging.dir().join(file), names.as_bytes())?;
    staging.publish()?;
    let (out, archives, bytes) = (out.to_path_buf(), tasks.len() as u64, sizes.iter().sum());
    Ok(ExportSummary { out, archives, samples, bytes, elapsed: started.elapsed() })
}

fn tasks(splits: &[Split]) -> Vec<Task> {
    let mut tasks = Vec::new();
    for (at, split) in splits.iter().enumerate() {
        let mut first = 0;
        for (shard, entry) in split.shards().iter().enumerate() {
            tasks.push(Task { split: at, shard, first, count: entry.count });
            first += entry.count;
        }
    }
    tasks
}

/// Writes one archive and returns its size in bytes.
fn archive(split: &Split, task: &Task, dir: &Path, counter: &mut Counter<'_>) -> Result<u64, Error> {
    let path = dir.join(format!("{}-{:06}.tar", split.name(), task.shard));
    let failed = |e: io::Error| Error::write(&path, split.shards().iter().map(|shard| shard.bytes).sum::<u64>(), e);
    let file = safe_create::create_new(&path).map_err(|e| Error::io("create", &path, e))?;
    let mut archive = Builder::new(BufWriter::with_capacity(1 << 20, file));
    let (mut copy, mut made) = (Vec::new(), Vec::new());
    for id in task.first..task.first + task.count {
        let (example, label) = split.record(id, &mut copy)?;
        let (ending, image) = match example.format {
            Format::Jpeg => ("jpg", example.encoded),
            Format::Png => ("png", example.encoded),
            Format::Raw => {
                let spec = decode::spec(&example).map_err(|fault| split.fault(id, fault))?;
                let is_photo = is_photo(&example);
                if is_photo {
                    let failed = |what| Error::input(Path::new(split.name()), format!("sample {id} {what}"));
                    png(example.encoded, spec.width, spec.height, spec.channels == 1, &mut made).map_err(failed)?;
                } else {
                    made = npy::image_file(example.dtype, spec, example.encoded);
                }
                (if is_photo { "png" } else { "npy" }, made.as_slice())
            }
        };
        let (about, label) = (about(split, id, &example, label)?, label.to_string().into_bytes());
        let label = (split.label_kind() == LabelKind::OneClass).then_some(("cls", label.as_slice()));
        for (ending, bytes) in [(ending, image)].into_iter().chain(label).chain([("json", about.as_bytes())]) {
            add(&mut archive, &format!("{id:09}.{ending}"), bytes).map_err(failed)?;
        }
        counter.tick();
    }
    let file: File =
        archive.into_inner().and_then(|buffer| buffer.into_inner().map_err(|e| e.into_error())).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    Ok(file.metadata().map_err(failed)?.len())
}

/// Returns the content of `KEY.json`.
fn about(split: &Split, id: u64, example: &Example<'_>, label: u32) -> Result<String, Error> {
    let name = |class: u32| &split.class_names()[class as usize];
    if split.label_kind() == LabelKind::Numbers {
        let targets = split.targets_of(example).map_err(|fault| split.fault(id, fault))?;
        let targets: serde_json::Map<String, serde_json::Value> =
            split.class_names().iter().cloned().zip(targets.into_iter().map(serde_json::Value::from)).collect();
        return Ok(json!({"targets": targets, "filename": example.filename}).to_string());
    }
    if !split.multi_label() {
        return Ok(json!({"label": label, "class_name": name(label), "filename": example.filename}).to_string());
    }
    let classes = split.classes_of(example).map_err(|fault| split.fault(id, fault))?;
    let names: Vec<&String> = classes.iter().map(|class| name(*class)).collect();
    Ok(json!({"labels": classes, "class_names": names, "filename": example.filename}).to_string())
}

/// Adds a member without time and owner, so that equal data sets give identical archives.
fn add(archive: &mut Builder<impl Write>, name: &str, bytes: &[u8]) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    header.set_mtime(0);
    archive.append_data(&mut header, name, bytes)
}

impl ExportSummary {
    pub fn to_json(&self) -> serde_json::Value {
        json!({
            "out": self.out.display().to_string(),
            "archives": self.archives,
            "samples": self.samples,
            "bytes": self.bytes,
            "seconds": self.elapsed.as_secs_f64(),
        })
    }
}

impl fmt::Display for ExportSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} in {}, {} in {:.2} s",
            text::path(&self.out),
            text::plural(self.samples, "sample"),
            text::plural(self.archives, "archive"),
            text::bytes(self.bytes),
            self.elapsed.as_secs_f64()
        )
    }
}
