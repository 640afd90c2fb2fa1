//! The group of devices that sum buckets without MPI: how all ranks join it, and a thread that checks it for failures.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

use backend::{Backend, Collective};
use comm::{Comm, World, die};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::train::agree::Session;
use crate::train::observe::watch::Watch;

/// Maximum time for all ranks to join.
const JOINING: Duration = Duration::from_secs(120);
/// Time between two exchanges of the ranks' states while they join.
const PAUSE: Duration = Duration::from_millis(10);
/// Time between two checks of the group's state.
const LOOK: Duration = Duration::from_millis(100);

/// A group of devices, shared by all buckets.
pub struct Group<B: Backend> {
    collective: Mutex<Box<dyn Collective<B>>>,
    /// True if a failure of the group ends the run.
    watched: AtomicBool,
}

/// A rank's state while the ranks join.
#[derive(Serialize, Deserialize)]
struct Joining {
    /// True if the rank has joined, false if it is still joining, or the reason why it cannot join.
    joined: Result<bool, String>,
    /// True if joining takes too long on this rank.
    late: bool,
    host: String,
}

/// Judges the states of all ranks. Returns true if all have joined, false if some are still joining, or the reason why the group cannot be
/// formed.
fn judge(all: &[Joining]) -> Result<bool, String> {
    let failures: Vec<Option<&String>> = all.iter().map(|rank| rank.joined.as_ref().err()).collect();
    if let Some(why) = first_reason(&failures) {
        return Err(why);
    }
    let waits = |rank: &(usize, &Joining)| rank.1.joined == Ok(false);
    let missing = all.iter().enumerate().filter(waits).map(|(rank, state)| format!("{rank} on {}", state.host));
    let missing: Vec<String> = missing.collect();
    match all.iter().any(|rank| rank.late) && !missing.is_empty() {
        true => Err(format!(
            "NCCL has not connected rank {} within the time limit of 120 s (or of --stall-abort, if that is shorter). NCCL_DEBUG=INFO \
             shows what NCCL tries, and NCCL_SOCKET_IFNAME selects the network interface",
            missing.join(", ")
        )),
        false => Ok(missing.is_empty()),
    }
}

/// Returns the reason of the first rank that has one, with the number of that rank unless all ranks have the same reason.
pub fn first_reason<S: AsRef<str> + PartialEq>(all: &[Option<S>]) -> Option<String> {
    let rank = all.iter().position(Option::is_some)?;
    let alike = all.iter().all(|other| *other == all[rank]);
    let why = all[rank].as_ref()?.as_ref();
    Some(if alike { why.to_string() } else { format!("rank {rank}: {why}") })
}

impl<B: Backend> Group<B> {
    /// Joins the devices on all ranks, see [`Group::join_first`].
    pub fn join(session: &Session, backend: &B) -> Result<Result<Arc<Self>, String>, Error> {
        let joined = Self::join_first(session, backend, session.world.size)?;
        Ok(joined.and_then(|group| group.ok_or_else(|| "this rank is not in the group".into())))
    }

    /// Joins the devices on the ranks below `count`. The remaining ranks get `None`. The inner error says why joining
    /// is impossible, and is the same on all ranks. Collective over all ranks. No rank blocks inside the library, so if
    /// a rank fails, the attempt ends on all ranks.
    pub fn join_first(
        session: &Session,
        backend: &B,
        count: usize,
    ) -> Result<Result<Option<Arc<Self>>, String>, Error> {
        let (comm, world) = (&session.comm, &session.world);
        let Some(devices) = backend.collectives() else {
            return Ok(Err("not available on this kind of device".into()));
        };
        let ready = devices.ready();
        let reasons = comm.gather_all("agreement on a transport", &ready.as_ref().err().map(ToString::to_string))?;
        if let Some(why) = first_reason(&reasons) {
            return Ok(Err(why));
        }
        let ready = ready?;
        let made = session.is_root().then(|| ready.new_id().map_err(|error| error.to_string()));
        let id: Vec<u8> = match comm.broadcast("id of the NCCL group", made.as_ref())? {
            Ok(id) => id,
            Err(why) => return Ok(Err(why)),
        };
        let (since, limit) = (Instant::now(), session.watch.patience().map_or(JOINING, |limit| limit.min(JOINING)));
        let mut group = (world.rank < count).then(|| ready.join(&id, world.rank, count)).transpose();
        loop {
            let joined = match &mut group {
                Ok(group) => group.as_mut().map_or(Ok(true), |group| group.is_ready().map_err(|e| e.to_string())),
                Err(error) => Err(error.to_string()),
            };
            let own = Joining { joined, late: since.elapsed() > limit, host: world.host.clone() };
            match judge(&comm.gather_all("start of NCCL", &own)?) {
                Ok(true) => break,
                Ok(false) => sleep(PAUSE),
                Err(why) => return Ok(Err(why)),
            }
        }
        let new = |collective| Arc::new(Self { collective: Mutex::new(collective), watched: AtomicBool::new(true) });
        Ok(Ok(group?.map(new)))
    }

    pub fn lock(&self) -> MutexGuard<'_, Box<dyn Collective<B>>> {
        self.collective.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a thread that ends the run if the group fails. After a failure the device may never finish its work, so the thread that waits
    /// for the device cannot report it.
    pub fn watch(self: &Arc<Self>, watch: &Watch) {
        let (group, watch) = (Arc::downgrade(self), watch.clone());
        let look = move || {
            while let Some(group) = group.upgrade().filter(|group| group.watched.load(Ordering::Relaxed)) {
                // if another thread has the lock, its call to the library returns the error itself
                let failed = group.collective.try_lock().ok().and_then(|mut collective| collective.is_ready().err());
                if let Some(error) = failed.filter(|_| group.watched.load(Ordering::Relaxed)) {
                    let gone = watch.gone_rank().map_or(String::new(), |gone| format!("; {gone}"));
                    let place = watch.place().map_or(String::new(), |place| format!("on {place}: "));
                    die(1, &format!("{place}{error}{gone}"));
                }
                drop(group);
                sleep(LOOK);
            }
        };
        // if the thread cannot start, a failure is still noticed: the watchdog reports the ranks that wait
        let _ = Builder::new().name("nccl".into()).spawn(look);
    }

    /// Stops checking the group after the last sum, so that a rank that leaves the group is not reported as a failure. Call this before the
    /// group is dropped. Collective.
    pub fn retire(&self, comm: &Comm) -> Result<(), comm::Error> {
        self.end_watch();
        comm.run("end of NCCL", World::barrier)
    }

    /// Ends this rank's watch over the group. No rank may leave the group before all ranks have called this.
    pub fn end_watch(&self) {
        self.watched.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rank_with_a_reason_or_those_that_are_late_decide() {
        let state = |joined: Result<bool, &str>, late| Joining {
            joined: joined.map_err(String::from),
            late,
            host: "n1".into(),
        };
        assert_eq!(judge(&[state(Ok(true), false), state(Ok(false), false)]), Ok(false));
        assert_eq!(judge(&[state(Ok(true), true), state(Ok(true), true)]), Ok(true));
        assert_eq!(judge(&[state(Ok(false), false), state(Err("no GPU"), false)]), Err("rank 1: no GPU".into()));
        assert_eq!(judge(&[state(Err("old"), false), state(Err("old"), false)]), Err("old".into()));
        let late = judge(&[state(Ok(true), true), state(Ok(false), false)]).unwrap_err();
        support::mentions(late, &["NCCL", "rank 1 on n1 ", "time limit", "NCCL_DEBUG"]);
    }
}
