//! How the ranks were started, by the environment, which is known before MPI is initialised.
//!
//! Reads the copy of the environment that the program makes at the start, because MPI libraries change the original.

use super::family::Family;
use super::verdict::Verdict;

pub use base::environment::variable;

/// A way to start ranks: how it is recognised, and its variables for rank and size; empty where it has none.
struct Launcher {
    name: &'static str,
    /// Variables that are all set by it.
    signs: &'static [&'static str],
    rank: &'static str,
    size: &'static str,
    /// Its variable for the rank among those of the node.
    local: &'static str,
    /// Whether the ranks are Slurm's own tasks.
    slurm: bool,
    /// Whose libraries understand it, where it serves one family alone.
    family: Option<Family>,
}

/// The most specific first: mpirun inside a Slurm job also sees Slurm's variables.
const LAUNCHERS: [Launcher; 9] = [
    Launcher {
        name: "Open MPI's mpirun",
        signs: &["OMPI_COMM_WORLD_SIZE"],
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local: "OMPI_COMM_WORLD_LOCAL_RANK",
        slurm: false,
        family: Some(Family::OpenMpi),
    },
    Launcher {
        name: "MPICH's mpiexec (Hydra)",
        signs: &["PMI_RANK", "MPI_LOCALNRANKS"],
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local: "MPI_LOCALRANKID",
        slurm: false,
        family: Some(Family::Mpich),
    },
    Launcher {
        name: "MVAPICH's mpirun",
        signs: &["MV2_COMM_WORLD_SIZE"],
        rank: "MV2_COMM_WORLD_RANK",
        size: "MV2_COMM_WORLD_SIZE",
        local: "MV2_COMM_WORLD_LOCAL_RANK",
        slurm: false,
        family: Some(Family::Mpich),
    },
    Launcher {
        name: "PALS mpiexec",
        signs: &["PALS_RANKID"],
        rank: "PALS_RANKID",
        size: "PALS_SIZE",
        local: "PALS_LOCAL_RANKID",
        slurm: false,
        family: None,
    },
    Launcher {
        name: "Flux",
        signs: &["FLUX_TASK_RANK"],
        rank: "FLUX_TASK_RANK",
        size: "FLUX_JOB_SIZE",
        local: "FLUX_TASK_LOCAL_ID",
        slurm: false,
        family: None,
    },
    Launcher {
        name: "srun with PMIx",
        signs: &["SLURM_STEP_ID", "PMIX_RANK"],
        rank: "SLURM_PROCID",
        size: "SLURM_STEP_NUM_TASKS",
        local: "SLURM_LOCALID",
        slurm: true,
        family: None,
    },
    Launcher {
        name: "srun with PMI-2",
        signs: &["SLURM_STEP_ID", "PMI_RANK"],
        rank: "SLURM_PROCID",
        size: "SLURM_STEP_NUM_TASKS",
        local: "SLURM_LOCALID",
        slurm: true,
        family: None,
    },
    Launcher {
        name: "a PMIx launcher",
        signs: &["PMIX_RANK"],
        rank: "PMIX_RANK",
        size: "",
        local: "",
        slurm: false,
        family: None,
    },
    Launcher {
        name: "a PMI launcher",
        signs: &["PMI_RANK"],
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local: "MPI_LOCALRANKID",
        slurm: false,
        family: None,
    },
];

fn recognise(lookup: &impl Fn(&str) -> Option<String>) -> Option<&'static Launcher> {
    LAUNCHERS.iter().find(|launcher| launcher.signs.iter().all(|sign| lookup(sign).is_some()))
}

/// The launcher whose variables are set, or `None` if this process was started on its own.
pub fn launcher() -> Option<&'static str> {
    recognise(&variable).map(|launcher| launcher.name)
}

/// Whether a launcher of MPI's own (an mpirun) has set its variables; Slurm's PMI does not count as one.
pub(super) fn has_mpirun(lookup: &impl Fn(&str) -> Option<String>) -> bool {
    recognise(lookup).is_some_and(|launcher| !launcher.slurm)
}

/// Rank and number of ranks by the launcher's variables.
pub(super) fn rank_and_size() -> Option<(usize, usize)> {
    let launcher = recognise(&variable)?;
    let number = |name| variable(name)?.parse().ok();
    // a launcher that gives no size has started several ranks, or nobody would use it
    Some((number(launcher.rank)?, number(launcher.size).unwrap_or(2)))
}

/// Whether another rank of this node comes before this one, by the launcher's variables.
pub(super) fn is_second_of_node() -> bool {
    let local = || variable(recognise(&variable)?.local)?.parse().ok();
    local().is_some_and(|rank: usize| rank > 0)
}

/// An mpirun that serves one family of MPI libraries alone, and has started several ranks.
pub(super) struct Serving {
    /// As users know it.
    pub name: &'static str,
    /// Whose libraries understand it.
    pub family: Family,
    /// How many ranks it announced.
    pub ranks: usize,
}

/// The mpirun that has set its variables, if it serves one family of libraries and has started several ranks.
pub(super) fn serving(lookup: &impl Fn(&str) -> Option<String>) -> Option<Serving> {
    let launcher = recognise(lookup)?;
    let ranks = lookup(launcher.size)?.parse().ok().filter(|&ranks| ranks > 1)?;
    Some(Serving { name: launcher.name, family: launcher.family?, ranks })
}

/// Compares the size that an mpirun announced with MPI's own.
///
/// An mpirun of one MPI starting a program built for another gives as many lone ranks, each of which would train the
/// whole and write to the same folder.
pub fn check(lookup: impl Fn(&str) -> Option<String>, size: usize) -> Verdict {
    let Some(launcher) = recognise(&lookup).filter(|launcher| !launcher.slurm) else {
        return Verdict::Ok;
    };
    let announced: Option<usize> = lookup(launcher.size).and_then(|text| text.parse().ok());
    match announced {
        Some(announced) if announced != size && size == 1 => Verdict::Fatal(format!(
            "{} started {announced} ranks, but MPI sees only one: each would train alone. The launcher belongs to \
             another MPI than trireme was built with; `trireme doctor` names it. Start with that MPI's mpirun, or \
             build again with MPICC=/path/to/mpicc of this one",
            launcher.name
        )),
        _ => Verdict::Ok,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(pairs: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string())
    }

    fn name(pairs: &[(&str, &str)]) -> Option<&'static str> {
        recognise(&lookup(pairs)).map(|launcher| launcher.name)
    }

    #[test]
    fn recognises_launchers_by_their_variables() {
        assert_eq!(name(&[]), None);
        assert_eq!(name(&[("SLURM_JOB_ID", "7"), ("SLURM_NTASKS", "4")]), None);
        let open_mpi = [("OMPI_COMM_WORLD_SIZE", "4"), ("PMIX_RANK", "0"), ("SLURM_STEP_ID", "0")];
        assert_eq!(name(&open_mpi), Some("Open MPI's mpirun"));
        assert_eq!(name(&[("PMI_RANK", "0"), ("MPI_LOCALNRANKS", "2")]), Some("MPICH's mpiexec (Hydra)"));
        assert_eq!(name(&[("PMIX_RANK", "0"), ("SLURM_STEP_ID", "0")]), Some("srun with PMIx"));
        assert_eq!(name(&[("PMI_RANK", "0"), ("SLURM_STEP_ID", "0")]), Some("srun with PMI-2"));
        assert_eq!(name(&[("PMIX_RANK", "0")]), Some("a PMIx launcher"));
    }

    #[test]
    fn lone_ranks_under_a_foreign_mpirun_are_fatal() {
        let four = [("OMPI_COMM_WORLD_SIZE", "4")];
        assert_eq!(check(lookup(&four), 4), Verdict::Ok);
        let Verdict::Fatal(text) = check(lookup(&four), 1) else { panic!("four lone ranks passed") };
        assert!(text.contains("Open MPI's mpirun started 4 ranks, but MPI sees only one"), "{text}");
        assert_eq!(check(lookup(&[("OMPI_COMM_WORLD_SIZE", "1")]), 1), Verdict::Ok);
        assert_eq!(check(lookup(&[]), 1), Verdict::Ok);
    }
}
