//! How much memory this process could have at most, and requests that are beyond it: allocating fails by ending the process, without a
//! word of the reason.

use std::fs;
use std::path::{Component, Path};

use rustix::process::{Resource, getrlimit};

use crate::error::Error;

/// Returns the maximum memory for this process in bytes: the machine's memory, limited by cgroups and by the address space left.
pub fn total() -> u64 {
    meminfo("MemTotal:").unwrap_or(u64::MAX).min(cgroup_limit()).min(address_space_left())
}

/// Returns the bytes available for the page cache: `MemAvailable`, limited by cgroups and by the address space left.
pub(crate) fn available() -> u64 {
    meminfo("MemAvailable:").unwrap_or(0).min(cgroup_limit()).min(address_space_left())
}

/// Address space limits, each with its usage line in /proc/self/status and its `ulimit` option. Grid Engine's h_vmem and PBS's pvmem set
/// the first limit.
const LIMITS: [(Resource, &str, &str); 2] = [(Resource::As, "VmSize:", "-v"), (Resource::Data, "VmData:", "-d")];

/// Returns how many bytes this process can still map under RLIMIT_AS and RLIMIT_DATA.
pub fn address_space_left() -> u64 {
    let limits = LIMITS.into_iter().filter_map(|(resource, used, _)| Some((getrlimit(resource).current?, used)));
    let left = limits.map(|(limit, used)| limit.saturating_sub(line_of("/proc/self/status", used).unwrap_or(0)));
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

/// Fails for what needs more bytes than the machine has; `cure` says what to try.
///
/// # Errors
/// [`Error::Memory`].
pub fn check(what: &str, needed: u64, cure: &str) -> Result<(), Error> {
    within(what, needed, total(), &format!("{cure}{}", limits_cure()))
}

fn within(what: &str, needed: u64, memory: u64, cure: &str) -> Result<(), Error> {
    match needed <= memory {
        true => Ok(()),
        false => Err(Error::Memory { what: what.into(), needed, memory, cure: cure.into() }),
    }
}

/// A line of /proc/meminfo in bytes.
fn meminfo(name: &str) -> Option<u64> {
    line_of("/proc/meminfo", name)
}

/// Reads a line with a value in kB from a file in /proc. Returns the value in bytes.
fn line_of(file: &str, name: &str) -> Option<u64> {
    let info = fs::read_to_string(file).ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()?.saturating_mul(1024))
}

/// The least limit of this process's cgroups in bytes.
fn cgroup_limit() -> u64 {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limit_below(Path::new("/sys/fs/cgroup"), &groups)
}

/// The least limit of the cgroups that a /proc/PID/cgroup names, and of those above them, in the hierarchies below `root`: that of a job
/// lies in a group of its own, deep below. In a container the groups may not be there under these names; what is there counts, the root
/// always.
fn limit_below(root: &Path, groups: &str) -> u64 {
    let both = [("", "memory.max"), ("memory", "memory.limit_in_bytes")];
    let limits = both.into_iter().flat_map(|(controller, file)| {
        let top = root.join(controller);
        let group = Path::new(group(groups, controller).unwrap_or("/"));
        // a group outside of what a container sees begins with `..`
        let is_below = group.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        let group = group.strip_prefix("/").ok().filter(|_| is_below).unwrap_or(Path::new(""));
        group.ancestors().map(|group| top.join(group).join(file)).collect::<Vec<_>>()
    });
    // no limit is the word `max`
    let limits = limits.filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
    limits.min().unwrap_or(u64::MAX)
}

/// The group in which a line of /proc/PID/cgroup puts the process, for a controller of version 1, or for the empty name of version 2.
fn group<'a>(groups: &'a str, controller: &str) -> Option<&'a str> {
    groups.lines().find_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then_some(group)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_all_groups_above_counts() {
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
        // in a container: other names, and the root is the job's own
        put("memory.max", "5000\n");
        for elsewhere in ["0::/kubepods/pod9\n", "0::/../../system.slice/slurm/job_8\n", "0::/\n", ""] {
            assert_eq!(limit_below(&root, elsewhere), 5000, "{elsewhere}");
        }
        // version 1, beside an empty hierarchy of version 2
        let job = "5:cpuset:/other\n4:cpu,memory:/slurm/uid_1/job_7\n0::/\n";
        put("memory/slurm/uid_1/memory.limit_in_bytes", "3000\n");
        put("memory/slurm/uid_1/job_7/memory.limit_in_bytes", "9223372036854771712\n");
        put("memory/other/memory.limit_in_bytes", "2\n");
        assert_eq!(limit_below(&root, job), 3000);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn what_no_machine_has_is_refused_with_the_numbers() {
        assert!(available() > 1 << 20 && total() >= available() && total() < 1 << 60);
        assert!(check("nothing", 0, "").is_ok() && within("a batch", 5, 5, "").is_ok());
        let text = within("a batch", 52_000_000_000, 24_000_000_000, "fewer images").unwrap_err().to_string();
        assert_eq!(text, "a batch would take 52.0 GB, this machine has 24.0 GB; try fewer images");
    }
}
