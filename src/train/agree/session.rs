//! The ranks of a run and what they must agree on before the first step.

use std::collections::BTreeSet;

use crate::comm::{self, Comm, Verdict, WorldInfo};
use crate::cores;
use crate::error::Error;
use crate::train::agree::digest;
use crate::train::observe::watch::Watch;

/// All ranks, with MPI up.
pub struct Session {
    /// Handle to the thread that owns MPI.
    pub comm: Comm,
    /// Who this rank is.
    pub world: WorldInfo,
    /// Things to say on rank 0 before the run starts.
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
            Verdict::Fatal(text) => return Err(Error::Failed(text)),
        }
        Ok(Self { comm, world, notes, watch })
    }

    /// Whether this rank speaks and writes.
    pub fn is_root(&self) -> bool {
        self.world.rank == 0
    }

    /// All ranks learn whether all succeeded. If not, rank 0 gets the first failing rank's error, the others
    /// [`Error::Elsewhere`], so that one message is printed and every rank ends.
    pub fn agree<T>(&self, local: Result<T, Error>) -> Result<T, Error> {
        if self.world.size == 1 || matches!(local, Err(Error::Agreed { .. } | Error::Elsewhere { .. })) {
            // nobody else, or an error on which all have agreed before
            return local;
        }
        let report = match &local {
            Ok(_) => vec![FINE],
            Err(e) => [&[e.code()], e.to_string().as_bytes()].concat(),
        };
        let verdict = self.comm.run("agreement before the start", move |world| {
            let mut verdict = world.gather(&report)?.map_or_else(Vec::new, |all| first_failure(&all));
            world.broadcast(&mut verdict, 0)?;
            Ok(verdict)
        })?;
        match (verdict.split_first(), local) {
            (None, Ok(value)) => Ok(value),
            (None, Err(error)) => Err(error),
            (Some((&code, text)), _) if self.is_root() => {
                let text = String::from_utf8_lossy(text).into_owned();
                Err(Error::Agreed { code, text })
            }
            (Some((&code, _)), _) => Err(Error::Elsewhere { code }),
        }
    }

    /// Ends MPI where all ranks know how the run went, a failure included; another failure is left to the caller. What is to be
    /// said is said before the end: once a rank has left with a failure, launchers kill the others.
    pub fn conclude<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        let result = match result {
            Err(Error::Agreed { code, text }) => {
                eprintln!("{text}");
                Err(Error::Elsewhere { code })
            }
            other => other,
        };
        if matches!(&result, Ok(_) | Err(Error::Elsewhere { .. })) {
            self.comm.finish()?;
        }
        self.watch.stop(result.is_ok());
        result
    }

    /// Fails on all ranks unless each runs the same program.
    pub fn same_program(&self) -> Result<(), Error> {
        if self.world.size == 1 {
            return Ok(());
        }
        self.same(
            "the program",
            &digest::program(),
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
        let own = text.as_bytes().to_vec();
        let mut root = own.clone();
        let root = self.comm.run("comparison with rank 0", move |world| {
            world.broadcast(&mut root, 0)?;
            Ok(root)
        })?;
        let local = if root == own { Ok(()) } else { Err(Error::Failed(difference(what, &root, text, cure))) };
        self.agree(local)
    }

    /// How many cores this rank may use; notes ranks that are bound to one core together.
    pub fn cores(&mut self) -> Result<cores::Cores, Error> {
        let own = cores::affinity();
        let mut line = self.world.host.clone();
        own.iter().for_each(|cpu| line.push_str(&format!(" {cpu}")));
        let lines = self.comm.run("exchange of core masks", move |world| {
            let mut all = world.gather(line.as_bytes())?.map_or_else(Vec::new, |l| l.join(&b'\n'));
            world.broadcast(&mut all, 0)?;
            Ok(all)
        })?;
        let text = String::from_utf8_lossy(&lines);
        let masks: Vec<cores::Mask> = text.lines().map(cores::Mask::parse).collect();
        let cores = cores::share(&masks, self.world.rank);
        self.notes.extend(cores::bound_by_openmp(comm::launcher::variable));
        self.notes.extend(cores::warning(&masks).or_else(|| cores::unused(&masks, &self.world.host)));
        Ok(cores)
    }
}

/// What a rank reports that has not failed; exit codes of failures are not 0.
const FINE: u8 = 0;

/// The first failing rank's code and message, empty if there is none; names the rank unless all say the same.
fn first_failure(reports: &[Vec<u8>]) -> Vec<u8> {
    let Some(rank) = reports.iter().position(|r| *r != [FINE]) else { return Vec::new() };
    let distinct: BTreeSet<_> = reports.iter().collect();
    let first = &reports[rank];
    if distinct.len() == 1 {
        return first.clone();
    }
    [&first[..1], format!("rank {rank}: ").as_bytes(), &first[1..]].concat()
}

/// Names the first line in which two texts differ.
fn difference(what: &str, root: &[u8], own: &str, cure: &str) -> String {
    let root = String::from_utf8_lossy(root);
    let lines = root.lines().zip(own.lines()).find(|(a, b)| a != b);
    let (expected, got) = lines.unwrap_or(("more or fewer lines", "fewer or more lines"));
    format!("{what} differs from rank 0's: expected \"{expected}\", got \"{got}\"; {cure}")
}
