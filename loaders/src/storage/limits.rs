//! How much memory and how many open files the operating system allows.

use std::fs;

/// Bytes that the page cache may still use: `MemAvailable`, but no more than the cgroup's limit.
pub(crate) fn available_memory() -> u64 {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let available = line.and_then(|rest| rest.trim().trim_end_matches(" kB").trim().parse::<u64>().ok());
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limit = limits.iter().find_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    available.map_or(0, |kib| kib.saturating_mul(1024)).min(limit.unwrap_or(u64::MAX))
}

/// The most files that this process may have open at once.
pub(crate) fn open_files() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_answers() {
        assert!(available_memory() > 1 << 20);
        assert!(open_files() >= 64);
    }
}
