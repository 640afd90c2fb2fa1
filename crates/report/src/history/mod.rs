//! Reads the output folder of a run (log, recipe, state), finds runs, and compares two of them.

mod eval_line;
mod log;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use loaders::why;

use super::evaluation_file::{self, EvaluationFile};

pub use eval_line::EvalLine;
pub use log::{
    EndLine, EpochLine, ExchangeLine, Layers, LayersLine, Log, SpreadLine, StartLine, StepLine, TensorLine, Unread,
};

/// Name of the resolved recipe in the folder of a run.
const RECIPE: &str = "recipe.toml";
/// Name of the log in the folder of a run.
const LOG: &str = "metrics.jsonl";
/// Name of the lock file in the folder of a run. The process empties the file at a normal end.
pub(super) const LOCK: &str = ".trireme-lock";
/// Rank 0's status file in the folder of a run. Rank 0 overwrites it every few seconds, also during an evaluation, and removes it
/// at a successful end.
const HEARTBEAT: &str = ".ranks/0";
/// If the log or the heartbeat was written within this time, the run may still be running.
const FRESH: Duration = Duration::from_secs(120);
/// Maximum depth of the search for runs.
const DEPTH: usize = 4;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder is not the output folder of a run.
    #[error("{} is not the output folder of a run: it has no metrics.jsonl", .0.display())]
    NoRun(PathBuf),
    /// The operating system cannot read a file or folder.
    #[error("cannot read {}: {}", path.display(), why(path, source))]
    Read { path: PathBuf, source: io::Error },
}

/// The contents of a run's output folder.
#[derive(Clone, Debug)]
pub struct Run {
    pub folder: PathBuf,
    pub log: Log,
    /// Keys of the resolved recipe, such as `optimizer.momentum`, with their values as TOML. Empty if the recipe cannot
    /// be read.
    pub recipe: BTreeMap<String, String>,
    /// When the log was last written.
    pub changed: SystemTime,
    /// When rank 0 last wrote its heartbeat. `None` if there is no such file.
    pub heartbeat: Option<SystemTime>,
    /// True if the process that wrote the log has released its lock on the folder.
    pub released: bool,
    /// Details of the last evaluation, if they were stored.
    pub evaluation: Option<EvaluationFile>,
    /// One message for each file that exists but cannot be used.
    pub unusable: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The run reached its end with a finite loss.
    Done,
    /// The log has no end event, the process has not released the folder, and it wrote the log or its heartbeat in the last two minutes.
    Running,
    /// The loss became NaN or infinite.
    Diverged,
    /// The run ended before its last step for another reason.
    Stopped,
}

impl State {
    /// Returns the name of the state for tables and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Running => "running",
            Self::Diverged => "diverged",
            Self::Stopped => "stopped",
        }
    }
}

impl Run {
    /// Reads the run in `folder`.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder does not exist, has no metrics.jsonl, or cannot be read.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(LOG);
        // Read the lock before the log: a process that is ending still writes to the log until it releases the lock.
        let released = fs::metadata(folder.join(LOCK)).is_ok_and(|meta| meta.is_file() && meta.len() == 0);
        let found = fs::metadata(&path).and_then(|meta| meta.modified());
        let changed = found.map_err(|e| match (e.kind(), fs::metadata(folder)) {
            (io::ErrorKind::NotFound, Err(source)) => Error::Read { path: folder.into(), source },
            (io::ErrorKind::NotFound | io::ErrorKind::NotADirectory, _) => Error::NoRun(folder.into()),
            _ => Error::Read { path: path.clone(), source: e },
        })?;
        let heartbeat = fs::metadata(folder.join(HEARTBEAT)).and_then(|meta| meta.modified()).ok();
        let log = Log::read(&path).map_err(|source| Error::Read { path, source })?;
        let mut unusable = Vec::new();
        let table = table(&folder.join(RECIPE)).unwrap_or_else(|why| {
            unusable.push(format!("{RECIPE}: {why}; its keys are not shown"));
            toml::Table::new()
        });
        let mut recipe = BTreeMap::new();
        flatten("", &table, &mut recipe);
        let evaluation = EvaluationFile::read(folder).unwrap_or_else(|e| {
            unusable.push(format!("{}: {e}; the details of the last evaluation are not shown", evaluation_file::NAME));
            None
        });
        // When a run is resumed from an earlier step, its log is truncated to that step, so the evaluation may be newer
        // than the log.
        let evaluation = evaluation.filter(|evaluation| evaluation.step <= log.step());
        Ok(Self { folder: folder.into(), log, recipe, changed, heartbeat, released, evaluation, unusable })
    }

    /// Reads the run in `folder`, but keeps of its steps only the last, and nothing about its layers and the details of
    /// its last evaluation. A table of many runs then needs little memory.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`open`](Self::open).
    pub fn open_summary(folder: &Path) -> Result<Self, Error> {
        let mut run = Self::open(folder)?;
        run.log.summarise();
        run.evaluation = None;
        Ok(run)
    }

    /// Returns one warning for each file that cannot be shown completely.
    pub fn warnings(&self) -> Vec<String> {
        let Unread { lines, first } = self.log.unread;
        let log = match lines {
            0 => None,
            1 => Some(format!("{LOG}: line {first} cannot be read and is left out")),
            _ => Some(format!("{LOG}: {lines} lines cannot be read and are left out, the first is line {first}")),
        };
        let folder = self.folder.display();
        self.unusable.iter().chain(&log).map(|what| format!("warning: {folder}/{what}")).collect()
    }

    /// Returns the name of the folder.
    pub fn name(&self) -> String {
        let whole = fs::canonicalize(&self.folder).unwrap_or_else(|_| self.folder.clone());
        whole.file_name().map_or_else(|| self.folder.display().to_string(), |name| name.to_string_lossy().into_owned())
    }

    pub fn state(&self) -> State {
        match self.log.end {
            Some(_) if self.log.diverged() => State::Diverged,
            Some(_) => State::Done,
            None if !self.released && self.is_fresh() => State::Running,
            None if self.log.diverged() => State::Diverged,
            None => State::Stopped,
        }
    }

    /// Returns true if the log or the heartbeat was just written. An evaluation writes nothing to the log, and a step may take long. The
    /// clock of a file server may be ahead.
    fn is_fresh(&self) -> bool {
        let recent = |at: SystemTime| at.elapsed().unwrap_or_else(|ahead| ahead.duration()) < FRESH;
        recent(self.changed) || self.heartbeat.is_some_and(recent)
    }

    /// Returns the step at which the run is to end, or 0 if it has not begun.
    pub fn last_step(&self) -> u64 {
        self.log.starts.last().map_or(0, |start| start.last_step)
    }

    /// Returns what the last start says about machine, ranks and data, and the digest in the end event.
    pub fn circumstances(&self) -> BTreeMap<String, String> {
        let Some(start) = self.log.starts.last() else { return BTreeMap::new() };
        let mut facts = start.facts.clone();
        // Two runs always have different output folders.
        facts.remove("out");
        facts.insert("ranks".into(), start.ranks.to_string());
        facts.insert("images".into(), start.images.to_string());
        if let Some(end) = &self.log.end {
            facts.insert("digest".into(), end.digest.clone());
        }
        facts
    }
}

/// Reads the keys of a recipe. Returns an empty table if the file does not exist.
fn table(path: &Path) -> Result<toml::Table, String> {
    match loaders::regular::read_to_string(path) {
        Ok(text) => text.parse().map_err(|error: toml::de::Error| {
            // The first line of the error says where the problem is. The other lines show the position in the text.
            let text = error.to_string();
            format!("not valid TOML: {}", text.lines().next().unwrap_or_default())
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(toml::Table::new()),
        Err(error) => Err(format!("cannot be read: {error}")),
    }
}

/// Adds all keys of a table with their full paths.
fn flatten(prefix: &str, table: &toml::Table, into: &mut BTreeMap<String, String>) {
    for (key, value) in table {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            toml::Value::Table(inner) => flatten(&path, inner, into),
            other => {
                into.insert(path, other.to_string());
            }
        }
    }
}

/// Returns the folders of all runs below `root`, sorted by name, or only `root` if it is a run itself. Searches four
/// levels of folders, but not inside the folder of a run. Follows a symbolic link only if it leads to a run, and lists
/// each run once.
///
/// # Errors
///
/// Returns an error if `root` cannot be read.
pub fn find(root: &Path) -> Result<Vec<PathBuf>, Error> {
    let read = |path: &Path| fs::read_dir(path).map_err(|source| Error::Read { path: path.into(), source });
    read(root)?;
    let (mut found, mut links) = (Vec::new(), Vec::new());
    let mut open = vec![(root.to_path_buf(), 0)];
    while let Some((folder, depth)) = open.pop() {
        if folder.join(LOG).is_file() {
            found.push(folder);
            continue;
        }
        // Skip folders that cannot be read, for example folders of other users.
        for entry in read(&folder).into_iter().flatten().flatten().filter(|_| depth < DEPTH) {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                open.push((entry.path(), depth + 1));
            } else if kind.is_symlink() && entry.path().join(LOG).is_file() {
                links.push(entry.path());
            }
        }
    }
    let mut known: BTreeSet<PathBuf> = found.iter().flat_map(fs::canonicalize).collect();
    links.sort();
    found.extend(links.into_iter().filter(|link| fs::canonicalize(link).is_ok_and(|target| known.insert(target))));
    found.sort();
    Ok(found)
}

/// If losses differ by more than this relative difference, the cause is not just rounding.
const FAR: f64 = 0.01;

/// A key with different values in two runs. `None` means that the run does not have the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDifference {
    pub key: String,
    pub first: Option<String>,
    pub second: Option<String>,
}

/// Tells from which step on the losses of two runs differ. Only steps that both runs logged are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossComparison {
    /// Number of steps that both runs logged.
    pub shared: u64,
    /// First step with losses that are not bit-identical.
    pub first_difference: Option<u64>,
    /// First step with losses that differ by more than one per cent.
    pub first_large_difference: Option<u64>,
}

/// Returns the recipe keys with different values in two runs, sorted by name.
pub fn compare(first: &BTreeMap<String, String>, second: &BTreeMap<String, String>) -> Vec<KeyDifference> {
    let keys: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let differing = keys.into_iter().filter(|key| first.get(*key) != second.get(*key));
    let pair = |key: &String| KeyDifference {
        key: key.clone(),
        first: first.get(key).cloned(),
        second: second.get(key).cloned(),
    };
    differing.map(pair).collect()
}

impl LossComparison {
    pub fn of(first: &Log, second: &Log) -> Self {
        let losses: BTreeMap<u64, f64> = first.steps.iter().map(|step| (step.step, step.loss)).collect();
        let mut comparison = Self::default();
        for step in &second.steps {
            let Some(loss) = losses.get(&step.step) else { continue };
            comparison.shared += 1;
            let same = loss.to_bits() == step.loss.to_bits();
            let near = same || (loss - step.loss).abs() <= FAR * loss.abs().max(step.loss.abs());
            if !same {
                comparison.first_difference.get_or_insert(step.step);
            }
            if !near {
                comparison.first_large_difference.get_or_insert(step.step);
            }
        }
        comparison
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use support::mentions;

    #[test]
    fn runs_are_found_and_read() {
        let root = std::env::temp_dir().join(format!("trireme-runs-{}", std::process::id()));
        let run = root.join("sweep/lr=0.1");
        fs::create_dir_all(&run).unwrap();
        fs::create_dir_all(root.join("data")).unwrap();
        fs::write(run.join("metrics.jsonl"), "{\"event\":\"start\",\"step\":0,\"last_step\":9}\n").unwrap();
        fs::write(run.join("recipe.toml"), "epochs = 3\n[optimizer]\nkind = \"sgd\"\n").unwrap();
        let found = find(&root).unwrap();
        assert_eq!(found, std::slice::from_ref(&run));
        let read = Run::open(&run).unwrap();
        assert_eq!((read.name().as_str(), read.state(), read.last_step()), ("lr=0.1", State::Running, 9));
        assert_eq!((read.recipe["epochs"].as_str(), read.recipe["optimizer.kind"].as_str()), ("3", "\"sgd\""));
        // The clock of the file server may be ahead of this machine's.
        let log = fs::File::options().append(true).open(run.join("metrics.jsonl")).unwrap();
        log.set_modified(SystemTime::now() + Duration::from_secs(10)).unwrap();
        assert_eq!(Run::open(&run).unwrap().state(), State::Running);
        // A process writes its identity into the lock file and empties the file when it ends.
        for (lock, state) in [("{}", State::Running), ("", State::Stopped)] {
            fs::write(run.join(".trireme-lock"), lock).unwrap();
            assert_eq!(Run::open(&run).unwrap().state(), state, "{lock:?}");
        }
        // An evaluation writes nothing to the log, but rank 0 writes its heartbeat.
        fs::write(run.join(".trireme-lock"), "{}").unwrap();
        log.set_modified(SystemTime::now() - Duration::from_secs(600)).unwrap();
        assert_eq!(Run::open(&run).unwrap().state(), State::Stopped);
        fs::create_dir(run.join(".ranks")).unwrap();
        fs::write(run.join(".ranks/0"), "{}").unwrap();
        assert_eq!(Run::open(&run).unwrap().state(), State::Running);
        fs::write(run.join(".trireme-lock"), "").unwrap();
        assert_eq!(Run::open(&run).unwrap().state(), State::Stopped);
        fs::write(run.join("recipe.toml"), "epochs = = 3").unwrap();
        fs::write(run.join("metrics.jsonl"), "{\"event\":\"start\",\"step\":0}\nhello\nworld\n").unwrap();
        let read = Run::open(&run).unwrap();
        let warnings = read.warnings();
        assert!(read.recipe.is_empty() && warnings.len() == 2, "{warnings:?}");
        let file = |name: &str| run.join(name).display().to_string();
        mentions(&warnings[0], &["warning: ", &file("recipe.toml"), "TOML", "line 1"]);
        mentions(&warnings[1], &["warning: ", &file("metrics.jsonl"), "2 lines", "line 2"]);
        fs::remove_file(run.join("recipe.toml")).unwrap();
        assert_eq!(Run::open(&run).unwrap().warnings().len(), 1, "a missing recipe is no warning");
        // Opening a FIFO would block.
        for name in ["recipe.toml", "metrics.jsonl"] {
            let _ = fs::remove_file(run.join(name));
            assert!(std::process::Command::new("mkfifo").arg(run.join(name)).status().unwrap().success());
            let read = Run::open(&run);
            let text = read.map_or_else(|error| error.to_string(), |run| run.warnings()[0].clone());
            mentions(text, &[name, "FIFO"]);
        }
        // The last two links lead to a run that is known already.
        let elsewhere = root.with_extension("elsewhere");
        fs::create_dir_all(&elsewhere).unwrap();
        fs::write(elsewhere.join("metrics.jsonl"), "").unwrap();
        let links = [("linked", &elsewhere), ("other", &elsewhere), ("sweep/latest", &run)];
        links.iter().for_each(|(name, to)| std::os::unix::fs::symlink(to, root.join(name)).unwrap());
        fs::remove_file(run.join("metrics.jsonl")).unwrap();
        fs::write(run.join("metrics.jsonl"), "").unwrap();
        assert_eq!(find(&root).unwrap(), [root.join("linked"), run]);
        fs::remove_dir_all(&elsewhere).unwrap();
        let (data, misspelled) = (root.join("data"), root.join("dtaa"));
        let error = Run::open(&data).unwrap_err();
        assert!(matches!(&error, Error::NoRun(path) if *path == data), "{error}");
        let error = Run::open(&misspelled).unwrap_err();
        assert!(matches!(&error, Error::Read { path, .. } if *path == misspelled), "{error}");
        mentions(&error, &[&data.display().to_string()]);
        fs::remove_dir_all(&root).unwrap();
        let error = find(&root).unwrap_err();
        assert!(matches!(&error, Error::Read { path, .. } if *path == root), "{error}");
    }

    fn log(losses: &[(u64, f64)]) -> Log {
        let line = |(step, loss): &(u64, f64)| format!("{{\"event\":\"step\",\"step\":{step},\"loss\":{loss}}}\n");
        Log::from_lines(losses.iter().map(line).collect::<String>().as_bytes()).unwrap()
    }

    #[test]
    fn loss_comparison_finds_first_small_and_large_difference() {
        let one = log(&[(1, 2.5), (2, 2.0), (3, 1.5), (4, 1.0)]);
        let two = log(&[(1, 2.5), (3, 1.5000001), (4, 1.2), (9, 1.0)]);
        assert_eq!(
            LossComparison::of(&one, &two),
            LossComparison { shared: 3, first_difference: Some(3), first_large_difference: Some(4) }
        );
        assert_eq!(
            LossComparison::of(&one, &one),
            LossComparison { shared: 4, first_difference: None, first_large_difference: None }
        );
        assert_eq!(LossComparison::of(&one, &log(&[])).shared, 0);
    }

    #[test]
    fn compare_lists_keys_with_different_values() {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let found = compare(&map(&[("a", "1"), ("b", "2")]), &map(&[("a", "1"), ("b", "3"), ("c", "4")]));
        let row = |key: &str, first: Option<&str>, second: &str| KeyDifference {
            key: key.into(),
            first: first.map(String::from),
            second: Some(second.into()),
        };
        assert_eq!(found, [row("b", Some("2"), "3"), row("c", None, "4")]);
    }
}
