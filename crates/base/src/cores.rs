//! The CPU cores that a rank may use, and warnings about bad core bindings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The cores that one rank may run on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mask {
    pub host: String,
    /// Indexes of the logical CPUs.
    pub cpus: Vec<usize>,
}

/// A rank's share of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores {
    /// Number of whole cores for this rank, at least 1.
    pub own: usize,
}

impl Cores {
    /// Returns true if a core is left for MPI in addition to this many compute threads.
    pub fn spare(&self, threads: usize) -> bool {
        self.own > threads
    }
}

/// Returns the logical CPUs that this process may run on. If its cgroup allows only the time of fewer CPUs, shortens
/// the list to this number, but not below one.
pub fn affinity() -> Vec<usize> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap_or("0");
    let mut cpus = parse_list(list.trim());
    cpus.truncate(quota().unwrap_or(usize::MAX).max(1));
    cpus
}

/// Parses a list of CPUs such as `0-3,8`.
fn parse_list(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (a, b) = part.split_once('-').unwrap_or((part, part));
        Some(a.trim().parse().ok()?..=b.trim().parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// Returns the number of whole CPUs that the cgroup bandwidth limits allow. The tightest limit of this process's group
/// and its ancestors applies.
fn quota() -> Option<usize> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    tightest(&groups, |path| std::fs::read_to_string(path).ok())
}

/// Returns the tightest limit for the groups in the text of /proc/self/cgroup. Reads `cpu.max` (version 2) or
/// `cpu.cfs_quota_us` (version 1). Inside a container, the group's own path may not exist, but the files in the root
/// belong to the container's group.
fn tightest(groups: &str, read: impl Fn(&str) -> Option<String>) -> Option<usize> {
    let limits = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let root = match controllers {
            "" => "/sys/fs/cgroup",
            list if list.split(',').any(|c| c == "cpu") => "/sys/fs/cgroup/cpu",
            _ => return None,
        };
        let above = std::path::Path::new(path).ancestors().filter_map(|p| p.to_str());
        above.filter_map(|path| limit(root, path.trim_end_matches('/'), &read)).min_by(f64::total_cmp)
    });
    limits.min_by(f64::total_cmp).map(|cpus| cpus.floor() as usize)
}

/// Returns the number of CPUs that one group allows, or `None` without a limit.
fn limit(root: &str, path: &str, read: &impl Fn(&str) -> Option<String>) -> Option<f64> {
    let number = |name: &str| read(&format!("{root}{path}/{name}"))?.trim().parse::<f64>().ok();
    let (quota, period) = match read(&format!("{root}{path}/cpu.max")) {
        Some(text) => {
            let (quota, period) = text.trim().split_once(' ')?;
            (quota.parse().ok()?, period.parse().ok()?)
        }
        None => (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?),
    };
    // Version 1 writes -1 if there is no limit.
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// Returns the share of a rank. A core that k ranks may use counts as 1/k for each of them.
pub fn share(masks: &[Mask], rank: usize) -> Cores {
    let Some(mask) = masks.get(rank) else { return Cores { own: 1 } };
    let total = portion(mask, &users(masks));
    Cores { own: ((total + 1e-9).floor() as usize).max(1) }
}

/// Adds up a rank's shares of its cores. A core that n ranks use counts 1/n.
fn portion(mask: &Mask, users: &Users<'_>) -> f64 {
    mask.cpus.iter().map(|cpu| 1.0 / users[&(mask.host.as_str(), *cpu)] as f64).sum()
}

/// The number of ranks that may use each core of each host.
type Users<'a> = BTreeMap<(&'a str, usize), usize>;

fn users(masks: &[Mask]) -> Users<'_> {
    let mut users = BTreeMap::new();
    for mask in masks {
        for cpu in &mask.cpus {
            *users.entry((mask.host.as_str(), *cpu)).or_insert(0) += 1;
        }
    }
    users
}

/// Returns a warning about the first rank that has less than one core. Ranks on the same core have equal shares of it.
pub fn warning(masks: &[Mask]) -> Option<String> {
    let users = users(masks);
    let crowded = masks.iter().position(|mask| portion(mask, &users) < 0.99)?;
    let m = &masks[crowded];
    Some(format!(
        "warning: rank {crowded} shares its {} {:?} on {} with other ranks: start fewer ranks per node, or spread them \
         (Open MPI: --bind-to none or --map-by slot:PE=n; srun: --cpus-per-task=n)",
        if m.cpus.len() == 1 { "core" } else { "cores" },
        m.cpus,
        m.host
    ))
}

/// Returns a warning if a variable of the environment makes OpenMP bind threads, unless `OMP_PROC_BIND` is `false`.
/// OpenMP then binds the first thread of the process to one core before other code runs, and all threads inherit this.
/// `lookup` reads the environment.
pub fn bound_by_openmp(lookup: impl Fn(&str) -> Option<String>) -> Option<String> {
    if lookup("OMP_PROC_BIND").is_some_and(|value| value.eq_ignore_ascii_case("false")) {
        return None;
    }
    let names = ["OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"];
    let (name, value) = names.into_iter().find_map(|name| Some((name, lookup(name)?)))?;
    Some(format!(
        "warning: {name}={value} makes OpenMP bind all threads of a rank to one core, including the loader threads. Use `export \
         OMP_PROC_BIND=false`; srun or mpirun binds the ranks"
    ))
}

/// Returns a note if the ranks on the node `host`, which must be this node, are together bound to fewer cores than the
/// node and its cgroup allow. Returns `None` for a single rank.
pub fn unused(masks: &[Mask], host: &str) -> Option<String> {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    let online = parse_list(online.trim()).len().min(quota().unwrap_or(usize::MAX));
    let bound = users(masks).keys().filter(|(h, _)| *h == host).count();
    (masks.len() > 1 && bound < online).then(|| {
        format!(
            "note: the ranks on {host} are bound to {bound} of its {online} cores. To use all of them: mpirun --bind-to none (Open MPI) \
             or srun --cpus-per-task=n"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `host cpu cpu ...`.
    fn mask(line: &str) -> Mask {
        let mut words = line.split(' ');
        Mask { host: words.next().unwrap().into(), cpus: words.map(|word| word.parse().unwrap()).collect() }
    }

    fn masks(lines: &[&str]) -> Vec<Mask> {
        lines.iter().map(|line| mask(line)).collect()
    }

    #[test]
    fn unbound_ranks_divide_their_node() {
        let m = masks(&["a 0 1 2 3", "a 0 1 2 3", "b 0 1 2 3"]);
        let own: Vec<usize> = (0..3).map(|r| share(&m, r).own).collect();
        assert_eq!(own, [2, 2, 4]);
        assert_eq!(warning(&m), None);
    }

    #[test]
    fn bound_ranks_have_what_they_are_bound_to() {
        let m = masks(&["a 0 1", "a 2 3"]);
        assert_eq!([share(&m, 0).own, share(&m, 1).own], [2, 2]);
        assert!(share(&m, 0).spare(1) && !share(&m, 0).spare(2));
    }

    #[test]
    fn two_ranks_on_one_core_are_named() {
        let m = masks(&["node7 0 1", "node7 2", "node7 2"]);
        assert_eq!(share(&m, 1).own, 1);
        let text = warning(&m).unwrap();
        assert!(["rank 1 ", "[2]", "node7", "--bind-to none"].iter().all(|part| text.contains(part)), "{text}");
    }

    #[test]
    fn the_tightest_cgroup_counts() {
        let files = |files: &'static [(&'static str, &'static str)]| {
            move |path: &str| files.iter().find(|f| f.0 == path).map(|f| f.1.to_string())
        };
        let v2 = files(&[
            ("/sys/fs/cgroup/job/cpu.max", "400000 100000\n"),
            ("/sys/fs/cgroup/job/step/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/cpu.max", "850000 100000\n"),
        ]);
        assert_eq!(tightest("0::/job/step\n", v2), Some(4));
        assert_eq!(tightest("0::/elsewhere\n", v2), Some(8));
        let v1 = files(&[
            ("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "250000\n"),
            ("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n"),
            ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(tightest("9:memory:/job\n4:cpu,cpuacct:/job\n", v1), Some(2));
        assert_eq!(tightest("4:cpu,cpuacct:/\n", v1), None);
    }

    #[test]
    fn openmp_may_not_bind_threads() {
        let said = |pairs: &[(&str, &str)]| {
            bound_by_openmp(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string()))
        };
        assert_eq!(said(&[]), None);
        assert_eq!(said(&[("OMP_PROC_BIND", "FALSE"), ("OMP_PLACES", "cores")]), None);
        for (name, value) in [("OMP_PROC_BIND", "close"), ("OMP_PLACES", "cores"), ("GOMP_CPU_AFFINITY", "0-3")] {
            let text = said(&[(name, value)]).unwrap();
            assert!(text.contains(&format!("{name}={value}")) && text.contains("OMP_PROC_BIND=false"), "{text}");
        }
    }

    #[test]
    fn lists_as_the_kernel_writes_them() {
        assert_eq!(parse_list("0-2,5,7-8"), [0, 1, 2, 5, 7, 8]);
        assert!(!affinity().is_empty());
    }
}
