//! The last message of a run that is killed by its launcher because a rank is gone. It names the lost rank and says how
//! to resume. Launchers send SIGTERM to the remaining ranks and kill them soon after. Until then these ranks wait in
//! MPI for the lost rank and cannot end by themselves.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base::{lock, screen};
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

use crate::train::observe::watch::Watch;
use crate::train::save::output;

/// How long a run may take after SIGTERM to end by itself. After this time it looks for a lost rank.
const GRACE_TIME: Duration = Duration::from_millis(200);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// If no process on this node is gone, an MPI operation that takes this long also counts as the sign of a lost rank.
const LONG_WAIT: Duration = Duration::from_millis(500);
/// Open MPI sends SIGKILL one second after SIGTERM. A run that is still alive after this time is not being killed.
const TIME_TO_KILL: Duration = Duration::from_millis(950);
/// A look for a lost rank counts as at most this part of [`TIME_TO_KILL`]. If it takes longer, the process was probably
/// suspended, and so was its launcher.
const LONGEST_LOOK: Duration = Duration::from_millis(200);

/// While this value exists, a thread prints the last message after SIGTERM. The value is dropped when the run ends by
/// itself. It contains whether this has happened.
pub(super) struct LostRankMessage(Arc<Mutex<bool>>);

impl LostRankMessage {
    /// Starts a thread that waits for SIGTERM. If it cannot start, the run continues without the message.
    pub fn prepare(watch: &Watch, out: &Path) -> Self {
        let over = Arc::new(Mutex::new(false));
        let listener = Listener { watch: watch.clone(), out: out.to_path_buf(), over: over.clone() };
        if let Ok(mut signals) = Signals::new([SIGTERM]) {
            let listen = move || signals.forever().for_each(|_| listener.report_if_killed());
            let _ = std::thread::Builder::new().name("last words".into()).spawn(listen);
        }
        Self(over)
    }
}

impl Drop for LostRankMessage {
    fn drop(&mut self) {
        *lock(&self.0) = true;
    }
}

struct Listener {
    watch: Watch,
    out: PathBuf,
    over: Arc<Mutex<bool>>,
}

impl Listener {
    /// Runs after SIGTERM. Looks for a lost rank until the run ends by itself.
    fn report_if_killed(&self) {
        std::thread::sleep(GRACE_TIME);
        let mut passed = GRACE_TIME;
        while passed < TIME_TO_KILL && !*lock(&self.over) {
            let since = Instant::now();
            if let Some(why) = self.watch.lost(LONG_WAIT) {
                let text = format!("{}{why}; {}", comm::rank_prefix(), how_to_go_on(&self.out));
                // the run may have ended by itself in the meantime. From here on, its end waits for the message
                let over = lock(&self.over);
                if !*over && self.watch.claims_last_message() {
                    screen::say(&text);
                }
                return;
            }
            passed += since.elapsed().min(LONGEST_LOOK) + POLL_INTERVAL;
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

fn how_to_go_on(out: &Path) -> String {
    match output::newest(&out.join("checkpoints")) {
        Some(path) => {
            format!("to continue, use the same command with --resume auto; the newest checkpoint is {}", path.display())
        }
        None => {
            "no checkpoint was written yet, so the same command with --resume auto starts from the beginning".into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_checkpoint_is_named() {
        let out = std::env::temp_dir().join(format!("trireme-last-{}", std::process::id()));
        assert!(how_to_go_on(&out).contains("from the beginning"));
        std::fs::create_dir_all(out.join("checkpoints")).unwrap();
        for step in [9, 120, 30] {
            std::fs::write(output::path_of(&out.join("checkpoints"), step), "").unwrap();
        }
        let text = how_to_go_on(&out);
        std::fs::remove_dir_all(&out).unwrap();
        assert!(text.ends_with("checkpoints/step-00000120.h5") && text.contains("--resume auto"), "{text}");
    }
}
