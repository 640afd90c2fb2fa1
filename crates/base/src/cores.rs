//! The CPU cores that a rank may use, and warnings about bad core bindings.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::text::plural;

/// The cores that one rank may run on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mask {
    pub host: String,
    /// Indexes of the logical CPUs.
    pub cpus: Vec<usize>,
    /// CPU quota in whole cores, at least 1, from the rank's cgroup. All ranks on the host share it. `None` without a
    /// quota.
    pub quota: Option<usize>,
}

impl Mask {
    /// Returns the mask of this process, which runs on `host`.
    pub fn of_process(host: &str) -> Self {
        Self { host: host.into(), cpus: affinity(), quota: quota() }
    }
}

/// Returns the logical CPUs that this process may run on.
pub fn affinity() -> Vec<usize> {
    let status = read("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap_or("0");
    parse_list(list.trim())
}

/// Returns the number of whole cores that this process may use, if no other rank shares them.
pub fn available() -> usize {
    share(&[Mask::of_process("")], 0)
}

/// Parses a list of CPUs such as `0-3,8`.
fn parse_list(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (a, b) = part.split_once('-').unwrap_or((part, part));
        Some(a.trim().parse().ok()?..=b.trim().parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Returns the text of /proc/self/cgroup, which lists this process's groups.
fn groups() -> String {
    read("/proc/self/cgroup").unwrap_or_default()
}

/// Returns the number of whole CPUs that the cgroup bandwidth limits allow, at least 1. This process's group and its
/// ancestors each have a limit, and the tightest limit applies.
fn quota() -> Option<usize> {
    tightest(&groups(), read).map(|cpus| cpus.max(1))
}

/// Returns the folders of the groups that can limit `controller` in version 1 or 2, each followed by its ancestors.
/// `groups` is the text of /proc/self/cgroup. Inside a container, the group's own path may not exist, but the files in
/// the root belong to the container's group.
fn folders(groups: &str, controller: &str) -> Vec<String> {
    let mut folders = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let root = match controllers {
            "" => "/sys/fs/cgroup".to_string(),
            list if list.split(',').any(|c| c == controller) => format!("/sys/fs/cgroup/{controller}"),
            _ => continue,
        };
        let paths = Path::new(path).ancestors().filter_map(Path::to_str);
        folders.extend(paths.map(|path| format!("{root}{}", path.trim_end_matches('/'))));
    }
    folders
}

/// Returns the tightest limit for the groups in the text of /proc/self/cgroup. Reads `cpu.max` (version 2) or
/// `cpu.cfs_quota_us` (version 1).
fn tightest(groups: &str, read: impl Fn(&str) -> Option<String>) -> Option<usize> {
    let limits = folders(groups, "cpu").into_iter().filter_map(|folder| limit(&folder, &read));
    limits.min_by(f64::total_cmp).map(|cpus| cpus.floor() as usize)
}

/// Returns the number of CPUs that one group allows, or `None` without a limit.
fn limit(folder: &str, read: &impl Fn(&str) -> Option<String>) -> Option<f64> {
    let number = |name: &str| read(&format!("{folder}/{name}"))?.trim().parse::<f64>().ok();
    let (quota, period) = match read(&format!("{folder}/cpu.max")) {
        Some(text) => {
            let (quota, period) = text.trim().split_once(' ')?;
            (quota.parse().ok()?, period.parse().ok()?)
        }
        None => (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?),
    };
    // Version 1 writes -1 if there is no limit.
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// Returns the number of CPUs in the group's cpuset. If the group has no cpuset, the nearest ancestor with a cpuset
/// counts. Schedulers and containers use cpusets to restrict a job to a part of its node. `groups` is the text in
/// /proc/self/cgroup.
fn cpuset(groups: &str, read: impl Fn(&str) -> Option<String>) -> Option<usize> {
    let files = ["cpuset.cpus.effective", "cpuset.effective_cpus"];
    let list = |folder: String| files.iter().find_map(|file| read(&format!("{folder}/{file}")));
    let list = folders(groups, "cpuset").into_iter().find_map(list)?;
    Some(parse_list(list.trim()).len())
}

/// Returns the number of whole cores for this rank, at least 1. A core that k ranks may use counts as 1/k for each rank.
/// If the CPU quota allows less time than the ranks have cores, the ranks divide it in proportion to their cores.
pub fn share(masks: &[Mask], rank: usize) -> usize {
    let Some(mask) = masks.get(rank) else { return 1 };
    let users = users(masks);
    let total = portion(mask, &users) * quota_factor(mask, &users);
    ((total + 1e-9).floor() as usize).max(1)
}

/// Adds up a rank's shares of its cores. A core that n ranks use counts 1/n.
fn portion(mask: &Mask, users: &Users<'_>) -> f64 {
    mask.cpus.iter().map(|cpu| 1.0 / users[&(mask.host.as_str(), *cpu)] as f64).sum()
}

/// Returns the fraction of its cores' time that a rank may use: the quota divided by the result of [`cores_in_use`], at
/// most 1.
fn quota_factor(mask: &Mask, users: &Users<'_>) -> f64 {
    mask.quota.map_or(1.0, |quota| (quota as f64 / cores_in_use(&mask.host, users) as f64).min(1.0))
}

/// Counts the cores that a host's ranks may use.
fn cores_in_use(host: &str, users: &Users<'_>) -> usize {
    users.range((host, 0)..=(host, usize::MAX)).count()
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
    let crowded = masks.iter().position(|mask| portion(mask, &users) * quota_factor(mask, &users) < 0.99)?;
    let m = &masks[crowded];
    if let Some(quota) = m.quota.filter(|_| portion(m, &users) >= 0.99) {
        return Some(format!(
            "warning: rank {crowded} has less than one core, because the ranks on {} share a CPU quota of {}: start fewer ranks per \
             node, or raise the quota",
            m.host,
            plural(quota, "core")
        ));
    }
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
    let online = parse_list(read("/sys/devices/system/cpu/online")?.trim()).len();
    let usable = [quota(), cpuset(&groups(), read)].into_iter().flatten().fold(online, usize::min);
    let bound = cores_in_use(host, &users(masks));
    (masks.len() > 1 && bound < usable).then(|| {
        format!(
            "note: the ranks on {host} are bound to {bound} of {usable} available cores. To use all of them: mpirun --bind-to none (Open \
             MPI) or srun --cpus-per-task=n"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `host cpu cpu ...`.
    fn mask(line: &str) -> Mask {
        let mut words = line.split(' ');
        let host = words.next().unwrap().into();
        Mask { host, cpus: words.map(|word| word.parse().unwrap()).collect(), quota: None }
    }

    fn masks(lines: &[&str]) -> Vec<Mask> {
        lines.iter().map(|line| mask(line)).collect()
    }

    fn with_quota(quota: usize, lines: &[&str]) -> Vec<Mask> {
        lines.iter().map(|line| Mask { quota: Some(quota), ..mask(line) }).collect()
    }

    fn own(masks: &[Mask]) -> Vec<usize> {
        (0..masks.len()).map(|rank| share(masks, rank)).collect()
    }

    #[test]
    fn unbound_ranks_divide_their_node() {
        let m = masks(&["a 0 1 2 3", "a 0 1 2 3", "b 0 1 2 3"]);
        assert_eq!(own(&m), [2, 2, 4]);
        assert_eq!(warning(&m), None);
    }

    #[test]
    fn bound_ranks_have_what_they_are_bound_to() {
        let m = masks(&["a 0 1", "a 2 3"]);
        assert_eq!(own(&m), [2, 2]);
    }

    #[test]
    fn ranks_divide_the_quota_of_their_node() {
        let (low, high) = ("a 0 1 2 3 4 5 6 7", "a 8 9 10 11 12 13 14 15");
        assert_eq!(own(&with_quota(4, &[low, high])), [2, 2]);
        assert_eq!(own(&with_quota(4, &[low, low])), [2, 2]);
        assert_eq!(own(&with_quota(4, &[low])), [4]);
        assert_eq!(own(&with_quota(4, &["a 0 1 2 3 4 5", "a 6 7"])), [3, 1]);
        assert_eq!(own(&with_quota(16, &[low, high])), [8, 8]);
        assert_eq!(warning(&with_quota(2, &[low, high])), None);
        let text = warning(&with_quota(1, &[low, high])).unwrap();
        assert!(["rank 0 ", " a ", "quota of 1 core:"].iter().all(|part| text.contains(part)), "{text}");
        let text = warning(&with_quota(8, &["a 0", "a 0"])).unwrap();
        assert!(text.contains("--bind-to none"), "{text}");
    }

    #[test]
    fn two_ranks_on_one_core_are_named() {
        let m = masks(&["node7 0 1", "node7 2", "node7 2"]);
        assert_eq!(share(&m, 1), 1);
        let text = warning(&m).unwrap();
        assert!(["rank 1 ", "[2]", "node7", "--bind-to none"].iter().all(|part| text.contains(part)), "{text}");
    }

    /// Returns a function that reads these files, given by path and content.
    fn files(files: &'static [(&'static str, &'static str)]) -> impl Fn(&str) -> Option<String> + Copy {
        move |path: &str| files.iter().find(|f| f.0 == path).map(|f| f.1.to_string())
    }

    #[test]
    fn the_cpuset_is_that_of_the_nearest_group() {
        let v2 = files(&[
            ("/sys/fs/cgroup/job/step/cpuset.cpus.effective", "0-15\n"),
            ("/sys/fs/cgroup/cpuset.cpus.effective", "0-127\n"),
        ]);
        assert_eq!(cpuset("0::/job/step\n", v2), Some(16));
        assert_eq!(cpuset("0::/job/step/task\n", v2), Some(16));
        assert_eq!(cpuset("0::/elsewhere\n", v2), Some(128));
        assert_eq!(cpuset("0::/job/step\n", files(&[])), None);
        let v1 = files(&[("/sys/fs/cgroup/cpuset/job/cpuset.effective_cpus", "0-3,8\n")]);
        assert_eq!(cpuset("9:memory:/job\n4:cpuset:/job\n", v1), Some(5));
    }

    #[test]
    fn the_tightest_cgroup_counts() {
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
