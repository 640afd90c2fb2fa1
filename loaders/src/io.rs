//! How records come from storage: which way suits the file system and the order, shards open at once, and the threads that
//! wait for the disk. Reads of single records are in `fetch`, single shards in `shard`.
//!
//! Mapped shards cost nothing where the page cache holds them, and can be asked for ahead. Behind a network a fault fetches
//! one page or a few and stops its thread meanwhile; there, long reads by threads of their own come ahead of use.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::Receiver;
use serde::{Deserialize, Serialize};

use crate::dataset::Split;
use crate::error::Error;
use crate::fetch::Extent;
use crate::filesystem::{FileSystem, available_memory, open_files};
use crate::loader::Options;
use crate::nice;
use crate::shard::{Access, Shard};

/// How records are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Io {
    /// As the file system suggests.
    #[default]
    Auto,
    /// Through mappings.
    Mmap,
    /// By long reads.
    Read,
}

impl FromStr for Io {
    type Err = String;

    /// From `auto`, `mmap` or `read`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "mmap" => Ok(Self::Mmap),
            "read" => Ok(Self::Read),
            _ => Err(format!("expected \"auto\", \"mmap\" or \"read\", got \"{text}\"")),
        }
    }
}

/// Threads that wait for a network's reads; a queue of one would leave most of its bandwidth unused.
const READERS: usize = 8;

/// What a loader does to get its records.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    access: Access,
    /// Shards that stay open; `None`: all, once used.
    open: Option<usize>,
    /// Whether the whole split is brought into the page cache at the start.
    whole: bool,
    /// Whether the kernel is told of each record of the next batch.
    advise: bool,
    /// Bytes that shards read into memory take.
    loaded: u64,
    text: String,
}

impl Plan {
    /// For a split that is read like this; the file system is asked.
    pub(crate) fn new(split: &Split, options: &Options) -> Result<Self, Error> {
        let system = FileSystem::of(split.dir()).map_err(|source| Error::Io {
            action: "ask for the file system of",
            path: split.dir().to_owned(),
            source,
        })?;
        let bytes: u64 = split.shards().iter().map(|shard| shard.bytes).sum();
        let largest = split.shards().iter().map(|shard| shard.bytes).max().unwrap_or(0);
        Ok(Self::choose(&system, (bytes, largest), available_memory(), open_files() / 2, options))
    }

    fn choose(system: &FileSystem, (bytes, largest): (u64, u64), memory: u64, files: usize, options: &Options) -> Self {
        let read = match options.io {
            Io::Auto => system.remote,
            Io::Mmap => false,
            Io::Read => true,
        };
        let place = if system.remote { "behind a network" } else { "local" };
        let why = match options.io {
            Io::Auto => format!("{}, {place}", system.name),
            _ => format!("as asked, on {}, {place}", system.name),
        };
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        let window = (options.open > 0).then_some(options.open);
        let loaded = window.map_or(u64::MAX, |open| largest.saturating_mul(open as u64));
        let plan =
            Self { access: Access::Map, open: window, whole: false, advise: false, loaded: 0, text: String::new() };
        if read && loaded <= options.buffer as u64 {
            let text = format!("read, whole shards ahead of use, {} MiB ({why})", mib(loaded));
            return Self { access: Access::Load, loaded, text, ..plan };
        }
        if read {
            let open = Some(window.unwrap_or(files).clamp(16, files.max(16)));
            let hint = match window {
                Some(_) => format!("a window's shards take {} MiB, more than the buffer", mib(loaded)),
                None => "a window order would make the reads longer".to_owned(),
            };
            return Self {
                access: Access::Records,
                open,
                text: format!("read, record by record ({why}; {hint})"),
                ..plan
            };
        }
        if window.is_some() {
            return Self { text: format!("mmap, shards read ahead ({why})"), ..plan };
        }
        let whole = bytes <= memory / 2;
        let what = if whole { "all of it read ahead" } else { "larger than memory, each batch's records read ahead" };
        Self { whole, advise: !whole, text: format!("mmap, {what} ({why})"), ..plan }
    }

    /// The choice in words.
    pub(crate) fn describe(&self) -> &str {
        &self.text
    }

    /// Whether each thread takes its next batch's job before it fills one.
    pub(crate) fn looks_ahead(&self) -> bool {
        self.advise || self.access == Access::Records
    }

    /// Batches in memory at once.
    pub(crate) fn slots(&self, options: &Options) -> usize {
        let threads = options.threads.max(1);
        match options.slots {
            0 if self.looks_ahead() => 2 * threads + 2,
            0 => threads + 2,
            slots => slots,
        }
    }

    /// Threads that read ahead.
    pub(crate) fn readers(&self) -> usize {
        match self.access {
            Access::Map => usize::from(self.whole || self.open.is_some()),
            Access::Load => READERS / 2,
            Access::Records => READERS,
        }
    }

    /// Whether batches are made of records that `fetch` reads.
    pub(crate) fn fetches(&self) -> bool {
        self.access == Access::Records
    }

    /// Whether the records of the next batch are announced to the kernel.
    pub(crate) fn advises(&self) -> bool {
        self.advise
    }
}

/// Bytes of a loader that grow with neither the data set nor the number of epochs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Footprint {
    /// How records are read, and why so, in words.
    pub access: String,
    /// Batches in flight.
    pub batches: u64,
    /// Shards or records read into memory; of records the mean size counts.
    pub records: u64,
}

impl Footprint {
    /// For batches of at most `batch` images of so many `values`.
    pub fn new(split: &Split, options: &Options, batch: usize, values: usize) -> Result<Self, Error> {
        let plan = Plan::new(split, options)?;
        let batches = (plan.slots(options) * batch * (values * size_of::<f32>() + size_of::<u32>())) as u64;
        let bytes: u64 = split.shards().iter().map(|shard| shard.bytes).sum();
        let fetched = (2 * options.threads.max(1) * batch) as u64 * bytes.div_ceil(split.len().max(1));
        Ok(Self { batches, records: if plan.fetches() { fetched } else { plan.loaded }, access: plan.text })
    }
}

impl Footprint {
    /// All of it.
    pub fn bytes(&self) -> u64 {
        self.batches + self.records
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        write!(f, "{}; {:.1} MiB", self.access, mib(self.bytes()))?;
        if self.records > 0 {
            write!(f, ", {:.1} of them records", mib(self.records))?;
        }
        Ok(())
    }
}

/// A split and the shards of it that are open.
#[derive(Debug)]
pub(crate) struct Storage {
    split: Arc<Split>,
    plan: Plan,
    stop: AtomicBool,
    open: Mutex<Vec<Place>>,
}

/// A shard that is open or being opened.
#[derive(Debug)]
struct Place {
    shard: usize,
    /// Filled by the first who needs it; others wait meanwhile.
    cell: Arc<Mutex<Option<Arc<Shard>>>>,
}

/// Shards that one thread holds while it fills one batch.
pub(crate) type Held = Vec<(usize, Arc<Shard>)>;

impl Storage {
    pub(crate) fn new(split: Arc<Split>, plan: Plan) -> Self {
        Self { split, plan, stop: AtomicBool::new(false), open: Mutex::default() }
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(crate) fn split(&self) -> &Split {
        &self.split
    }

    /// Tells readers to end soon.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// An open shard: one of the split's own, or one that `held` then holds.
    pub(crate) fn shard<'a>(&'a self, number: usize, held: &'a mut Held) -> Result<&'a Shard, Error> {
        if self.plan.open.is_none() {
            return self.split.shard(number);
        }
        let at = match held.iter().position(|(n, _)| *n == number) {
            Some(at) => at,
            None => {
                held.push((number, self.open(number)?));
                held.len() - 1
            }
        };
        Ok(&held[at].1)
    }

    /// A shard out of those open, the one unused for longest making room for it.
    fn open(&self, number: usize) -> Result<Arc<Shard>, Error> {
        let cell = {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            let place = match open.iter().position(|place| place.shard == number) {
                Some(at) => open.remove(at),
                None => Place { shard: number, cell: Arc::default() },
            };
            let cell = Arc::clone(&place.cell);
            open.push(place);
            if open.len() > self.plan.open.unwrap_or(usize::MAX) {
                open.remove(0);
            }
            cell
        };
        let mut cell = cell.lock().unwrap_or_else(PoisonError::into_inner);
        match &*cell {
            Some(shard) => Ok(Arc::clone(shard)),
            None => {
                let shard = Arc::new(self.split.open(number, self.plan.access)?);
                *cell = Some(Arc::clone(&shard));
                Ok(shard)
            }
        }
    }

    /// Brings a shard at hand. What goes wrong here goes wrong again, and is reported, where the shard is used.
    fn prefetch(&self, number: usize) {
        if let Ok(shard) = self.open(number) {
            shard.read_ahead(|| self.stop.load(Ordering::Relaxed));
        }
    }

    /// Brings the split into the page cache.
    fn prefetch_all(&self) {
        for number in 0..self.split.shards().len() {
            let stop = || self.stop.load(Ordering::Relaxed);
            match self.split.shard(number) {
                Ok(shard) if !stop() => shard.read_ahead(stop),
                _ => return,
            }
        }
    }
}

/// What readers are asked for.
pub(crate) enum Want {
    /// A shard that will be used soon.
    Shard(usize),
    /// Bytes of a shard; they go back to who asked.
    Extent(Extent),
    /// To one reader: end.
    Stop,
}

/// The life of a reader.
pub(crate) fn attend(storage: &Storage, nice: i32, wanted: &Receiver<Want>) {
    // a refused priority is reported by the loader threads, which ask for the same one
    let _ = nice::lower_current_thread(nice);
    if storage.plan.whole {
        storage.prefetch_all();
    }
    while let Ok(want) = wanted.recv() {
        match want {
            Want::Shard(number) if storage.plan.access != Access::Records => storage.prefetch(number),
            // opened when its records are read
            Want::Shard(_) => {}
            Want::Extent(extent) => extent.read(|number| storage.open(number)),
            Want::Stop => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn system(remote: bool) -> FileSystem {
        FileSystem { name: if remote { "Lustre" } else { "ext4" }.into(), remote, free: 0, size: 0 }
    }

    #[test]
    fn the_file_system_and_the_order_decide() {
        let choose = |remote, bytes, io, open| {
            let options = Options { io, open, ..Options::default() };
            Plan::choose(&system(remote), (bytes, bytes / 1000), 8 * GIB, 512, &options)
        };
        let p = choose(false, GIB, Io::Auto, 0);
        assert_eq!((p.access, p.whole, p.advise, p.readers()), (Access::Map, true, false, 1));
        assert_eq!(p.text, "mmap, all of it read ahead (ext4, local)");
        let p = choose(false, 100 * GIB, Io::Auto, 0);
        assert_eq!((p.access, p.whole, p.advise, p.open), (Access::Map, false, true, None));
        let p = choose(false, 100 * GIB, Io::Auto, 8);
        assert_eq!((p.access, p.whole, p.advise, p.open), (Access::Map, false, false, Some(8)));
        let p = choose(true, GIB, Io::Auto, 0);
        assert_eq!((p.access, p.open, p.looks_ahead()), (Access::Records, Some(512), true));
        assert!(p.text.starts_with("read, record by record (Lustre, behind a network"), "{}", p.text);
        let p = choose(true, GIB, Io::Auto, 8);
        assert_eq!((p.access, p.open, p.looks_ahead()), (Access::Load, Some(8), false));
        assert!(p.text.starts_with("read, whole shards ahead of use, 9 MiB (Lustre"), "{}", p.text);
        // 8 shards of 100 MiB do not fit into 256 MiB
        let p = choose(true, 100 * GIB, Io::Auto, 8);
        assert_eq!((p.access, p.open), (Access::Records, Some(16)));
        assert!(p.text.contains("more than the buffer"), "{}", p.text);
        assert_eq!(choose(true, GIB, Io::Mmap, 0).access, Access::Map);
        assert!(choose(false, GIB, Io::Read, 0).text.contains("as asked, on ext4, local"));
    }

    #[test]
    fn words_of_the_recipe() {
        assert_eq!(["auto", "mmap", "read"].map(str::parse), [Ok(Io::Auto), Ok(Io::Mmap), Ok(Io::Read)]);
        assert!("pread".parse::<Io>().unwrap_err().ends_with("got \"pread\""));
    }
}
