//! Finds the GPUs that each rank may use, from environment variables and device files without CUDA. Also checks whether
//! ranks opened the same GPU.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;

use base::text::plural;
use comm::launcher;
use engine::graph::BuildError;
use serde::{Deserialize, Serialize};

use crate::device::{Device, Gpu};
use crate::error::Error;
use crate::train::agree::Session;

/// The comparison of all ranks' GPUs. Equal on every rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckedGpus {
    /// The reason why NCCL cannot connect the GPUs, if there is one.
    pub no_nccl: Option<String>,
    /// Notes about shared GPUs, different models of GPU, and GPUs that cannot reach each other.
    pub notes: Vec<String>,
}

/// A rank's GPU, and the GPUs that the rank may open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Opened {
    gpu: Gpu,
    devices: Vec<String>,
}

/// Compares all ranks' GPUs. Returns an error on all ranks if two ranks opened the same GPU and `may_share` is not set. Does nothing if
/// ranks compute on CPUs. Collective.
pub fn check(session: &Session, own: Option<&Gpu>, may_share: bool) -> Result<CheckedGpus, Error> {
    let Some(own) = own else { return Ok(CheckedGpus::default()) };
    let host = &session.world.host;
    session.watch.set_place(place(host, own));
    if session.world.size == 1 {
        return Ok(CheckedGpus::default());
    }
    let own = Opened { gpu: Gpu { host: host.clone(), ..own.clone() }, devices: files() };
    let gpus = session.comm.gather_all("exchange of GPUs", &own)?;
    let devices = gpus.iter().map(|rank| (rank.gpu.host.as_str(), rank.devices.as_slice()));
    let apart = apart(devices).map(|why| format!("note: {why}"));
    let gpus: Vec<&Gpu> = gpus.iter().map(|rank| &rank.gpu).collect();
    // all ranks compare the same list, so they fail together
    let mut checked = session.agree(judge(&gpus, may_share))?;
    checked.notes.extend(apart);
    Ok(checked)
}

fn place(host: &str, gpu: &Gpu) -> String {
    format!("{host}, {} ({})", gpu.name, gpu.uuid)
}

/// Adds node and GPU to an error of a GPU that was lost or failed. Adds nothing to other errors.
pub fn located<D: Device>(_: &D, error: Error, host: &str, gpu: Option<&Gpu>) -> Error {
    let error = match error {
        // the device failed while a network was built on it
        Error::Build(BuildError::Backend(source)) => Error::Backend(source),
        other => other,
    };
    match error {
        Error::Backend(source @ (backend::Error::Lost { .. } | backend::Error::Foreign { .. })) if D::REMOVABLE => {
            Error::Gpu { place: gpu.map_or_else(|| host.to_string(), |gpu| place(host, gpu)), source }
        }
        other => other,
    }
}

/// Compares the GPUs. `gpus` has one entry per rank.
fn judge(gpus: &[&Gpu], may_share: bool) -> Result<CheckedGpus, Error> {
    let mut notes = Vec::new();
    let pair = |equal: &dyn Fn(&Gpu, &Gpu) -> bool| {
        (0..gpus.len()).find_map(|b| Some(((0..b).find(|&a| equal(gpus[a], gpus[b]))?, b)))
    };
    let shared = pair(&|a, b| a.uuid == b.uuid);
    if let Some((a, b)) = shared {
        let Gpu { host, name, uuid, .. } = gpus[b];
        if !may_share {
            return Err(Error::SharedGpu { ranks: [a, b], host: host.clone(), gpu: format!("{name}, {uuid}") });
        }
        notes.push(format!(
            "note: ranks {a} and {b} share a GPU ({name}, {uuid}), so a step is slower than with a single rank"
        ));
    }
    let no_nccl = match (shared, pair(&|a, b| (&a.host, &a.bus) == (&b.host, &b.bus))) {
        (Some(_), _) => Some("ranks share a GPU, but NCCL allows only one rank per GPU".into()),
        (None, Some((a, b))) => Some(format!(
            "ranks {a} and {b} have parts (MIG) of the GPU {} on {}, but NCCL allows only one rank per GPU",
            gpus[b].bus, gpus[b].host
        )),
        (None, None) => None,
    };
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
    Ok(CheckedGpus { no_nccl, notes })
}

/// The GPUs that a rank may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VisibleGpus {
    host: String,
    /// Device numbers or ids of the GPUs. A GPU has the same name on all ranks of the node.
    gpus: Vec<String>,
    /// Numbers of the devices that the rank may open.
    devices: Vec<String>,
}

/// Returns the GPUs that this rank may open and that CUDA_VISIBLE_DEVICES selects.
pub fn visible(host: &str) -> VisibleGpus {
    let (chosen, devices) = (launcher::variable("CUDA_VISIBLE_DEVICES"), files());
    VisibleGpus { host: host.to_string(), gpus: choose(chosen.as_deref(), &devices), devices }
}

/// Returns the numbers of the NVIDIA devices that this process may open. A cgroup forbids the devices of other jobs.
fn files() -> Vec<String> {
    let may_open = |n: &usize| File::options().read(true).write(true).open(format!("/dev/nvidia{n}")).is_ok();
    (0..64).filter(may_open).map(|n| n.to_string()).collect()
}

/// Selects GPUs as CUDA does with `chosen` (CUDA_VISIBLE_DEVICES): CUDA numbers the devices in `files` from 0 and stops at the first
/// invalid entry.
fn choose(chosen: Option<&str>, files: &[String]) -> Vec<String> {
    let Some(chosen) = chosen else { return files.to_vec() };
    let name = |entry: &str| match entry.parse::<usize>() {
        Ok(n) if files.is_empty() => Some(n.to_string()),
        Ok(n) => files.get(n).cloned(),
        Err(_) => (entry.starts_with("GPU-") || entry.starts_with("MIG-")).then(|| entry.to_string()),
    };
    chosen.split(',').map(|entry| name(entry.trim())).take_while(Option::is_some).flatten().collect()
}

/// Returns a warning if there is a node on which each rank may open exactly one GPU, and these GPUs are not all the same. `ranks` has, for
/// each rank, the node and the devices that the rank may open.
fn apart<'a>(ranks: impl Iterator<Item = (&'a str, &'a [String])>) -> Option<String> {
    let mut nodes: BTreeMap<&str, Vec<&[String]>> = BTreeMap::new();
    ranks.for_each(|(host, devices)| nodes.entry(host).or_default().push(devices));
    let hides = |ranks: &Vec<&[String]>| {
        ranks.iter().all(|devices| devices.len() == 1) && ranks.iter().collect::<BTreeSet<_>>().len() > 1
    };
    let (host, _) = nodes.into_iter().find(|(_, ranks)| hides(ranks))?;
    Some(format!(
        "each rank on {host} may open only its own GPU, as after sbatch --gpus-per-task=1. NCCL and MPI then cannot copy from GPU to GPU, \
         so they are slow or fail. Use --gpus-per-node=N --gpu-bind=none instead: each rank then takes the GPU with the same number as \
         the rank has on its node"
    ))
}

pub fn warnings(ranks: &[VisibleGpus]) -> Vec<String> {
    let devices = ranks.iter().map(|rank| (rank.host.as_str(), rank.devices.as_slice()));
    shared(ranks).into_iter().chain(apart(devices)).collect()
}

/// Returns a warning if a node has fewer GPUs than ranks.
fn shared(ranks: &[VisibleGpus]) -> Option<String> {
    let mut nodes: BTreeMap<&str, (usize, BTreeSet<&str>)> = BTreeMap::new();
    for rank in ranks {
        let (count, gpus) = nodes.entry(&rank.host).or_default();
        *count += 1;
        gpus.extend(rank.gpus.iter().map(String::as_str));
    }
    let (host, (count, gpus)) = nodes.into_iter().find(|(_, (count, gpus))| (1..*count).contains(&gpus.len()))?;
    Some(format!(
        "the {count} ranks on {host} share {}, {}: ask for one per rank (sbatch --gpus-per-node=N --gpu-bind=none), or start fewer ranks",
        plural(gpus.len(), "GPU"),
        gpus.iter().copied().collect::<Vec<_>>().join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use support::mentions;

    fn warning(lines: &[&str]) -> Option<String> {
        let visible = |line: &&str| {
            let mut words = line.split(' ').map(String::from);
            VisibleGpus { host: words.next().unwrap(), gpus: words.collect(), devices: Vec::new() }
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
    fn two_ranks_on_one_gpu_are_an_error_unless_allowed() {
        let gpu = |name: &str, uuid: &str, bus: &str| Gpu {
            host: "n1".into(),
            name: name.into(),
            uuid: uuid.into(),
            bus: bus.into(),
        };
        let [a, b] = [gpu("H200", "a", "1"), gpu("H200", "b", "2")];
        assert_eq!(judge(&[&a, &b], false).unwrap(), CheckedGpus::default());
        let shared = [&a, &b, &b];
        let error = judge(&shared, false).unwrap_err();
        assert!(matches!(&error, Error::SharedGpu { ranks: [1, 2], host, .. } if host == "n1"), "{error:?}");
        mentions(error, &["--share-gpu"]);
        let allowed = judge(&shared, true).unwrap();
        mentions(allowed.no_nccl.unwrap(), &["share a GPU", "NCCL"]);
        mentions(&allowed.notes[0], &["ranks 1 and 2", "(H200, b)"]);
        let mixed = judge(&[&gpu("A100", "c", "3"), &b], false).unwrap();
        assert_eq!(mixed.no_nccl, None);
        mentions(&mixed.notes[0], &["2 kinds", "(A100, H200)"]);
    }

    /// Parts of a GPU (MIG) have different ids but the same PCI address. GPUs in different nodes may also have the same address.
    #[test]
    fn nccl_cannot_connect_parts_of_a_gpu() {
        let part = |uuid: &str, host: &str| Gpu {
            host: host.into(),
            name: "H200 MIG 1g".into(),
            uuid: uuid.into(),
            bus: "0000:01:00.0".into(),
        };
        let checked = judge(&[&part("a", "n1"), &part("b", "n1")], false).unwrap();
        assert_eq!(checked.notes, [""; 0]);
        let why = checked.no_nccl.unwrap();
        mentions(why, &["ranks 0 and 1", "MIG", "0000:01:00.0 on n1", "NCCL"]);
        assert_eq!(judge(&[&part("a", "n1"), &part("b", "n2")], false).unwrap().no_nccl, None);
    }

    #[test]
    fn gpus_that_a_cgroup_hides_are_reported() {
        let apart = |ranks: &[(&str, &[&str])]| {
            let ranks: Vec<(&str, Vec<String>)> =
                ranks.iter().map(|(host, gpus)| (*host, gpus.iter().map(|gpu| gpu.to_string()).collect())).collect();
            super::apart(ranks.iter().map(|(host, gpus)| (*host, gpus.as_slice())))
        };
        assert_eq!(apart(&[("a", &["0", "1"]), ("a", &["0", "1"])]), None);
        assert_eq!(
            apart(&[("a", &["0"]), ("a", &["0"]), ("b", &["1"])]),
            None,
            "a shared GPU, and one on another node"
        );
        assert_eq!(apart(&[("a", &[]), ("a", &[])]), None);
        let text = apart(&[("a", &["0"]), ("b", &["0"]), ("b", &["1"])]).unwrap();
        mentions(text, &["each rank on b ", "--gpu-bind=none"]);
    }

    #[test]
    fn ranks_that_must_share_are_named() {
        assert_eq!(warning(&["a", "a"]), None);
        assert_eq!(warning(&["a 0", "a 1", "b 0", "b 1"]), None);
        assert_eq!(warning(&["a 0 1", "a 0 1"]), None);
        let text = warning(&["a 0", "a 1", "b 0", "b 0"]).unwrap();
        mentions(text, &["2 ranks on b ", " 1 GPU,", "--gpu-bind=none"]);
        mentions(warning(&["a 0 1", "a 0 1", "a 0 1"]).unwrap(), &["3 ranks on a ", " 2 GPUs,"]);
    }
}
