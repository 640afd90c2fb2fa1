//! Chooses how a loader reads the records of a split, depending on the file system and the order, and manages the
//! shards that are open at once.
//!
//! Mapped shards cost nothing if the page cache holds them, and the kernel can read them ahead. On a remote file
//! system, a page fault fetches only one or a few pages and blocks its thread meanwhile. So for remote files, reader
//! threads make long reads ahead of use.

use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use base::lock;

use crate::error::Error;
use crate::memory;
use crate::storage::dataset::Split;
use crate::storage::filesystem::{FileSystem, open_files};
use crate::storage::shard::{Access, Shard};

/// Number of threads that read from a remote file system. With a single outstanding read, most of its bandwidth would
/// be unused.
const READERS: usize = 8;

/// The loader options that concern reading.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadOptions {
    pub io: Io,
    /// Number of shards that the order uses at once. 0 means all shards.
    pub open: usize,
    /// Maximum number of bytes for shards that are read into memory.
    pub buffer: usize,
}

/// Sizes of a split's shards in bytes.
#[derive(Debug, Clone, Copy)]
struct ShardSizes {
    all: u64,
    largest: u64,
}

/// Limits of the operating system.
#[derive(Debug, Clone, Copy)]
struct SystemLimits {
    /// Number of bytes available to the page cache.
    memory: u64,
    /// Number of files that the loader's list of open shards may have. Batches in progress hold more shards, and a run has
    /// two or three loaders: for evaluation, and for the second pass of SAM.
    files: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct ReadPlan {
    pub access: Access,
    /// Number of shards that stay open. `None` means that every used shard stays open.
    pub open: Option<usize>,
    /// True if the whole split is read into the page cache at the start.
    pub whole: bool,
    /// True if the kernel is asked to read the records of the next batch ahead.
    pub advise: bool,
    /// Memory in bytes for shards that are loaded as a whole.
    pub loaded: u64,
    /// True if files on this machine are mapped.
    pub local: bool,
    /// The choice and its reason, for the log.
    pub text: String,
}

impl ReadPlan {
    /// Chooses the plan for a split, depending on its file system.
    pub(crate) fn new(split: &Split, options: &ReadOptions) -> Result<Self, Error> {
        let system = FileSystem::of(split.dir()).map_err(Error::io("determine the file system of", split.dir()))?;
        let largest = split.shards().iter().map(|shard| shard.bytes).max().unwrap_or(0);
        let limits = SystemLimits { memory: memory::available(), files: open_files() / 4 };
        Ok(Self::choose(&system, ShardSizes { all: split.bytes(), largest }, limits, options))
    }

    fn choose(system: &FileSystem, sizes: ShardSizes, limits: SystemLimits, options: &ReadOptions) -> Self {
        let reads = match options.io {
            Io::Auto => system.remote,
            Io::Mmap => false,
            Io::Read => true,
        };
        let plan = Self {
            access: Access::Map,
            open: options.window(),
            whole: false,
            advise: false,
            loaded: 0,
            local: false,
            text: String::new(),
        };
        let place = if system.remote { "remote" } else { "local" };
        let why = match options.io {
            Io::Auto => format!("{}, {place}", system.name),
            _ => format!("as requested, on {}, {place}", system.name),
        };
        match reads {
            true => plan.read(sizes, limits, options.buffer as u64, &why),
            false => Self { local: !system.remote, ..plan.map(sizes, limits, &why) },
        }
    }

    /// Plans long reads: whole shards if the shards of one window fit into `buffer` bytes, otherwise single records.
    fn read(self, sizes: ShardSizes, limits: SystemLimits, buffer: u64, why: &str) -> Self {
        let loaded = self.open.map_or(u64::MAX, |open| sizes.largest.saturating_mul(open as u64));
        let mib = loaded.div_ceil(1 << 20);
        if loaded <= buffer {
            let text = format!("read, whole shards ahead of use, {mib} MiB ({why})");
            return Self { access: Access::Load, loaded, text, ..self };
        }
        let open = Some(self.open.unwrap_or(limits.files).clamp(16, limits.files.max(16)));
        let hint = match self.open {
            Some(_) => format!("a window's shards take {mib} MiB, more than the buffer"),
            None => "a window order would make the reads longer".to_owned(),
        };
        Self { access: Access::Records, open, text: format!("read, record by record ({why}; {hint})"), ..self }
    }

    /// Plans mappings, and the read-ahead: a window's shards, the whole split, or each batch's records.
    fn map(self, sizes: ShardSizes, limits: SystemLimits, why: &str) -> Self {
        let whole = self.open.is_none() && sizes.all <= limits.memory / 2;
        let advise = self.open.is_none() && !whole;
        let what = match (self.open, whole) {
            (Some(_), _) => "shards read ahead",
            (None, true) => "all of it read ahead",
            (None, false) => "larger than memory, each batch's records read ahead",
        };
        Self { whole, advise, text: format!("mmap, {what} ({why})"), ..self }
    }

    /// Returns true if each thread takes its next job before it fills the current batch.
    pub(crate) fn looks_ahead(&self) -> bool {
        self.advise || self.fetches()
    }

    /// Returns the number of threads that read ahead.
    pub(crate) fn readers(&self) -> usize {
        match self.access {
            Access::Map => usize::from(self.whole || self.open.is_some()),
            Access::Load => READERS / 2,
            Access::Records => READERS,
        }
    }

    /// Returns true if reader threads fetch single records.
    pub(crate) fn fetches(&self) -> bool {
        self.access == Access::Records
    }
}

impl ReadOptions {
    fn window(&self) -> Option<usize> {
        (self.open > 0).then_some(self.open)
    }
}

/// The way in which records are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Io {
    /// Chosen by the type of the file system.
    #[default]
    Auto,
    /// Map the shards into memory.
    Mmap,
    /// Read whole shards or long ranges into buffers.
    Read,
}

impl FromStr for Io {
    type Err = String;

    /// Parses `auto`, `mmap` or `read`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "mmap" => Ok(Self::Mmap),
            "read" => Ok(Self::Read),
            _ => Err(format!("expected \"auto\", \"mmap\" or \"read\", got \"{text}\"")),
        }
    }
}

#[derive(Debug)]
pub(crate) struct OpenShards {
    split: Arc<Split>,
    plan: ReadPlan,
    stop: AtomicBool,
    /// The open shards, sorted by last use, the most recent last.
    open: Mutex<Vec<OpenShard>>,
}

/// A shard that is open or being opened.
#[derive(Debug)]
struct OpenShard {
    number: usize,
    /// Filled by the first thread that needs the shard. Other threads wait for it.
    cell: Arc<Mutex<Option<Arc<Shard>>>>,
}

/// The shards that one thread holds while it fills a piece of a batch, with their numbers.
pub(crate) type HeldShards = Vec<(usize, Arc<Shard>)>;

impl OpenShards {
    pub(crate) fn new(split: Arc<Split>, plan: ReadPlan) -> Self {
        Self { split, plan, stop: AtomicBool::new(false), open: Mutex::default() }
    }

    pub(crate) fn plan(&self) -> &ReadPlan {
        &self.plan
    }

    pub(crate) fn split(&self) -> &Split {
        &self.split
    }

    /// Tells the readers to end soon.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns an open shard. The split keeps it mapped, or it is added to `held`.
    pub(crate) fn shard<'a>(&'a self, number: usize, held: &'a mut HeldShards) -> Result<&'a Shard, Error> {
        // single records need only the shard's index, for which a mapped shard keeps no file open
        let mapped = self.plan.fetches() && self.split.mapped_shard(number).is_some();
        if self.plan.open.is_none() || mapped {
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

    /// Opens a shard, or returns it if it is open. If too many shards are open, the least recently used shard is
    /// closed.
    pub(crate) fn open(&self, number: usize) -> Result<Arc<Shard>, Error> {
        let cell = {
            let mut open = lock(&self.open);
            let shard = match open.iter().position(|shard| shard.number == number) {
                Some(at) => open.remove(at),
                None => OpenShard { number, cell: Arc::default() },
            };
            let cell = Arc::clone(&shard.cell);
            open.push(shard);
            if open.len() > self.plan.open.unwrap_or(usize::MAX) {
                open.remove(0);
            }
            cell
        };
        let mut cell = lock(&cell);
        match &*cell {
            Some(shard) => Ok(Arc::clone(shard)),
            None => {
                let shard = Arc::new(match self.split.mapped_shard(number) {
                    Some(mapped) if self.plan.fetches() => mapped.reopen()?,
                    _ => self.split.open(number, self.plan.access)?,
                });
                *cell = Some(Arc::clone(&shard));
                Ok(shard)
            }
        }
    }

    /// Opens a shard and reads it ahead. Errors can be ignored here: they occur again, and are reported, when the shard
    /// is used.
    pub(crate) fn prefetch(&self, number: usize) {
        if let Ok(shard) = self.open(number) {
            shard.read_ahead(|| self.stop.load(Ordering::Relaxed));
        }
    }

    /// Reads the whole split into the page cache.
    pub(crate) fn prefetch_all(&self) {
        for number in 0..self.split.shards().len() {
            let stop = || self.stop.load(Ordering::Relaxed);
            match self.split.shard(number) {
                Ok(shard) if !stop() => shard.read_ahead(stop),
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mentions::assert_mentions;

    const GIB: u64 = 1 << 30;

    fn system(remote: bool) -> FileSystem {
        FileSystem { name: if remote { "Lustre" } else { "ext4" }.into(), remote, free: 0, size: 0 }
    }

    #[test]
    fn read_plan_depends_on_file_system_and_order() {
        let choose = |remote, bytes, io, open| {
            let options = ReadOptions { io, open, buffer: 256 << 20 };
            let sizes = ShardSizes { all: bytes, largest: bytes / 1000 };
            ReadPlan::choose(&system(remote), sizes, SystemLimits { memory: 8 * GIB, files: 512 }, &options)
        };
        let p = choose(false, GIB, Io::Auto, 0);
        assert_eq!((p.access, p.whole, p.advise, p.readers()), (Access::Map, true, false, 1));
        assert_mentions(&p.text, &["mmap", "all", "ext4", "local"]);
        let p = choose(false, 100 * GIB, Io::Auto, 0);
        assert_eq!((p.access, p.whole, p.advise, p.open), (Access::Map, false, true, None));
        let p = choose(false, 100 * GIB, Io::Auto, 8);
        assert_eq!((p.access, p.whole, p.advise, p.open), (Access::Map, false, false, Some(8)));
        let p = choose(true, GIB, Io::Auto, 0);
        assert_eq!((p.access, p.open, p.looks_ahead()), (Access::Records, Some(512), true));
        assert_mentions(&p.text, &["read", "record by record", "Lustre", "remote"]);
        let p = choose(true, GIB, Io::Auto, 8);
        assert_eq!((p.access, p.open, p.looks_ahead()), (Access::Load, Some(8), false));
        assert_mentions(&p.text, &["read", "whole shards", "9 MiB", "Lustre"]);
        // Eight shards of 100 MiB do not fit into 256 MiB.
        let p = choose(true, 100 * GIB, Io::Auto, 8);
        assert_eq!((p.access, p.open), (Access::Records, Some(16)));
        assert_mentions(&p.text, &["record by record", "820 MiB", "the buffer"]);
        assert_eq!(choose(true, GIB, Io::Mmap, 0).access, Access::Map);
        assert_mentions(&choose(false, GIB, Io::Read, 0).text, &["as requested", "ext4", "local"]);
    }

    #[test]
    fn io_is_parsed_from_the_recipe() {
        assert_eq!(["auto", "mmap", "read"].map(str::parse), [Ok(Io::Auto), Ok(Io::Mmap), Ok(Io::Read)]);
        assert!("pread".parse::<Io>().unwrap_err().ends_with("got \"pread\""));
    }
}
