//! From finished shards to a data set: `dataset.json`, and the list of the samples left out.

use super::converted::SKIPPED;
use super::finished::Finished;
use super::plan::{TRAIN, Task};
use super::shard_writer::explain_full;
use super::tally::Tally;
use crate::error::Error;
use crate::source::Source;
use loaders::replace::replace;
use loaders::{Manifest, SplitManifest, printable};
use std::collections::BTreeMap;
use std::path::Path;

/// What the shards of a conversion make together.
pub(super) struct Dataset {
    pub manifest: Manifest,
    /// A line for each sample that was left out.
    pub skipped: Vec<String>,
}

/// One split with the facts about its samples.
#[derive(Default)]
struct Split {
    manifest: SplitManifest,
    tally: Tally,
}

impl Dataset {
    /// Puts the finished shards together, in the order of `tasks`.
    pub fn of(source: &dyn Source, tasks: &[Task], finished: BTreeMap<String, Finished>) -> Result<Self, Error> {
        let mut splits = collect(source.splits().len(), tasks, finished)?;
        let (mut mean, mut std) = (Vec::new(), Vec::new());
        for (info, split) in source.splits().iter().zip(&mut splits) {
            split.describe(&info.name)?;
            if info.name == TRAIN {
                (mean, std) = split.tally.moments.finish();
                split.manifest.measured = Some(split.tally.measured).filter(|&n| n < split.manifest.count);
            }
        }
        let converted = splits.iter_mut().flat_map(|split| std::mem::take(&mut split.tally.skipped));
        let lines = source.skipped().iter().cloned().chain(converted);
        let skipped = lines.map(|line| printable(&line).into_owned()).collect();
        let names = source.splits().iter().map(|info| info.name.clone());
        let manifest = Manifest {
            version: Manifest::version_of(source.multi_label()),
            multi_label: source.multi_label(),
            classes: source.classes().to_vec(),
            label_offset: source.label_offset(),
            mean,
            std,
            splits: names.zip(splits.into_iter().map(|split| split.manifest)).collect(),
        };
        Ok(Dataset { manifest, skipped })
    }

    /// Writes `dataset.json` to a folder without one and, if samples were left out, their list; `needed` is for the message of a full disk.
    pub fn write(&self, dir: &Path, needed: u64) -> Result<(), Error> {
        let explain = |e| explain_full(e, needed);
        if !self.skipped.is_empty() {
            let mut text = self.skipped.join("\n");
            text.push('\n');
            replace(&dir.join(SKIPPED), text.as_bytes()).map_err(explain)?;
        }
        self.manifest.create(dir).map_err(explain)
    }
}

/// The shards and tallies of each of `count` splits.
fn collect(count: usize, tasks: &[Task], mut finished: BTreeMap<String, Finished>) -> Result<Vec<Split>, Error> {
    let mut splits: Vec<Split> = (0..count).map(|_| Split::default()).collect();
    for task in tasks {
        let Some(Finished { shard, tally, .. }) = finished.remove(&task.name) else {
            return Err(Error::Panic(format!("shard {} was never written", task.name)));
        };
        let split = &mut splits[task.split];
        split.tally.merge(tally, Path::new(&task.name))?;
        split.manifest.count += shard.count;
        split.manifest.shards.push(shard);
    }
    Ok(splits)
}

impl Split {
    /// Enters the sizes of the images and how many have entry points; a split without images is an error.
    fn describe(&mut self, name: &str) -> Result<(), Error> {
        if self.manifest.count == 0 {
            let first = self.tally.skipped.first().map_or("", String::as_str);
            let what = format!("not one image of this split can be used; the first: {first}");
            return Err(Error::input(Path::new(name), what));
        }
        self.manifest.size = self.tally.one_size();
        self.manifest.sizes = self.tally.sizes.filter(|_| self.manifest.size.is_none());
        self.manifest.entry_points = Some(self.tally.entry_points).filter(|&count| count > 0);
        Ok(())
    }
}
