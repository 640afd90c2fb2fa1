//! How much memory this process could have at most, and requests that are beyond it: allocating fails by ending the process, without a
//! word of the reason.

use std::fs;

use crate::error::Error;

/// Bytes of memory that this process could have at most: the machine's, but no more than the cgroup's limit.
pub fn total() -> u64 {
    meminfo("MemTotal:").unwrap_or(u64::MAX).min(cgroup_limit())
}

/// Bytes that the page cache may still use: `MemAvailable`, but no more than the cgroup's limit.
pub(crate) fn available() -> u64 {
    meminfo("MemAvailable:").unwrap_or(0).min(cgroup_limit())
}

/// Fails for what needs more bytes than the machine has; `cure` says what to try.
pub(crate) fn check(what: &str, needed: u64, cure: &str) -> Result<(), Error> {
    within(what, needed, total(), cure)
}

fn within(what: &str, needed: u64, memory: u64, cure: &str) -> Result<(), Error> {
    match needed <= memory {
        true => Ok(()),
        false => Err(Error::Memory { what: what.into(), needed, memory, cure: cure.into() }),
    }
}

/// A line of /proc/meminfo in bytes.
fn meminfo(name: &str) -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()?.saturating_mul(1024))
}

/// The cgroup's limit in bytes.
fn cgroup_limit() -> u64 {
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    limits.iter().find_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_machine_has_is_refused_with_the_numbers() {
        assert!(available() > 1 << 20 && total() >= available() && total() < 1 << 60);
        assert!(check("nothing", 0, "").is_ok() && within("a batch", 5, 5, "").is_ok());
        let text = within("a batch", 52_000_000_000, 24_000_000_000, "fewer images").unwrap_err().to_string();
        assert_eq!(text, "a batch would take 52.0 GB, this machine has 24.0 GB; try fewer images");
    }
}
