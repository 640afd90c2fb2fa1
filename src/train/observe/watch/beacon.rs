//! The ranks' news as files: OUT/.ranks/RANK, one line of JSON each, written again in place every few seconds.
//!
//! One file a rank, since network file systems lose writes of several nodes to one file; of a fixed length, so that a reader never sees
//! half a line; opened and closed each time, since NFS passes changes on then. Nothing here can end a run: what cannot be written or read
//! is ignored.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::news::News;
use loaders::safe_create;

/// Bytes of a file.
const LENGTH: usize = 512;

/// Where this rank and the others leave their news.
pub struct Beacon {
    folder: PathBuf,
    rank: usize,
    host: String,
}

impl Beacon {
    /// Under the output folder `out`. Rank 0 removes what an earlier run left.
    pub fn new(out: &Path, rank: usize, ranks: usize) -> Self {
        let beacon = Self { folder: out.join(".ranks"), rank, host: host() };
        if rank == 0 {
            (0..ranks).for_each(|rank| drop(fs::remove_file(beacon.file(rank))));
        }
        // a link would lead the files elsewhere
        if fs::symlink_metadata(&beacon.folder).is_ok_and(|meta| meta.is_symlink()) {
            let _ = fs::remove_file(&beacon.folder);
        }
        let _ = fs::create_dir(&beacon.folder);
        beacon
    }

    fn file(&self, rank: usize) -> PathBuf {
        self.folder.join(rank.to_string())
    }

    /// Replaces this rank's news.
    pub fn write(&self, news: News) {
        let Ok(mut line) = serde_json::to_vec(&News { host: self.host.clone(), ..news }) else { return };
        line.resize(LENGTH - 1, b' ');
        line.push(b'\n');
        if let Ok(mut file) = safe_create::to_update(&self.file(self.rank)) {
            let _ = file.write_all(&line);
        }
    }

    /// A rank's news, if there are any.
    pub fn read(&self, rank: usize) -> Option<News> {
        serde_json::from_slice(&fs::read(self.file(rank)).ok()?).ok()
    }

    /// Removes this rank's file; the last rank removes the folder.
    pub fn remove(&self) {
        let _ = fs::remove_file(self.file(self.rank));
        // refused while other ranks' files are there
        let _ = fs::remove_dir(&self.folder);
    }
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    // long names would not fit
    name.trim().chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_come_back_whole_and_a_clean_end_leaves_nothing() {
        let out = std::env::temp_dir().join(format!("trireme-beacon-{}", std::process::id()));
        fs::create_dir_all(&out).unwrap();
        let (zero, one) = (Beacon::new(&out, 0, 2), Beacon::new(&out, 1, 2));
        assert!(zero.read(1).is_none());
        let long =
            News { beat: 7, name: "sum of losses and statistics".into(), activity: "x".repeat(80), ..News::default() };
        one.write(long.clone());
        // a shorter line replaces a longer one without a rest
        one.write(News { beat: 8, activity: "computes step 3".into(), ..long });
        let read = zero.read(1).unwrap();
        assert_eq!((read.beat, read.activity.as_str()), (8, "computes step 3"));
        assert_eq!(fs::metadata(out.join(".ranks/1")).unwrap().len(), LENGTH as u64);
        // what is cut short is no news
        fs::write(out.join(".ranks/1"), &fs::read(out.join(".ranks/1")).unwrap()[..40]).unwrap();
        assert!(zero.read(1).is_none());
        zero.write(News::default());
        one.remove();
        assert!(out.join(".ranks").exists());
        zero.remove();
        assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
        fs::remove_dir_all(&out).unwrap();
    }
}
