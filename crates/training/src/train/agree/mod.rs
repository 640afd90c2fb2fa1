//! Checks before the first step that all ranks have the same program, options, kind of device and data. [`Session`] holds what a rank needs
//! for this.

pub mod algorithms;
pub mod gpus;
pub mod preflight;

use std::path::{Path, PathBuf};

use base::{cores, screen};
use comm::{Comm, Verdict, WorldInfo};
use loaders::stage;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::train::observe::watch::{Activity, Limits, Watch};

/// A running MPI job, as seen from a rank.
pub struct Session {
    pub comm: Comm,
    /// This rank's place among the ranks.
    pub world: WorldInfo,
    /// Lines that rank 0 prints before the run starts.
    pub notes: Vec<String>,
    pub watch: Watch,
}

impl Session {
    /// Joins all ranks, runs `work`, and ends MPI if all ranks know the result. The watchdog reports only waits in MPI operations.
    pub fn run<T>(work: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        let comm = Comm::launch();
        let watch = Watch::start(&comm, Limits::default());
        watch.stepped();
        // these commands read no data set and plan little, so a rank that is missing for long is not still preparing
        watch.set_ready(true);
        watch.set_activity(Activity::Unrecorded);
        let mut session = Self::join(comm, watch)?;
        let result = work(&mut session);
        session.conclude(result)
    }

    /// Waits until MPI is up and checks how the ranks were started.
    pub fn join(comm: Comm, watch: Watch) -> Result<Self, Error> {
        let world = comm.world()?.clone();
        loaders::sigbus::set_rank(world.rank as u32);
        let mut notes = Vec::new();
        match comm::check_launch(world.size) {
            Verdict::Ok => {}
            Verdict::Warning(text) => notes.push(format!("warning: {text}")),
            Verdict::Fatal(text) => return Err(Error::Failed(text)),
        }
        Ok(Self { comm, world, notes, watch })
    }

    /// Returns true on rank 0. Only this rank prints and writes files.
    pub fn is_root(&self) -> bool {
        self.world.rank == 0
    }

    /// Compares the results of all ranks. Returns `local` if all ranks succeeded. Otherwise rank 0 gets the error of
    /// the first failing rank, and the other ranks get [`Error::OtherRank`]. So only one message is printed, and every
    /// rank ends. All ranks must call this.
    pub fn agree<T>(&self, local: Result<T, Error>) -> Result<T, Error> {
        if self.world.size == 1 || local.as_ref().is_err_and(Error::is_agreed) {
            // there is no other rank, or all ranks know this error already
            return local;
        }
        let host = &self.world.host;
        let own = local.as_ref().err().map(|e| Failure { code: e.code(), text: e.to_string(), host: host.clone() });
        let all = self.comm.gather_all("agreement of the ranks", &own)?;
        match (first_failure(all, host), local) {
            (None, local) => local,
            (Some(Failure { code, text, .. }), _) if self.is_root() => Err(Error::Agreed { code, text }),
            (Some(Failure { code, .. }), _) => Err(Error::OtherRank { code }),
        }
    }

    /// Ends MPI if all ranks know the result, success or failure. Otherwise returns the error and leaves MPI to the
    /// caller. Prints messages first, because launchers kill the other ranks when a rank exits with a failure.
    pub fn conclude<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        let result = match result {
            Err(error @ (Error::Agreed { .. } | Error::Diverged { .. })) => {
                screen::say(&error.to_string());
                Err(Error::OtherRank { code: error.code() })
            }
            Err(error) if self.world.size > 1 && error.is_of_communication() => match self.watch.gone_rank() {
                Some(gone) => Err(Error::Failed(format!("{error}; {gone}"))),
                None => Err(error),
            },
            other => other,
        };
        // if communication failed, the cause may be a rank that is gone, and another rank knows this. If another run has taken the output
        // directory, the file that silences ranks would silence the ranks of that run
        let is_cause =
            |error: &Error| !error.is_agreed() && !error.is_of_communication() && !matches!(error, Error::TakenOver(_));
        if self.world.size > 1 && result.as_ref().is_err_and(is_cause) {
            // this rank prints the cause, so no other rank may print a last message
            self.watch.claims_last_message();
        }
        if matches!(&result, Ok(_) | Err(Error::OtherRank { .. })) {
            self.comm.finish()?;
        }
        self.watch.stop(result.is_ok());
        result
    }

    /// Fails on all ranks unless they run the same program, with the same options, on the same kind of device. Every command with more than
    /// one rank calls this before all other collective operations. Otherwise ranks with different options could wait for each other
    /// forever. `options` has one line for the command and one for each option that must be equal. For `device` see
    /// [`Session::same_device`].
    pub fn same_start(&self, device: (&str, Option<&str>), options: &str) -> Result<(), Error> {
        self.same_program()?;
        self.same_device(device)?;
        self.same("the command line", options, "give all ranks the same options")
    }

    /// Returns an error on all ranks unless they run the same program.
    pub fn same_program(&self) -> Result<(), Error> {
        if self.world.size == 1 {
            return Ok(());
        }
        self.same(
            "the program",
            &preflight::program(),
            "start all ranks with the same build of trireme (compare `which trireme` on the nodes)",
        )
    }

    /// Returns an error on all ranks unless they compute on the same kind of device. The message says `why` a rank does not use a GPU, if
    /// there is a reason.
    pub fn same_device(&self, (kind, why): (&str, Option<&str>)) -> Result<(), Error> {
        if self.world.size == 1 {
            return Ok(());
        }
        let own = (kind.to_string(), why.map(String::from));
        let root = self.comm.broadcast("comparison with rank 0", self.is_root().then_some(&own))?;
        self.agree(if root.0 == own.0 { Ok(()) } else { Err(different_devices(&root, &own)) })
    }

    /// Returns an error on all ranks unless they have the same `text`. `what` and `cure` are for the message.
    pub fn same(&self, what: &str, text: &str, cure: &str) -> Result<(), Error> {
        if self.world.size == 1 {
            return Ok(());
        }
        let root = self.comm.broadcast("comparison with rank 0", self.is_root().then_some(&text.to_string()))?;
        self.agree(if root == text { Ok(()) } else { Err(difference(what, &root, text, cure)) })
    }

    /// Divides the cores of each node among its ranks, and returns the number of cores for this rank. Adds a note if
    /// ranks are bound to the same core. Tells the watchdog which ranks are on this node.
    pub fn cores(&mut self) -> Result<usize, Error> {
        let own = cores::Mask::of_process(&self.world.host);
        let masks = self.comm.gather_all("exchange of core masks", &own)?;
        let cores = cores::share(&masks, self.world.rank);
        let here = |rank: &usize| *rank != self.world.rank && masks[*rank].host == own.host;
        self.watch.set_neighbours((0..masks.len()).filter(here).collect());
        self.notes.extend(cores::bound_by_openmp(comm::launcher::variable));
        self.notes.extend(cores::warning(&masks).or_else(|| cores::unused(&masks, &self.world.host)));
        Ok(cores)
    }

    /// Prints the notes on rank 0.
    pub fn print_notes(&self) {
        self.notes.iter().filter(|_| self.is_root()).for_each(|note| screen::say(note));
    }
}

/// The error of a rank, as it is sent to the other ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Failure {
    code: u8,
    text: String,
    host: String,
}

/// Returns the failure of the first failing rank, if any. The text names this rank unless all ranks have the same failure. It also names
/// the rank's host unless that is `here`.
fn first_failure(all: Vec<Option<Failure>>, here: &str) -> Option<Failure> {
    let rank = all.iter().position(Option::is_some)?;
    let alike = |other: &Option<Failure>| {
        other.as_ref().map(|f| (f.code, &f.text)) == all[rank].as_ref().map(|f| (f.code, &f.text))
    };
    let alike = all.iter().all(alike);
    let first = all.into_iter().nth(rank)??;
    let place = if first.host == here { String::new() } else { format!(" on {}", first.host) };
    Some(if alike { first } else { Failure { text: format!("rank {rank}{place}: {}", first.text), ..first } })
}

/// Returns an error that shows the kinds of device of rank 0 and of this rank, each with the reason for the choice, if there is one.
fn different_devices(root: &(String, Option<String>), own: &(String, Option<String>)) -> Error {
    let described = |(kind, why): &(String, Option<String>)| {
        let why = why.as_deref().map(|why| format!(" ({})", why.trim_start_matches("note: ")));
        format!("\"{kind}\"{}", why.unwrap_or_default())
    };
    Error::Mismatch {
        what: "the kind of device differs from rank 0's".into(),
        expected: described(root),
        got: described(own),
        cure: "if only some nodes have a GPU, start only on these nodes, or use --device cpu".into(),
    }
}

/// Returns an error that shows the first line in which the two texts differ.
fn difference(what: &str, root: &str, own: &str, cure: &str) -> Error {
    let lines = root.lines().zip(own.lines()).find(|(a, b)| a != b);
    let (expected, got) = lines.unwrap_or(("the text of rank 0", "a longer or shorter text"));
    Error::Mismatch {
        what: format!("{what} differs from rank 0's"),
        expected: format!("\"{expected}\""),
        got: format!("\"{got}\""),
        cure: cure.into(),
    }
}

/// Copies splits of `data` to a directory below `under` and returns the copy's directory. The first rank of each node makes the copy.
/// It calls `splits`, which opens `data` and returns the names of the splits to copy. Without a `session` there is only this rank.
pub fn stage(
    session: Option<&Session>,
    data: &Path,
    under: &Path,
    splits: impl FnOnce() -> Result<Vec<String>, Error>,
) -> Result<PathBuf, Error> {
    let first = session.is_none_or(|session| session.world.node_rank == 0);
    let copied = || {
        let wanted = splits()?;
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        Ok(stage::stage(data, under, &wanted)?)
    };
    let staged = if first { copied().map(Some) } else { Ok(None) };
    let staged = match session {
        Some(session) => session.agree(staged)?,
        None => staged?,
    };
    if let Some(staged) = staged.filter(|_| session.is_none_or(Session::is_root)) {
        let size = |bytes: u64| match bytes as f64 {
            bytes if bytes >= 1e9 => format!("{:.2} GB", bytes / 1e9),
            bytes => format!("{:.2} MB", bytes / 1e6),
        };
        let (dir, copied, reused) = (staged.dir.display().to_string(), size(staged.copied), size(staged.reused));
        let dir = base::text::printable(&dir);
        screen::say(&format!("staged in {dir}: {copied} copied, {reused} were already there"));
    }
    Ok(stage::place(data, under))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failing_rank_is_named_with_its_host() {
        let failure = |text: &str, host: &str| Some(Failure { code: 1, text: text.into(), host: host.into() });
        let text = |all: &[Option<Failure>]| first_failure(all.to_vec(), "n1").map(|first| first.text);
        assert_eq!(text(&[None, None]), None);
        assert_eq!(text(&[None, failure("broken", "n1")]).unwrap(), "rank 1: broken");
        assert_eq!(text(&[None, failure("broken", "n2"), failure("full", "n3")]).unwrap(), "rank 1 on n2: broken");
        assert_eq!(text(&[failure("broken", "n1"), failure("broken", "n2")]).unwrap(), "broken");
    }

    #[test]
    fn the_reason_for_another_kind_of_device_is_in_the_message() {
        type Chosen = (String, Option<String>);
        let device = |kind: &str, why: Option<&str>| (kind.to_string(), why.map(String::from));
        let text = |root: Chosen, own: Chosen| different_devices(&root, &own).to_string();
        let cpu = device("cpu", Some("note: a GPU is not used: no cuDNN"));
        let differs = "the kind of device differs from rank 0's: expected";
        let expected = format!("{differs} \"cuda\", got \"cpu\" (a GPU is not used: no cuDNN); if only some nodes");
        assert!(text(device("cuda", None), cpu.clone()).starts_with(&expected));
        let expected = format!("{differs} \"cpu\" (a GPU is not used: no cuDNN), got \"cuda\"; if only some nodes");
        assert!(text(cpu, device("cuda", None)).starts_with(&expected));
    }
}
