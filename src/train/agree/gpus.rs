//! Which GPUs each rank may use, as environment and device files tell without CUDA, and which one it has opened; whether ranks
//! share one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;

use crate::comm::launcher;
use crate::device::Gpu;
use crate::error::Error;
use crate::train::agree::session::Session;

/// What the cards of all ranks are to one another; the same on every rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckedGpus {
    /// Whether two ranks share one.
    pub shared: bool,
    /// What is to be said of sharing, and of cards of several kinds.
    pub notes: Vec<String>,
}

/// Learns of all ranks' cards: fails on all of them where two share one without leave. Collective, and nothing where ranks compute
/// on processors.
pub fn check(session: &Session, own: Option<&Gpu>, may_share: bool) -> Result<CheckedGpus, Error> {
    let Some(card) = own.filter(|_| session.world.size > 1) else { return Ok(CheckedGpus::default()) };
    let card = Gpu { host: session.world.host.clone(), ..card.clone() };
    let odd = |e: serde_json::Error| Error::Failed(format!("the cards of the ranks: {e}"));
    let line = serde_json::to_vec(&card).map_err(odd)?;
    let lines = session.comm.run("exchange of cards", move |world| {
        let mut all = world.gather(&line)?.map_or_else(Vec::new, |lines| lines.join(&b'\n'));
        world.broadcast(&mut all, 0)?;
        Ok(all)
    })?;
    let lines = lines.split(|byte| *byte == b'\n');
    let cards: Vec<Gpu> = lines.map(serde_json::from_slice).collect::<Result<_, _>>().map_err(odd)?;
    // all ranks see the same cards, so all end here together
    session.agree(judge(&cards, may_share).map_err(Error::Failed))
}

/// What the cards of ranks 0, 1, ... are to one another; the error says what is wrong.
fn judge(cards: &[Gpu], may_share: bool) -> Result<CheckedGpus, String> {
    let mut notes = Vec::new();
    let pair = (0..cards.len()).find_map(|b| Some(((0..b).find(|&a| cards[a].uuid == cards[b].uuid)?, b)));
    if let Some((a, b)) = pair {
        let Gpu { host, name, uuid } = &cards[b];
        if !may_share {
            return Err(format!(
                "ranks {a} and {b} on {host} have opened the same GPU ({name}, {uuid}): start one rank a GPU (sbatch \
                 --gpus-per-task=1 --ntasks-per-node=<GPUs of a node>, or mpirun --map-by ppr:<GPUs of a node>:node), or \
                 --share-gpu to let them"
            ));
        }
        notes.push(format!(
            "note: ranks {a} and {b} share a GPU ({name}, {uuid}): a step takes longer than on one rank"
        ));
    }
    let kinds: BTreeSet<&str> = cards.iter().map(|card| card.name.as_str()).collect();
    if kinds.len() > 1 {
        let kinds: Vec<&str> = kinds.into_iter().collect();
        notes.push(format!(
            "note: the ranks have GPUs of {} kinds ({}): another number of ranks may compute other bits, and every step takes as \
             long as on the slowest",
            kinds.len(),
            kinds.join(", ")
        ));
    }
    Ok(CheckedGpus { shared: pair.is_some(), notes })
}

/// The GPUs that one rank may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visible {
    /// Its node.
    host: String,
    /// Names that are the same for all ranks of the node: a number of the machine's, or an id.
    gpus: Vec<String>,
}

/// What this rank may use: the device files that it may open, or those of them that CUDA_VISIBLE_DEVICES names.
pub fn visible(host: &str) -> Visible {
    let chosen = launcher::variable("CUDA_VISIBLE_DEVICES");
    Visible { host: host.to_string(), gpus: choose(chosen.as_deref(), &files()) }
}

/// Numbers of the NVIDIA devices that this process may open: a cgroup forbids a task those of its neighbours.
fn files() -> Vec<String> {
    let may_open = |n: &usize| File::options().read(true).write(true).open(format!("/dev/nvidia{n}")).is_ok();
    (0..64).filter(may_open).map(|n| n.to_string()).collect()
}

/// CUDA counts the devices that it may open from 0 and stops at the first entry that is none of them.
fn choose(chosen: Option<&str>, files: &[String]) -> Vec<String> {
    let Some(chosen) = chosen else { return files.to_vec() };
    let name = |entry: &str| match entry.parse::<usize>() {
        Ok(n) if files.is_empty() => Some(n.to_string()),
        Ok(n) => files.get(n).cloned(),
        Err(_) => (entry.starts_with("GPU-") || entry.starts_with("MIG-")).then(|| entry.to_string()),
    };
    chosen.split(',').map(|entry| name(entry.trim())).take_while(Option::is_some).flatten().collect()
}

impl Visible {
    /// `host gpu gpu ...`, for [`shared`].
    pub fn line(&self) -> String {
        std::iter::once(&self.host).chain(&self.gpus).map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    fn parse(line: &[u8]) -> Self {
        let line = String::from_utf8_lossy(line);
        let mut words = line.split(' ').map(String::from);
        Self { host: words.next().unwrap_or_default(), gpus: words.collect() }
    }
}

/// What to say when a node has GPUs, but fewer than ranks; from the [`Visible::line`] of each rank.
pub fn shared(lines: &[Vec<u8>]) -> Option<String> {
    let ranks: Vec<Visible> = lines.iter().map(|line| Visible::parse(line)).collect();
    let mut nodes: BTreeMap<&str, (usize, BTreeSet<&str>)> = BTreeMap::new();
    for rank in &ranks {
        let (count, gpus) = nodes.entry(&rank.host).or_default();
        *count += 1;
        gpus.extend(rank.gpus.iter().map(String::as_str));
    }
    let (host, (count, gpus)) = nodes.into_iter().find(|(_, (count, gpus))| (1..*count).contains(&gpus.len()))?;
    Some(format!(
        "the {count} ranks on {host} share {} GPU(s), {gpus:?}: ask for one a rank (sbatch --gpus-per-task=1), or \
         start fewer ranks",
        gpus.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(lines: &[&str]) -> Option<String> {
        shared(&lines.iter().map(|line| line.as_bytes().to_vec()).collect::<Vec<_>>())
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
    fn two_ranks_on_one_card_are_an_error_unless_they_may() {
        let card = |name: &str, uuid: &str| Gpu { host: "n1".into(), name: name.into(), uuid: uuid.into() };
        let apart = [card("H200", "a"), card("H200", "b")];
        assert_eq!(judge(&apart, false), Ok(CheckedGpus::default()));
        let shared = [card("H200", "a"), card("H200", "b"), card("H200", "b")];
        let text = judge(&shared, false).unwrap_err();
        assert!(text.contains("ranks 1 and 2 on n1") && text.contains("--share-gpu"), "{text}");
        let allowed = judge(&shared, true).unwrap();
        assert!(allowed.shared && allowed.notes[0].contains("ranks 1 and 2 share a GPU"), "{allowed:?}");
        let mixed = judge(&[card("A100", "a"), card("H200", "b")], false).unwrap();
        assert!(!mixed.shared && mixed.notes[0].contains("2 kinds (A100, H200)"), "{mixed:?}");
    }

    #[test]
    fn ranks_that_must_share_are_named() {
        assert_eq!(say(&["a", "a"]), None);
        assert_eq!(say(&["a 0", "a 1", "b 0", "b 1"]), None);
        assert_eq!(say(&["a 0 1", "a 0 1"]), None);
        let text = say(&["a 0", "a 1", "b 0", "b 0"]).unwrap();
        assert!(text.contains("2 ranks on b share 1 GPU(s)") && text.contains("--gpus-per-task=1"), "{text}");
        assert!(say(&["a 0 1", "a 0 1", "a 0 1"]).is_some_and(|text| text.contains("3 ranks on a share 2 GPU(s)")));
    }

    #[test]
    fn lines_come_back_as_they_were() {
        let rank = Visible { host: "a".into(), gpus: files(2) };
        assert_eq!(Visible::parse(rank.line().as_bytes()), rank);
    }
}
