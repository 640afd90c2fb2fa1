//! Report before the first step: a table of ranks with hosts, cores and devices, and the free space for the output
//! directory. Warnings about the launch or the cores are in the session's notes.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::path::Path;

use base::cores::Mask;
use base::text::plural;
use comm::launcher;
use loaders::crc32c::crc32c_append;
use loaders::filesystem::FileSystem;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::train::agree::Session;

/// Maximum number of hosts in the table.
const HOSTS: usize = 16;

/// One rank's row of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RankRow {
    rank: usize,
    host: String,
    device: String,
    cpus: Vec<usize>,
    quota: Option<usize>,
}

/// Returns the table on rank 0, and no lines on other ranks. `device` describes this rank's device. `equal` lists the
/// things that were found to be equal on all ranks. Collective.
pub fn table(session: &Session, device: &str, equal: &str) -> Result<Vec<String>, Error> {
    let world = &session.world;
    let Mask { host, cpus, quota } = Mask::of_process(&world.host);
    let seat = RankRow { rank: world.rank, host, device: device.into(), cpus, quota };
    let Some(seats) = session.comm.gather("gathering of the ranks' places", &seat)? else { return Ok(Vec::new()) };
    let size = world.size;
    let started = launcher::launcher().map_or("no launcher".into(), |name| format!("started by {name}"));
    let equal = if size > 1 { format!("; equal on all: {equal}") } else { String::new() };
    let mut rows = vec![format!("launch     {}, {started}; MPI sums are correct{equal}", plural(size, "rank"))];
    rows.extend(slurm(launcher::variable, size));
    rows.extend(hosts(&seats));
    Ok(rows)
}

/// Returns a line about the Slurm job, or `None` outside Slurm.
fn slurm(lookup: impl Fn(&str) -> Option<String>, size: usize) -> Option<String> {
    let job = lookup("SLURM_JOB_ID")?;
    if launcher::is_over(&lookup) {
        return Some(format!("slurm      job {job} has ended, so its environment variables are ignored"));
    }
    let step = lookup("SLURM_STEP_ID").map_or_else(|| "batch script".into(), |step| format!("step {step}"));
    let tasks = lookup("SLURM_STEP_NUM_TASKS").or_else(|| lookup("SLURM_NTASKS")).unwrap_or_else(|| "?".into());
    Some(format!("slurm      job {job}, {step}: {} for {}", plural(tasks, "task"), plural(size, "rank")))
}

fn hosts(seats: &[RankRow]) -> Vec<String> {
    let mut hosts: BTreeMap<&str, Vec<&RankRow>> = BTreeMap::new();
    seats.iter().for_each(|seat| hosts.entry(&seat.host).or_default().push(seat));
    let mut sorted: Vec<_> = hosts.into_iter().collect();
    sorted.sort_by_key(|(_, seats)| seats[0].rank);
    let more = sorted.len().saturating_sub(HOSTS);
    let mut rows: Vec<String> = sorted.iter().take(HOSTS).map(|(host, seats)| row(host, seats)).collect();
    if more > 0 {
        rows.push(format!("           and {more} more hosts"));
    }
    rows
}

fn row(host: &str, seats: &[&RankRow]) -> String {
    let ranks = list(seats.iter().map(|seat| seat.rank));
    let mut all: Vec<usize> = seats.iter().flat_map(|seat| seat.cpus.iter().copied()).collect();
    let listed = all.len();
    all.sort_unstable();
    all.dedup();
    let cores = match seats {
        [_] => String::new(),
        _ if seats.iter().all(|seat| seat.cpus == seats[0].cpus) => ", all of them for each rank".into(),
        _ if listed == all.len() => format!(", {} for each rank", each(seats.iter().map(|seat| seat.cpus.len()))),
        _ => ", some shared by ranks".into(),
    };
    let quota = seats.iter().filter_map(|seat| seat.quota).min().filter(|quota| *quota < all.len());
    let quota = quota.map_or_else(String::new, |quota| format!(", CPU quota of {}", plural(quota, "core")));
    let mut devices: Vec<&str> = seats.iter().map(|seat| seat.device.as_str()).collect();
    devices.dedup();
    let rank = if seats.len() == 1 { "rank" } else { "ranks" };
    format!("{host:<10} {rank} {ranks}; cores {}{cores}{quota}; {}", list(all), devices.join(", "))
}

/// Formats a number that all counts have, such as `4`, or their range, such as `2 to 4`.
fn each(counts: impl Iterator<Item = usize> + Clone) -> String {
    let (least, most) = (counts.clone().min().unwrap_or(0), counts.max().unwrap_or(0));
    if least == most { least.to_string() } else { format!("{least} to {most}") }
}

/// Formats ascending numbers like `0-3,8`.
fn list(numbers: impl IntoIterator<Item = usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for n in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == n => *last = n,
            _ => ranges.push((n, n)),
        }
    }
    let text = |(a, b): (usize, usize)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    ranges.into_iter().map(text).collect::<Vec<_>>().join(",")
}

/// Sizes of a run's files, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskNeed {
    pub checkpoint: u64,
    pub model: u64,
    pub keep: u64,
}

impl DiskNeed {
    /// Returns the bytes of one checkpoint and the model. A run must not start with less free space.
    fn least(&self) -> u64 {
        self.checkpoint + self.model
    }

    /// Returns the bytes of all checkpoints to keep, one more while it is written, and the model.
    fn most(&self) -> u64 {
        (self.keep + 1) * self.checkpoint + self.model
    }
}

/// Returns the table's row about the output directory, which does not need to exist yet, and a warning if the free
/// space is short. Returns an error if one checkpoint and the model do not fit.
pub fn room(out: &Path, need: DiskNeed) -> Result<(String, Option<String>), Error> {
    let there = out.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("."));
    let there = if there.as_os_str().is_empty() { Path::new(".") } else { there };
    let disk = FileSystem::of(there).map_err(Error::file("find the free space of", there))?;
    if disk.size == 0 {
        // nothing can be stored on this file system, so creating the directory will fail and report the reason
        return Ok(("room       none".into(), None));
    }
    judge(out, &disk.name, disk.free, need)
}

fn judge(out: &Path, disk: &str, free: u64, need: DiskNeed) -> Result<(String, Option<String>), Error> {
    let mb = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    let sizes = format!("a checkpoint takes {}, model.h5 {}", mb(need.checkpoint), mb(need.model));
    if free < need.least() {
        return Err(Error::NoSpace { out: out.into(), free: mb(free), sizes });
    }
    let tight = (free < need.most()).then(|| {
        format!(
            "warning: {} has {} free, but with checkpoint.keep = {} the files of the run need {}. Free some space, or use --set \
             checkpoint.keep=1",
            out.display(),
            mb(free),
            need.keep,
            mb(need.most())
        )
    });
    Ok((format!("room       {} free ({disk}); {sizes}", mb(free)), tight))
}

/// Returns version, checksum and length of the program as one line.
pub fn program() -> String {
    let what = match checksum("/proc/self/exe") {
        Ok((crc, bytes)) => format!("crc32c {crc:08x}, {bytes} bytes"),
        Err(error) => format!("unreadable: {error}"),
    };
    format!("trireme {}, {what}", env!("CARGO_PKG_VERSION"))
}

/// Returns the CRC-32C and the length of a file. Reads it in pieces that fit into the CPU cache.
fn checksum(path: &str) -> std::io::Result<(u32, usize)> {
    let mut file = std::fs::File::open(path)?;
    let (mut piece, mut crc, mut bytes) = (vec![0; 1 << 18], 0, 0);
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok((crc, bytes)),
            Ok(n) => (crc, bytes) = (crc32c_append(crc, &piece[..n]), bytes + n),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use support::mentions;

    fn seat(rank: usize, host: &str, cpus: &[usize]) -> RankRow {
        RankRow { rank, host: host.into(), device: "cpu".into(), cpus: cpus.to_vec(), quota: None }
    }

    #[test]
    fn many_ranks_of_a_host_make_one_line() {
        let free: Vec<RankRow> = (0..128).map(|rank| seat(rank, "n1", &[0, 1, 2, 3])).collect();
        assert_eq!(hosts(&free).len(), 1);
        mentions(&hosts(&free)[0], &["n1 ", " 0-127;", " 0-3, all", "; cpu"]);
        let bound = [seat(0, "n2", &[0, 1]), seat(1, "n1", &[0]), seat(2, "n2", &[2, 3]), seat(3, "n1", &[0, 1])];
        let rows = hosts(&bound);
        assert_eq!(rows.len(), 2, "{rows:?}");
        mentions(&rows[0], &["n2 ", " 0,2;", " 0-3, 2 for each", "; cpu"]);
        mentions(&rows[1], &["n1 ", " 1,3;", " 0-1, some shared", "; cpu"]);
        let limited = [0, 1].map(|rank| RankRow { quota: Some(2), ..seat(rank, "n1", &[0, 1, 2]) });
        mentions(&hosts(&limited)[0], &[" 0-2, all of them for each rank, CPU quota of 2 cores; cpu"]);
        let many: Vec<RankRow> = (0..40).map(|rank| seat(rank, &format!("n{rank}"), &[0])).collect();
        assert_eq!(hosts(&many).len(), HOSTS + 1);
        assert!(hosts(&many)[HOSTS].contains("24 more hosts"));
    }

    #[test]
    fn slurm_is_named_inside_a_job() {
        assert_eq!(slurm(|_| None, 4), None);
        let job = |name: &str| {
            [("SLURM_JOB_ID", "9"), ("SLURM_NTASKS", "4")].iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string())
        };
        mentions(slurm(job, 2).unwrap(), &["slurm ", "job 9", "batch script", "4 tasks", "2 ranks"]);
    }

    #[test]
    fn too_little_space_is_an_error_and_little_space_a_warning() {
        let need = DiskNeed { checkpoint: 10_000_000, model: 5_000_000, keep: 3 };
        let at = |free| judge(Path::new("runs/a"), "ext4", free, need);
        let error = at(14_999_999).unwrap_err();
        let Error::NoSpace { out, free, sizes } = &error else { panic!("{error:?}") };
        assert_eq!((out.as_path(), free.as_str()), (Path::new("runs/a"), "15.0 MB"));
        mentions(sizes, &["10.0 MB", "model.h5 5.0 MB"]);
        mentions(&error, &["--out"]);
        let (row, tight) = at(15_000_000).unwrap();
        mentions(row, &["room ", "15.0 MB free", "ext4", "10.0 MB", "model.h5 5.0 MB"]);
        assert!(tight.is_some_and(|text| text.contains("keep = 3 ") && text.contains("45.0 MB")));
        assert_eq!(at(45_000_000).unwrap().1, None);
    }

    #[test]
    fn free_space_of_a_new_folder_is_read_from_its_parent() {
        let out = std::env::temp_dir().join("trireme-not-there/below/it");
        let (row, _) = room(&out, DiskNeed { checkpoint: 1, model: 1, keep: 1 }).unwrap();
        assert!(row.contains(" MB free ("), "{row}");
        let (row, _) = room(Path::new("/proc/not-there"), DiskNeed { checkpoint: 1, model: 1, keep: 1 }).unwrap();
        assert_eq!(row, "room       none");
        room(Path::new("not-there"), DiskNeed { checkpoint: 1, model: 1, keep: 1 }).unwrap();
    }
}
