//! What makes all ranks the same before the first step: who they are, what they run, compute on and read. [`Session`] has the ranks of a
//! run and what they must agree on.

pub mod algorithms;
pub mod gpus;
pub mod preflight;

use std::path::{Path, PathBuf};

use base::{cores, screen};
use comm::{Comm, Verdict, WorldInfo};
use loaders::{Dataset, stage};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::train::observe::watch::Watch;

/// All ranks, with MPI up.
pub struct Session {
    /// Handle to the thread that owns MPI.
    pub comm: Comm,
    /// Who this rank is.
    pub world: WorldInfo,
    /// Lines for rank 0's terminal before the run starts.
    pub notes: Vec<String>,
    /// This rank's watchdog, if it has one.
    pub watch: Watch,
}

impl Session {
    /// Waits until MPI is up and checks how the ranks were started.
    pub fn join(comm: Comm) -> Result<Self, Error> {
        Self::join_watched(comm, Watch::default())
    }

    /// The same, with a watchdog.
    pub fn join_watched(comm: Comm, watch: Watch) -> Result<Self, Error> {
        let world = comm.world()?.clone();
        loaders::sigbus::set_rank(world.rank as u32);
        let mut notes = Vec::new();
        match comm::check_launch(world.size) {
            Verdict::Ok => {}
            Verdict::Warning(text) => notes.push(format!("warning: {text}")),
            Verdict::Fatal(text) => return Err(Error::Launch(text)),
        }
        Ok(Self { comm, world, notes, watch })
    }

    /// Whether this is rank 0, which alone prints and writes files.
    pub fn is_root(&self) -> bool {
        self.world.rank == 0
    }

    /// All ranks learn whether all succeeded. If not, rank 0 gets the first failing rank's error, the others
    /// [`Error::Elsewhere`], so that one message is printed and every rank ends.
    pub fn agree<T>(&self, local: Result<T, Error>) -> Result<T, Error> {
        if self.world.size == 1 || local.as_ref().is_err_and(Error::is_agreed) {
            // no other rank, or an error on which all have agreed before
            return local;
        }
        let own = local.as_ref().err().map(|e| Failure { code: e.code(), text: e.to_string() });
        let all = self.comm.gather_all("agreement of the ranks", &own)?;
        match (first_failure(all), local) {
            (None, local) => local,
            (Some(Failure { code, text }), _) if self.is_root() => Err(Error::Agreed { code, text }),
            (Some(Failure { code, .. }), _) => Err(Error::Elsewhere { code }),
        }
    }

    /// Ends MPI where all ranks know how the run went, a failure included; another failure is left to the caller. Messages are printed
    /// before the end: once a rank has left with a failure, launchers kill the others.
    pub fn conclude<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        let result = match result {
            Err(error @ (Error::Agreed { .. } | Error::Diverged { .. })) => {
                screen::say(&error.to_string());
                Err(Error::Elsewhere { code: error.code() })
            }
            other => other,
        };
        if matches!(&result, Ok(_) | Err(Error::Elsewhere { .. })) {
            self.comm.finish()?;
        }
        self.watch.stop(result.is_ok());
        result
    }

    /// Fails on all ranks unless they run the same program, with the same options, on the same kind of device. Every command with more than
    /// one rank calls this before all other collective operations. Otherwise ranks with different options could wait for each other
    /// forever. `options` has one line for the command and one for each option that must be equal.
    pub fn same_start(&self, device: &str, options: &str) -> Result<(), Error> {
        self.same_program()?;
        self.same_device(device)?;
        self.same("the command line", options, "give all ranks the same options")
    }

    /// Fails on all ranks unless each runs the same program.
    pub fn same_program(&self) -> Result<(), Error> {
        if self.world.size == 1 {
            return Ok(());
        }
        self.same(
            "the program",
            &preflight::program(),
            "start all ranks with one build of trireme (compare `which trireme` on the nodes)",
        )
    }

    /// Fails on all ranks unless each computes on the same kind of device.
    pub fn same_device(&self, kind: &str) -> Result<(), Error> {
        self.same("the kind of device", kind, "where only some nodes have a GPU, start on those, or with --device cpu")
    }

    /// Fails on all ranks unless each has the same text: the recipe, the data set, memory formats, the program.
    pub fn same(&self, what: &str, text: &str, cure: &str) -> Result<(), Error> {
        if self.world.size == 1 {
            return Ok(());
        }
        let root = self.comm.broadcast("comparison with rank 0", self.is_root().then_some(&text.to_string()))?;
        self.agree(if root == text { Ok(()) } else { Err(difference(what, &root, text, cure)) })
    }

    /// How many cores this rank may use; notes ranks that are bound to one core together.
    pub fn cores(&mut self) -> Result<cores::Cores, Error> {
        let own = cores::Mask { host: self.world.host.clone(), cpus: cores::affinity() };
        let masks = self.comm.gather_all("exchange of core masks", &own)?;
        let cores = cores::share(&masks, self.world.rank);
        self.notes.extend(cores::bound_by_openmp(comm::launcher::variable));
        self.notes.extend(cores::warning(&masks).or_else(|| cores::unused(&masks, &self.world.host)));
        Ok(cores)
    }
}

/// How a rank has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Failure {
    /// The exit code.
    code: u8,
    text: String,
}

/// The first failing rank's failure, if there is one; names the rank unless all fail alike.
fn first_failure(all: Vec<Option<Failure>>) -> Option<Failure> {
    let rank = all.iter().position(Option::is_some)?;
    let alike = all.iter().all(|other| *other == all[rank]);
    let first = all.into_iter().nth(rank)??;
    Some(if alike { first } else { Failure { text: format!("rank {rank}: {}", first.text), ..first } })
}

/// Names the first line in which two texts differ.
fn difference(what: &str, root: &str, own: &str, cure: &str) -> Error {
    let lines = root.lines().zip(own.lines()).find(|(a, b)| a != b);
    let (expected, got) = lines.unwrap_or(("more or fewer lines", "fewer or more lines"));
    Error::Mismatch {
        what: format!("{what} differs from rank 0's"),
        expected: format!("\"{expected}\""),
        got: format!("\"{got}\""),
        cure: cure.into(),
    }
}

/// Copies splits of `data` below `under`, on each node's first rank, and returns the copy's folder. `splits` picks among the names of
/// the data set's splits. Without a `session` this is the only rank.
pub fn stage(
    session: Option<&Session>,
    data: &Path,
    under: &Path,
    splits: impl Fn(&[&str]) -> Result<Vec<String>, Error>,
) -> Result<PathBuf, Error> {
    let first = session.is_none_or(|session| session.world.node_rank == 0);
    let copied = || {
        let dataset = Dataset::open(data)?;
        let names: Vec<&str> = dataset.manifest.splits.keys().map(String::as_str).collect();
        let wanted = splits(&names)?;
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        Ok(stage::stage(data, under, &wanted)?)
    };
    let staged = if first { copied().map(Some) } else { Ok(None) };
    let staged = match session {
        Some(session) => session.agree(staged)?,
        None => staged?,
    };
    if let Some(staged) = staged.filter(|_| session.is_none_or(Session::is_root)) {
        let gb = |bytes: u64| bytes as f64 / 1e9;
        let (dir, copied, reused) = (staged.dir.display().to_string(), gb(staged.copied), gb(staged.reused));
        let dir = loaders::printable(&dir);
        screen::say(&format!("staged in {dir}: {copied:.2} GB copied, {reused:.2} GB were there"));
    }
    Ok(stage::place(data, under))
}
