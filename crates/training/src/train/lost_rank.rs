//! The last words of a run that its launcher ends because a rank is gone: which, and how to go on. Launchers send SIGTERM to the ranks that
//! are left and kill them soon after; these wait in MPI for the one that is gone, and come to no end of their own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::screen;
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

use crate::train::observe::watch::Watch;
use crate::train::save::output;

/// How long a run that received SIGTERM has to end by itself before a rank that is gone is spoken of.
const FIRST: Duration = Duration::from_millis(200);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);
/// For how long a rank must have waited for others, where none is known to be gone.
const LONG: Duration = Duration::from_millis(500);
/// After this, a run that goes on is none that is killed: Open MPI leaves a second.
const LAST: Duration = Duration::from_millis(950);

/// A rank that has something to say if the run is killed. Dropped when the run ends by itself.
pub(super) struct LostRankMessage(Arc<AtomicBool>);

impl LostRankMessage {
    /// Waits for SIGTERM from now on, in a thread of its own. A run is no worse without it.
    pub fn prepare(watch: &Watch, out: &Path) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let listener = Listener { watch: watch.clone(), out: out.to_path_buf(), over: over.clone() };
        if let Ok(mut signals) = Signals::new([SIGTERM]) {
            let listen = move || signals.forever().for_each(|_| listener.look());
            let _ = std::thread::Builder::new().name("last words".into()).spawn(listen);
        }
        Self(over)
    }
}

impl Drop for LostRankMessage {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Listener {
    watch: Watch,
    out: PathBuf,
    over: Arc<AtomicBool>,
}

impl Listener {
    /// After SIGTERM: looks for a while whether the run ends by itself.
    fn look(&self) {
        let since = Instant::now();
        std::thread::sleep(FIRST);
        while since.elapsed() < LAST && !self.over.load(Ordering::Relaxed) {
            if let Some(why) = self.watch.lost(LONG) {
                if self.watch.speaks_last() {
                    screen::say(&format!("{}{why}; {}", comm::rank_prefix(), how_to_go_on(&self.out)));
                }
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

fn how_to_go_on(out: &Path) -> String {
    let newest = output::list(&out.join("checkpoints")).ok().and_then(|files| files.into_iter().next());
    match newest {
        Some((_, path)) => format!("go on with the same command and --resume auto, from {}", path.display()),
        None => "no checkpoint was written yet: the same command and --resume auto begin anew".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_checkpoint_is_named() {
        let out = std::env::temp_dir().join(format!("trireme-last-{}", std::process::id()));
        assert!(how_to_go_on(&out).contains("begin anew"));
        std::fs::create_dir_all(out.join("checkpoints")).unwrap();
        for step in [9, 120, 30] {
            std::fs::write(output::path_of(&out.join("checkpoints"), step), "").unwrap();
        }
        let text = how_to_go_on(&out);
        std::fs::remove_dir_all(&out).unwrap();
        assert!(text.ends_with("checkpoints/step-00000120.h5") && text.contains("--resume auto"), "{text}");
    }
}
