//! Finds the GPUs that each rank may use, from environment variables and device files without CUDA. Also checks whether
//! ranks opened the same GPU.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;

use comm::launcher;
use engine::graph::BuildError;
use serde::{Deserialize, Serialize};

use crate::device::{Device, Gpu};
use crate::error::Error;
use crate::train::agree::Session;

/// The comparison of all ranks' GPUs. Equal on every rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckedGpus {
    /// Whether two ranks use the same GPU.
    pub shared: bool,
    /// Notes about shared GPUs and about different models of GPU.
    pub notes: Vec<String>,
}

/// Compares all ranks' GPUs. Returns an error on all ranks if two ranks share a GPU without permission. Does nothing if
/// ranks compute on CPUs. Collective.
pub fn check(session: &Session, own: Option<&Gpu>, may_share: bool) -> Result<CheckedGpus, Error> {
    let Some(own) = own.filter(|_| session.world.size > 1) else { return Ok(CheckedGpus::default()) };
    let own = Gpu { host: session.world.host.clone(), ..own.clone() };
    let gpus = session.comm.gather_all("exchange of GPUs", &own)?;
    // all ranks compare the same list, so they fail together
    session.agree(judge(&gpus, may_share))
}

/// Adds node and GPU to an error of a device that can fail on its own.
pub fn located<D: Device>(_: &D, error: Error, host: &str, gpu: Option<&Gpu>) -> Error {
    let error = match error {
        // an error of the device while a network is built on it
        Error::Build(BuildError::Backend(source)) => Error::Backend(source),
        other => other,
    };
    match error {
        Error::Backend(source @ (backend::Error::Lost { .. } | backend::Error::Foreign { .. })) if D::REMOVABLE => {
            let gpu = gpu.map_or(String::new(), |gpu| format!(", {} ({})", gpu.name, gpu.uuid));
            Error::Gpu { place: format!("{host}{gpu}"), source }
        }
        other => other,
    }
}

/// Compares the GPUs. `gpus` has one entry per rank.
fn judge(gpus: &[Gpu], may_share: bool) -> Result<CheckedGpus, Error> {
    let mut notes = Vec::new();
    let pair = (0..gpus.len()).find_map(|b| Some(((0..b).find(|&a| gpus[a].uuid == gpus[b].uuid)?, b)));
    if let Some((a, b)) = pair {
        let Gpu { host, name, uuid } = &gpus[b];
        if !may_share {
            return Err(Error::SharedGpu { ranks: [a, b], host: host.clone(), gpu: format!("{name}, {uuid}") });
        }
        notes.push(format!(
            "note: ranks {a} and {b} share a GPU ({name}, {uuid}), so a step takes longer than on one rank"
        ));
    }
    let kinds: BTreeSet<&str> = gpus.iter().map(|gpu| gpu.name.as_str()).collect();
    if kinds.len() > 1 {
        let kinds: Vec<&str> = kinds.into_iter().collect();
        notes.push(format!(
            "note: the ranks have {} kinds of GPU ({}). Results on another number of ranks may not be bit-identical, and every \
             step takes as long as on the slowest GPU",
            kinds.len(),
            kinds.join(", ")
        ));
    }
    Ok(CheckedGpus { shared: pair.is_some(), notes })
}

/// The GPUs that a rank may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VisibleGpus {
    host: String,
    /// Names that are equal on all ranks of the node: device numbers or ids.
    gpus: Vec<String>,
}

/// Returns the GPUs that this rank may open and that CUDA_VISIBLE_DEVICES selects.
pub fn visible(host: &str) -> VisibleGpus {
    let chosen = launcher::variable("CUDA_VISIBLE_DEVICES");
    VisibleGpus { host: host.to_string(), gpus: choose(chosen.as_deref(), &files()) }
}

/// Returns the numbers of the NVIDIA devices that this process may open. A cgroup forbids the devices of other jobs.
fn files() -> Vec<String> {
    let may_open = |n: &usize| File::options().read(true).write(true).open(format!("/dev/nvidia{n}")).is_ok();
    (0..64).filter(may_open).map(|n| n.to_string()).collect()
}

/// Selects GPUs as CUDA does: it numbers the devices that it may open from 0 and stops at the first invalid entry.
fn choose(chosen: Option<&str>, files: &[String]) -> Vec<String> {
    let Some(chosen) = chosen else { return files.to_vec() };
    let name = |entry: &str| match entry.parse::<usize>() {
        Ok(n) if files.is_empty() => Some(n.to_string()),
        Ok(n) => files.get(n).cloned(),
        Err(_) => (entry.starts_with("GPU-") || entry.starts_with("MIG-")).then(|| entry.to_string()),
    };
    chosen.split(',').map(|entry| name(entry.trim())).take_while(Option::is_some).flatten().collect()
}

/// Returns a warning if a node has fewer GPUs than ranks.
pub fn shared(ranks: &[VisibleGpus]) -> Option<String> {
    let mut nodes: BTreeMap<&str, (usize, BTreeSet<&str>)> = BTreeMap::new();
    for rank in ranks {
        let (count, gpus) = nodes.entry(&rank.host).or_default();
        *count += 1;
        gpus.extend(rank.gpus.iter().map(String::as_str));
    }
    let (host, (count, gpus)) = nodes.into_iter().find(|(_, (count, gpus))| (1..*count).contains(&gpus.len()))?;
    Some(format!(
        "the {count} ranks on {host} share {} GPU(s), {gpus:?}: ask for one per rank (sbatch --gpus-per-task=1), or start fewer ranks",
        gpus.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warning(lines: &[&str]) -> Option<String> {
        let visible = |line: &&str| {
            let mut words = line.split(' ').map(String::from);
            VisibleGpus { host: words.next().unwrap(), gpus: words.collect() }
        };
        shared(&lines.iter().map(visible).collect::<Vec<_>>())
    }

    fn files(n: usize) -> Vec<String> {
        (4..4 + n).map(|n| n.to_string()).collect()
    }

    #[test]
    fn cuda_counts_what_it_may_open() {
        assert_eq!(choose(None, &files(2)), ["4", "5"]);
        assert_eq!(choose(Some("1"), &files(2)), ["5"]);
        assert_eq!(choose(Some("0,1"), &[]), ["0", "1"]);
        assert_eq!(choose(Some("GPU-8932f937, 1,7,0"), &files(2)), ["GPU-8932f937", "5"]);
        for none in ["", "-1", "NoDevFiles"] {
            assert_eq!(choose(Some(none), &files(2)), [""; 0]);
        }
    }

    #[test]
    fn two_ranks_on_one_gpu_are_an_error_unless_they_may() {
        let gpu = |name: &str, uuid: &str| Gpu { host: "n1".into(), name: name.into(), uuid: uuid.into() };
        let separate = [gpu("H200", "a"), gpu("H200", "b")];
        assert_eq!(judge(&separate, false).unwrap(), CheckedGpus::default());
        let shared = [gpu("H200", "a"), gpu("H200", "b"), gpu("H200", "b")];
        let text = judge(&shared, false).unwrap_err().to_string();
        assert!(text.contains("ranks 1 and 2 on n1") && text.contains("--share-gpu"), "{text}");
        let allowed = judge(&shared, true).unwrap();
        assert!(allowed.shared && allowed.notes[0].contains("ranks 1 and 2 share a GPU"), "{allowed:?}");
        let mixed = judge(&[gpu("A100", "a"), gpu("H200", "b")], false).unwrap();
        assert!(!mixed.shared && mixed.notes[0].contains("2 kinds of GPU (A100, H200)"), "{mixed:?}");
    }

    #[test]
    fn ranks_that_must_share_are_named() {
        assert_eq!(warning(&["a", "a"]), None);
        assert_eq!(warning(&["a 0", "a 1", "b 0", "b 1"]), None);
        assert_eq!(warning(&["a 0 1", "a 0 1"]), None);
        let text = warning(&["a 0", "a 1", "b 0", "b 0"]).unwrap();
        assert!(text.contains("2 ranks on b share 1 GPU(s)") && text.contains("--gpus-per-task=1"), "{text}");
        assert!(warning(&["a 0 1", "a 0 1", "a 0 1"]).is_some_and(|text| text.contains("3 ranks on a share 2 GPU(s)")));
    }
}
