//! The results of a training run without faults: every step, every score, the content of every checkpoint, and the
//! model. Compares the output folder of another run with them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use formats::checkpoint::{LayerWeights, StateFile, Tensor};
use loaders::crc32c::crc32c_append;
use serde_json::{Value, json};

use support::program::{events, files};

#[derive(Debug, Default)]
pub struct Reference {
    /// The log lines of steps and scores, by event and step.
    lines: BTreeMap<(String, u64), String>,
    /// Digests of the checkpoints, by step.
    states: BTreeMap<u64, u32>,
    model: Vec<u8>,
    digest: Value,
}

/// How many results were compared and found equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Equal {
    pub lines: u64,
    pub checkpoints: u64,
    /// Number of checkpoints at steps where the reference has no checkpoint.
    pub others: u64,
}

impl Reference {
    /// Reads the output folder of a run.
    pub fn read(out: &str) -> Self {
        let states = checkpoints(out).into_iter().map(|path| state(&path)).collect();
        let model = fs::read(Path::new(out).join("model.h5")).expect("a model");
        let digest = events(out, "end").last().expect("an end")["digest"].clone();
        Self { lines: lines(out).collect(), states, model, digest }
    }

    pub fn size(&self) -> String {
        let of = |event: &str| self.lines.keys().filter(|(name, _)| name.starts_with(event)).count();
        format!("{} steps, {} scores, {} checkpoints", of("step"), of("eval"), self.states.len())
    }

    /// Compares the log and the checkpoints that a run has written so far. Counts only checkpoints written since `since`.
    pub fn check(&self, out: &str, since: SystemTime) -> Result<Equal, String> {
        let mut equal = Equal::default();
        for ((event, step), line) in lines(out) {
            equal.lines += u64::from(self.line(&event, step, &line)?);
        }
        for path in checkpoints(out) {
            let (step, found) = state(&path);
            match self.states.get(&step) {
                Some(expected) if *expected != found => {
                    return Err(format!("{}: digest {found:08x}, expected {expected:08x}", path.display()));
                }
                _ if fs::metadata(&path).and_then(|about| about.modified()).is_ok_and(|time| time < since) => {}
                Some(_) => equal.checkpoints += 1,
                None => equal.others += 1,
            }
        }
        Ok(equal)
    }

    /// Compares a line of a step or a score. Returns false if the reference has no such line.
    pub fn line(&self, event: &str, step: u64, line: &str) -> Result<bool, String> {
        match self.lines.get(&(event.to_string(), step)) {
            Some(expected) if expected != line => Err(format!("{event} of step {step}: {line}, expected {expected}")),
            known => Ok(known.is_some()),
        }
    }

    /// Compares the digest and the model at the end of a run, and checks that no temporary files remain.
    pub fn check_end(&self, out: &str) -> Result<(), String> {
        let digest = events(out, "end").last().ok_or("no end in the log")?["digest"].clone();
        let model = fs::read(Path::new(out).join("model.h5")).map_err(|e| format!("model.h5: {e}"))?;
        if digest != self.digest {
            return Err(format!("digest {digest}, expected {}", self.digest));
        }
        if model != self.model {
            return Err("model.h5 differs from the reference".into());
        }
        let left: Vec<String> =
            files(out).into_iter().filter(|file| file.contains("tmp") || file.contains("aside")).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("left behind: {left:?}")) }
    }
}

/// Reads the lines of steps and scores from the log in the output folder.
fn lines(out: &str) -> impl Iterator<Item = ((String, u64), String)> {
    let all = ["step", "eval"].into_iter().flat_map(|event| events(out, event));
    all.filter_map(|line| content(&line)).collect::<Vec<_>>().into_iter()
}

/// Returns the event, the step and the computed values in the line of a step or a score. Returns `None` for other lines.
pub fn content(line: &Value) -> Option<((String, u64), String)> {
    let event = line["event"].as_str()?;
    let kept = match event {
        "step" => json!([line["epoch"], line["loss"], line["top1"], line["lr"], line["samples"]]),
        "eval" => json!([line["epoch"], line["split"], line["loss"], line["top1"], line["top5"], line["count"]]),
        _ => return None,
    };
    // with `ema.decay` a step has two scores, and they must not replace each other in the reference
    let event = if line["ema"] == true { "eval of averages" } else { event };
    Some(((event.to_string(), line["step"].as_u64()?), kept.to_string()))
}

fn checkpoints(out: &str) -> Vec<PathBuf> {
    let found = files(out).into_iter().filter(|file| file.starts_with("checkpoints/step-") && file.ends_with(".h5"));
    found.map(|file| Path::new(out).join(file)).collect()
}

/// Returns a checkpoint's step and a digest of all its tensors.
///
/// The digest excludes the progress of the epoch and the epoch's score. A checkpoint of the last step of an epoch has
/// no score if a stop prevented the evaluation.
fn state(path: &Path) -> (u64, u32) {
    let file = StateFile::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let layers = |crc: u32, layers: &[LayerWeights]| {
        layers.iter().fold(crc, |crc, layer| digest(crc32c_append(crc, layer.name.as_bytes()), &layer.tensors))
    };
    let mut crc = layers(layers(0, &file.model.layers), &file.model.ema);
    crc = file.slots.iter().fold(crc, |crc, (name, tensors)| digest(crc32c_append(crc, name.as_bytes()), tensors));
    (file.progress.step, file.residuals.iter().fold(crc, |crc, tensors| digest(crc, tensors)))
}

fn digest(crc: u32, tensors: &[Tensor]) -> u32 {
    tensors.iter().fold(crc, |crc, (name, shape, values)| {
        let crc = crc32c_append(crc, format!("{name}{shape:?}").as_bytes());
        values.iter().fold(crc, |crc, value| crc32c_append(crc, &value.to_le_bytes()))
    })
}

#[test]
fn scores_of_weights_and_of_averages_are_different_lines() {
    let key = |ema: bool| content(&json!({"event": "eval", "step": 5, "top1": 0.5, "ema": ema})).expect("a score").0;
    assert_ne!(key(false), key(true));
}
