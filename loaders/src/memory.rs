//! How much memory this process could have at most, and limits on the cost of reading a file.

use std::fs;
use std::path::{Component, Path};

use rustix::process::{Resource, getrlimit};

use crate::error::Error;
use crate::fault::Fault;
use crate::spec::ImageSpec;

/// Returns the maximum memory for this process in bytes: the machine's memory, limited by cgroups and by the address space left.
pub fn total() -> u64 {
    share(1)
}

/// Returns the maximum memory in bytes for each of `ranks` processes on this machine. They share the machine's memory and cgroup
/// limits, but each has its own address space.
pub fn share(ranks: usize) -> u64 {
    share_left(ranks, 0)
}

/// Returns how much of its [`share`] a process can still allocate if it has already allocated `allocated` bytes. The
/// address space left is a measured value, so `allocated` is not subtracted from it.
pub fn share_left(ranks: usize, allocated: u64) -> u64 {
    let shared = proc_bytes("/proc/meminfo", "MemTotal:").unwrap_or(u64::MAX).min(cgroup_limit());
    (shared / ranks.max(1) as u64).saturating_sub(allocated).min(address_space_left())
}

/// Returns the bytes available for the page cache: `MemAvailable`, limited by cgroups and by the address space left.
pub(crate) fn available() -> u64 {
    proc_bytes("/proc/meminfo", "MemAvailable:").unwrap_or(0).min(cgroup_limit()).min(address_space_left())
}

/// Address space limits, each with its usage line in /proc/self/status and its `ulimit` option. Grid Engine's h_vmem and PBS's pvmem set
/// the first limit.
const LIMITS: [(Resource, &str, &str); 2] = [(Resource::As, "VmSize:", "-v"), (Resource::Data, "VmData:", "-d")];

/// Returns how many bytes this process can still map under RLIMIT_AS and RLIMIT_DATA.
pub fn address_space_left() -> u64 {
    let limits = LIMITS.into_iter().filter_map(|(resource, used, _)| Some((getrlimit(resource).current?, used)));
    let left = limits.map(|(limit, used)| limit.saturating_sub(proc_bytes("/proc/self/status", used).unwrap_or(0)));
    left.min().unwrap_or(u64::MAX)
}

/// Returns the address space limits as `ulimit` commands, or `None` if there are no limits.
pub fn limits() -> Option<String> {
    let limit = |(resource, _, option)| Some(format!("`ulimit {option} {}`", getrlimit(resource).current? / 1024));
    let all: Vec<String> = LIMITS.into_iter().filter_map(limit).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// Returns extra advice for out-of-memory errors if the address space is limited, otherwise an empty string.
pub fn limits_cure() -> String {
    limits().map_or_else(String::new, |limits| format!(", or raise the limit of the address space ({limits})"))
}

/// Returns an error if `needed` bytes are more than this process can have. `cure` says what to try.
///
/// # Errors
///
/// Returns [`Error::Memory`].
pub fn check(what: &str, needed: u64, cure: &str) -> Result<(), Error> {
    within(what, needed, total(), &format!("{cure}{}", limits_cure()))
}

fn within(what: &str, needed: u64, memory: u64, cure: &str) -> Result<(), Error> {
    match needed <= memory {
        true => Ok(()),
        false => Err(Error::Memory { what: what.into(), needed, memory, cure: cure.into() }),
    }
}

/// Reads a line with a value in kB from a file in /proc. Returns the value in bytes.
fn proc_bytes(file: &str, name: &str) -> Option<u64> {
    let info = fs::read_to_string(file).ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()?.saturating_mul(1024))
}

/// Returns the lowest memory limit of this process's cgroups in bytes.
fn cgroup_limit() -> u64 {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limit_below(Path::new("/sys/fs/cgroup"), &groups)
}

/// Returns the lowest limit of the cgroups in the text of `/proc/PID/cgroup` and all their ancestors, in the
/// hierarchies below `root`. The ancestors matter because a job's limit may be set several levels above the group of
/// its processes. In a container, these groups may not exist under their names. Then the groups that do exist count,
/// and always the root.
fn limit_below(root: &Path, groups: &str) -> u64 {
    let both = [("", "memory.max"), ("memory", "memory.limit_in_bytes")];
    let limits = both.into_iter().flat_map(|(controller, file)| {
        let top = root.join(controller);
        let group = Path::new(group(groups, controller).unwrap_or("/"));
        // A group outside the container's view begins with `..`.
        let is_below = group.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        let group = group.strip_prefix("/").ok().filter(|_| is_below).unwrap_or(Path::new(""));
        group.ancestors().map(|group| top.join(group).join(file)).collect::<Vec<_>>()
    });
    // A group without a limit has the word `max`.
    let limits = limits.filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
    limits.min().unwrap_or(u64::MAX)
}

/// Returns the process's group from the text of `/proc/PID/cgroup`. `controller` is a controller of version 1, or the
/// empty string for version 2.
fn group<'a>(groups: &'a str, controller: &str) -> Option<&'a str> {
    groups.lines().find_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then_some(group)
    })
}

// Limits on the cost of reading a file. Small files can request gigabytes and hours: sizes in a header, compressed data
// that expands by a factor of a thousand, or a photo with thousands of scans. Every decoder and decompressor gets these
// limits and checks the file's request before it spends anything.

/// Limits on the cost of reading a file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Bytes of memory, in addition to four times the file's size.
    pub memory: u64,
    /// Maximum number of pixels in an image.
    pub pixels: u64,
    /// Maximum number of scans in a JPEG. Ordinary progressive files have about ten.
    pub scans: u32,
    /// Seconds of CPU time, from an estimate that is the same on every machine.
    pub seconds: f64,
}

/// The cost of decoding an image, computed from its header.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    pub spec: ImageSpec,
    /// Bytes for the pixels and for everything that must be kept until all pixels are known.
    pub memory: u64,
    /// Number of scans of a JPEG, or 1 for other formats.
    pub scans: u32,
    /// Estimated CPU time in seconds.
    pub seconds: f64,
}

impl Limits {
    /// 512 MiB (enough for 178,956,970 RGB pixels), 500 scans and 5 seconds.
    pub const DEFAULT: Self = Self::with_memory(512 << 20);

    /// Limits with `memory` bytes and `memory / 3` pixels, which fit into this memory as RGB. The limits on scans and
    /// seconds are the same as in [`Limits::DEFAULT`].
    pub const fn with_memory(memory: u64) -> Self {
        Self { memory, pixels: memory / 3, scans: 500, seconds: 5.0 }
    }

    /// Returns the maximum number of bytes for a file of `input` bytes.
    pub const fn allowed(&self, input: u64) -> u64 {
        self.memory.saturating_add(input.saturating_mul(4))
    }

    /// Checks the cost of reading `what`, a file of `input` bytes.
    ///
    /// # Errors
    ///
    /// Returns the first limit that is exceeded, and what to do.
    pub fn check(&self, what: &'static str, input: u64, cost: &Cost) -> Result<(), Fault> {
        let Cost { spec, memory, scans, seconds } = *cost;
        if spec.pixels() == 0 || spec.pixels() as u64 > self.pixels {
            return Err(Fault::PixelCount { got: spec, limit: self.pixels });
        }
        if memory > self.allowed(input) {
            return Err(self.memory_fault(what, input, Some(memory)));
        }
        if scans > self.scans || seconds > self.seconds {
            return Err(Fault::Time { scans, seconds, most_scans: self.scans, most_seconds: self.seconds });
        }
        Ok(())
    }

    /// Creates the fault for a file of `input` bytes that needs too much memory.
    pub(crate) fn memory_fault(&self, what: &'static str, input: u64, needed: Option<u64>) -> Fault {
        Fault::Memory { what, needed, allowed: self.allowed(input), extra: self.memory }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mentions::assert_mentions;

    #[test]
    fn the_smallest_limit_of_all_parent_cgroups_applies() {
        let root = std::env::temp_dir().join(format!("trireme-cgroup-{}", std::process::id()));
        let put = |path: &str, limit: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, limit).unwrap();
        };
        let job = "0::/system.slice/slurm/job_7/step_0\n";
        fs::create_dir_all(&root).unwrap();
        assert_eq!(limit_below(&root, job), u64::MAX);
        put("system.slice/slurm/job_7/memory.max", "4000\n");
        put("system.slice/slurm/job_7/step_0/memory.max", "max\n");
        put("system.slice/slurm/memory.max", "9000\n");
        put("system.slice/slurm/job_8/memory.max", "1\n");
        assert_eq!(limit_below(&root, job), 4000);
        // In a container, the names differ and the root is the job's own group.
        put("memory.max", "5000\n");
        for elsewhere in ["0::/kubepods/pod9\n", "0::/../../system.slice/slurm/job_8\n", "0::/\n", ""] {
            assert_eq!(limit_below(&root, elsewhere), 5000, "{elsewhere}");
        }
        // Version 1, next to an empty hierarchy of version 2.
        let job = "5:cpuset:/other\n4:cpu,memory:/slurm/uid_1/job_7\n0::/\n";
        put("memory/slurm/uid_1/memory.limit_in_bytes", "3000\n");
        put("memory/slurm/uid_1/job_7/memory.limit_in_bytes", "9223372036854771712\n");
        put("memory/other/memory.limit_in_bytes", "2\n");
        assert_eq!(limit_below(&root, job), 3000);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn allocated_memory_is_subtracted_from_the_share() {
        assert_eq!(share_left(2, u64::MAX), 0);
        if limits().is_none() {
            assert_eq!(share_left(2, 4096), share(2) - 4096);
        }
    }

    #[test]
    fn requests_beyond_the_available_memory_are_refused() {
        assert!(available() > 1 << 20 && total() >= available() && total() < 1 << 60);
        assert!(check("nothing", 0, "").is_ok() && within("a batch", 5, 5, "").is_ok());
        let text = within("a batch", 52_000_000_000, 24_000_000_000, "fewer images").unwrap_err().to_string();
        assert_mentions(&text, &["a batch", "52.0 GB", "24.0 GB", "fewer images"]);
    }

    fn refused(limits: Limits, cost: Cost) -> Fault {
        limits.check("JPEG", 1000, &cost).unwrap_err()
    }

    #[test]
    fn each_limit_is_told_with_its_flag() {
        let cost = |height, width| Cost { spec: ImageSpec::new(height, width, 3), memory: 0, scans: 1, seconds: 0.0 };
        let limits = Limits::DEFAULT;
        limits.check("JPEG", 1000, &cost(9500, 11_000)).unwrap();
        limits.check("JPEG", 1000, &cost(1, limits.pixels as u32)).unwrap();
        for wrong in [cost(30_000, 20_000), cost(0, 5)] {
            let fault = refused(limits, wrong);
            assert!(matches!(fault, Fault::PixelCount { got, limit: 178_956_970 } if got == wrong.spec), "{fault}");
            assert_mentions(&fault.to_string(), &[&wrong.spec.to_string(), "1 to 178956970", "--limit-memory"]);
        }
        let small = cost(2, 2);
        let heavy = Cost { memory: 900_000_000, ..small };
        let fault = refused(limits, heavy);
        assert!(
            matches!(fault, Fault::Memory { what: "JPEG", needed: Some(900_000_000), allowed: 536_874_912, .. }),
            "{fault}"
        );
        assert_mentions(&fault.to_string(), &["JPEG", "900.0 MB", "536.9 MB", "512 MiB", "--limit-memory"]);
        Limits::with_memory(1 << 30).check("JPEG", 1000, &heavy).unwrap();
        let slow = refused(limits, Cost { seconds: 18.0, scans: 499, ..small }).to_string();
        assert_mentions(&slow, &["18.0 s", "499 scans", "--limit-seconds"]);
        let fault = refused(limits, Cost { scans: 501, ..small });
        assert!(matches!(fault, Fault::Time { scans: 501, most_scans: 500, .. }), "{fault}");
    }
}
