//! Finds out how the ranks were started, and checks that MPI sees the same ranks.
//!
//! This module reads the environment as it was at program start, because MPI libraries change it while they initialise.

use std::time::{Duration, SystemTime};

use base::text::plural;

pub use base::environment::variable;

/// A group of MPI libraries with the same binary interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Open MPI 4 and 5, and libraries derived from it.
    OpenMpi,
    /// Libraries with MPICH's common ABI, libmpi.so.12: MPICH, Cray MPICH, Intel MPI, MVAPICH.
    Mpich,
}

impl Family {
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
        }
    }

    /// Recognises the family from the text of `MPI_Get_library_version`. Returns `None` for an unknown library.
    pub fn from_library_version(version: &str) -> Option<Self> {
        let has = |names: &[&str]| names.iter().any(|name| version.contains(name));
        if has(&["Open MPI"]) {
            Some(Self::OpenMpi)
        } else if has(&["MPICH", "Intel(R) MPI", "MVAPICH"]) {
            Some(Self::Mpich)
        } else {
            None
        }
    }
}

/// A program that starts ranks. `rank`, `size` and `local` are names of environment variables, empty if the launcher
/// does not set such a variable.
struct Launcher {
    name: &'static str,
    /// The launcher is recognised if all of these variables are set.
    signs: &'static [&'static str],
    rank: &'static str,
    size: &'static str,
    /// The variable with the rank's index on its node.
    local: &'static str,
    /// True if each rank is a Slurm task.
    slurm: bool,
    /// The family of MPI libraries that this launcher can start. `None` if it can start more than one family.
    family: Option<Family>,
}

/// The most specific launcher comes first, because an mpirun inside a Slurm job also sees Slurm's variables. On HPE Cray
/// systems srun and `flux run` set variables of PALS, too, so PALS comes after them.
const LAUNCHERS: [Launcher; 10] = [
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
        name: "Flux",
        signs: &["FLUX_TASK_RANK"],
        rank: "FLUX_TASK_RANK",
        size: "FLUX_JOB_SIZE",
        local: "FLUX_TASK_LOCAL_ID",
        slurm: false,
        family: None,
    },
    Launcher {
        name: "srun with Cray's PMI",
        signs: &["SLURM_STEP_ID", "PALS_RANKID"],
        rank: "SLURM_PROCID",
        size: "SLURM_STEP_NUM_TASKS",
        local: "SLURM_LOCALID",
        slurm: true,
        family: None,
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

/// Returns the name of the launcher that set its variables, or `None` if this process was not started by a launcher.
pub fn launcher() -> Option<&'static str> {
    recognise(&variable).map(|launcher| launcher.name)
}

/// Returns true if a launcher other than srun (an mpirun) has set its variables. Slurm's PMI variables do not count.
pub(super) fn has_mpirun(lookup: &impl Fn(&str) -> Option<String>) -> bool {
    recognise(lookup).is_some_and(|launcher| !launcher.slurm)
}

/// Returns the rank and the number of ranks from the launcher's variables.
pub(super) fn rank_and_size() -> Option<(usize, usize)> {
    let launcher = recognise(&variable)?;
    let number = |name| variable(name)?.parse().ok();
    // If the launcher sets no size, assume two ranks, because a launcher is rarely used for a single rank.
    Some((number(launcher.rank)?, number(launcher.size).unwrap_or(2)))
}

/// Returns true if this is not the first rank of its node, according to the launcher's variables.
pub(super) fn is_second_of_node() -> bool {
    let local = || variable(recognise(&variable)?.local)?.parse().ok();
    local().is_some_and(|rank: usize| rank > 0)
}

/// An mpirun for one family of MPI libraries that has started more than one rank.
pub(super) struct Serving {
    pub name: &'static str,
    /// The family that this mpirun can start.
    pub family: Family,
    /// The number of ranks that this mpirun announced.
    pub ranks: usize,
}

/// Returns the recognised mpirun, if it belongs to one family of libraries and has started more than one rank.
pub(super) fn serving(lookup: &impl Fn(&str) -> Option<String>) -> Option<Serving> {
    let launcher = recognise(lookup)?;
    let ranks = lookup(launcher.size)?.parse().ok().filter(|&ranks| ranks > 1)?;
    Some(Serving { name: launcher.name, family: launcher.family?, ranks })
}

/// Compares the number of ranks that an mpirun announced with the number that MPI sees. Fatal if MPI sees only one rank
/// and the mpirun announced more.
///
/// If the mpirun of one MPI starts a program that was built for another, every process believes that it is the only
/// rank. Each would train the whole model and write to the same output directory.
pub fn check_size(lookup: impl Fn(&str) -> Option<String>, size: usize) -> Verdict {
    let Some(launcher) = recognise(&lookup).filter(|launcher| !launcher.slurm) else {
        return Verdict::Ok;
    };
    let announced: Option<usize> = lookup(launcher.size).and_then(|text| text.parse().ok());
    match announced {
        Some(announced) if announced != size && size == 1 => Verdict::Fatal(format!(
            "{} started {announced} ranks, but MPI sees only one, so each would run on its own. This launcher belongs to another MPI \
             than the one that trireme was built with (`trireme doctor` shows it). Start with the mpirun of that MPI, or rebuild with \
             MPICC=/path/to/mpicc of this launcher's MPI",
            launcher.name
        )),
        _ => Verdict::Ok,
    }
}

// Checks that MPI sees as many ranks as Slurm started tasks. With the wrong PMI, `srun -n 4` starts four programs that
// each believe they are rank 0 of 1, without any message. They would write to the same output directory.

/// The variable with the end time of the job, in seconds since 1970.
pub const END: &str = "SLURM_JOB_END_TIME";

/// Compares the number of ranks with Slurm's variables, which `lookup` reads.
///
/// Fatal only if MPI sees one rank inside an srun step with more than one task and no mpirun has set its variables. Any
/// other mismatch is a warning. Outside of Slurm, and after the end of the job, the result is always [`Verdict::Ok`].
pub fn check_tasks(lookup: impl Fn(&str) -> Option<String>, size: usize) -> Verdict {
    if lookup("SLURM_JOB_ID").is_none() || is_over(&lookup) {
        return Verdict::Ok;
    }
    // An mpirun starts one daemon per node with srun, so the step's tasks are the daemons.
    let by_mpirun = has_mpirun(&lookup);
    match (step_tasks(&lookup), number(&lookup, "SLURM_NTASKS")) {
        (Some(tasks), _) if !by_mpirun && tasks > 1 && size == 1 => Verdict::Fatal(lone_ranks(tasks)),
        (Some(tasks), _) if !by_mpirun && tasks != size => Verdict::Warning(mismatch("step", tasks, size)),
        (Some(_), _) if !by_mpirun => Verdict::Ok,
        (_, Some(tasks)) if tasks != size => Verdict::Warning(mismatch("job", tasks, size)),
        _ => Verdict::Ok,
    }
}

/// On task 0, returns a warning if MPI will probably not see the other tasks of the srun step. The warning names the
/// likely cause. It must be printed before MPI starts, because Open MPI may end the process with a message that blames
/// its own build. `library` is MPI's name and version.
pub fn foresee(lookup: impl Fn(&str) -> Option<String>, library: &str) -> Option<String> {
    let tasks = step_tasks(&lookup).filter(|&tasks| tasks > 1 && !is_over(&lookup))?;
    if has_mpirun(&lookup) || lookup("SLURM_PROCID").as_deref() != Some("0") {
        return None;
    }
    let has = |name| lookup(name).is_some();
    let how = match (has("PMIX_RANK"), has("PMI_RANK"), library.starts_with("Open MPI")) {
        (false, false, _) => "without any PMI (--mpi=none, or Slurm's default)",
        (false, true, true) if has("PALS_RANKID") => "by Cray's PMI, which few builds of Open MPI support",
        (false, true, true) => "by PMI-2, which few builds of Open MPI support",
        _ => return None,
    };
    Some(format!(
        "srun started {tasks} tasks {how}. If MPI fails now or sees only one rank, use srun --mpi=pmix (Open MPI) or srun --mpi=pmi2 \
         (MPICH, Intel MPI); `srun --mpi=list` shows what this Slurm supports"
    ))
}

/// Returns true if the job has already ended. A shell or tmux session that was started in a job keeps the job's
/// variables.
pub fn is_over(lookup: impl Fn(&str) -> Option<String>) -> bool {
    let end = lookup(END).and_then(|end| end.trim().parse().ok()).map(Duration::from_secs);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    end.zip(now.ok()).is_some_and(|(end, now)| end < now)
}

fn number(lookup: &impl Fn(&str) -> Option<String>, name: &str) -> Option<usize> {
    lookup(name)?.parse().ok()
}

/// Returns the number of tasks in this process's srun step.
fn step_tasks(lookup: &impl Fn(&str) -> Option<String>) -> Option<usize> {
    lookup("SLURM_STEP_ID")?;
    number(lookup, "SLURM_STEP_NUM_TASKS")
}

fn lone_ranks(tasks: usize) -> String {
    format!(
        "srun started {tasks} tasks, but MPI sees only one rank, so each would run on its own: srun and this MPI use different PMIs. \
         Start with `srun --mpi=pmix` (Open MPI) or `srun --mpi=pmi2` (MPICH, Intel MPI); `srun --mpi=list` shows what this Slurm \
         supports. Or use mpirun inside the job. To start one rank on purpose: srun -n 1"
    )
}

fn mismatch(what: &str, tasks: usize, size: usize) -> String {
    let (ranks, tasks_text) = (plural(size, "rank"), plural(tasks, "task"));
    format!(
        "MPI sees {ranks}, but the Slurm {what} has {tasks_text}; this program uses {ranks}. If you want {}, start it with \
         `srun -n {tasks}` or `mpirun -n {tasks}`",
        plural(tasks, "rank")
    )
}

/// Checks the number of ranks that MPI sees against the launcher's variables and against Slurm's.
///
/// `size` is [`WorldInfo::size`](super::WorldInfo::size). The variables are read from the copy of the environment that
/// [`Comm::launch`](super::Comm::launch) made. Returns the first fatal verdict, otherwise the first warning.
pub fn check_launch(size: usize) -> Verdict {
    let lookup = |name: &str| variable(name);
    let verdicts = [check_size(lookup, size), check_tasks(lookup, size)];
    let fatal = |v: &&Verdict| matches!(v, Verdict::Fatal(_));
    let warning = |v: &&Verdict| matches!(v, Verdict::Warning(_));
    let worst = verdicts.iter().find(fatal).or(verdicts.iter().find(warning));
    worst.cloned().unwrap_or(Verdict::Ok)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Ok,
    /// Rank 0 should print this warning. The run can continue.
    Warning(String),
    /// The run must end, because it would not compute what the user asked for. The text says how to fix it.
    Fatal(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use support::mentions;

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
        let cray = [("SLURM_STEP_ID", "0"), ("PALS_RANKID", "0"), ("PMI_RANK", "0"), ("PMI_SIZE", "4")];
        assert_eq!(name(&cray), Some("srun with Cray's PMI"));
        assert_eq!(name(&cray[1..]), Some("PALS mpiexec"));
        assert_eq!(name(&[("FLUX_TASK_RANK", "0"), ("PALS_RANKID", "0")]), Some("Flux"));
    }

    #[test]
    fn lone_ranks_under_a_foreign_mpirun_are_fatal() {
        let four = [("OMPI_COMM_WORLD_SIZE", "4")];
        assert_eq!(check_size(lookup(&four), 4), Verdict::Ok);
        let Verdict::Fatal(text) = check_size(lookup(&four), 1) else { panic!("four lone ranks passed") };
        mentions(text, &["Open MPI's mpirun", "4 ranks"]);
        assert_eq!(check_size(lookup(&[("OMPI_COMM_WORLD_SIZE", "1")]), 1), Verdict::Ok);
        assert_eq!(check_size(lookup(&[]), 1), Verdict::Ok);
    }

    fn verdict(pairs: &[(&str, &str)], size: usize) -> Verdict {
        check_tasks(lookup(pairs), size)
    }

    const STEP: [(&str, &str); 4] =
        [("SLURM_JOB_ID", "9"), ("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_NTASKS", "4")];

    fn step_and(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
        STEP.iter().chain(more).copied().collect()
    }

    #[test]
    fn without_a_slurm_job_every_size_is_accepted() {
        assert_eq!(verdict(&[], 1), Verdict::Ok);
        assert_eq!(verdict(&[("SLURM_NTASKS", "4")], 1), Verdict::Ok);
    }

    #[test]
    fn a_world_of_the_step_size_is_accepted() {
        assert_eq!(verdict(&STEP, 4), Verdict::Ok);
        // A step that is smaller than its job. Only the step's size counts inside a step.
        let step =
            [("SLURM_JOB_ID", "9"), ("SLURM_STEP_ID", "1"), ("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_NTASKS", "4")];
        assert_eq!(verdict(&step, 1), Verdict::Ok);
    }

    #[test]
    fn lone_ranks_of_a_step_are_fatal_and_the_text_has_the_remedy() {
        let Verdict::Fatal(text) = verdict(&STEP, 1) else { panic!("four lone ranks passed") };
        mentions(text, &["4 tasks", "--mpi=pmix"]);
    }

    #[test]
    fn variables_of_a_finished_job_are_ignored() {
        assert_eq!(verdict(&step_and(&[(END, "1000000000")]), 1), Verdict::Ok);
        assert!(matches!(verdict(&step_and(&[(END, "99999999999")]), 1), Verdict::Fatal(_)));
    }

    #[test]
    fn lone_ranks_under_srun_with_pmi_are_fatal() {
        for pmi in [("PMIX_RANK", "0"), ("PMI_RANK", "0")] {
            assert!(matches!(verdict(&step_and(&[pmi]), 1), Verdict::Fatal(_)), "{pmi:?}");
        }
        let cray = step_and(&[("PALS_RANKID", "0"), ("PMI_RANK", "0")]);
        assert!(matches!(verdict(&cray, 1), Verdict::Fatal(_)));
        assert_eq!(verdict(&cray, 4), Verdict::Ok);
    }

    #[test]
    fn mpirun_inside_a_step_with_another_size_only_warns() {
        for mpirun in [("OMPI_COMM_WORLD_SIZE", "1"), ("MV2_COMM_WORLD_SIZE", "1")] {
            assert!(matches!(verdict(&step_and(&[mpirun]), 1), Verdict::Warning(_)), "{mpirun:?}");
            assert_eq!(verdict(&step_and(&[mpirun]), 4), Verdict::Ok);
        }
        assert!(matches!(verdict(&step_and(&[("PMI_RANK", "0"), ("MPI_LOCALNRANKS", "1")]), 1), Verdict::Warning(_)));
    }

    #[test]
    fn other_size_mismatches_only_warn() {
        assert!(matches!(verdict(&STEP, 2), Verdict::Warning(_)));
        // A batch script that calls the program without srun or mpirun.
        let batch = [("SLURM_JOB_ID", "9"), ("SLURM_NTASKS", "4")];
        let Verdict::Warning(text) = verdict(&batch, 1) else { panic!("no warning") };
        mentions(text, &["1 rank,", "4 tasks"]);
        assert_eq!(verdict(&batch, 4), Verdict::Ok);
    }

    #[test]
    fn task_0_predicts_that_mpi_will_not_find_its_pmi() {
        let foreseen = |more: &[(&'static str, &'static str)], library| foresee(lookup(&step_and(more)), library);
        let first = ("SLURM_PROCID", "0");
        let text = foreseen(&[first], "MPICH Version: 4.0.2").unwrap();
        mentions(text, &["4 tasks", "--mpi=none", "--mpi=pmix"]);
        let text = foreseen(&[first, ("PMI_RANK", "0")], "Open MPI v4.1.4").unwrap();
        mentions(text, &["4 tasks", "PMI-2"]);
        let text = foreseen(&[first, ("PMI_RANK", "0"), ("PALS_RANKID", "0")], "Open MPI v4.1.4").unwrap();
        mentions(text, &["4 tasks", "Cray's PMI"]);
        assert_eq!(foreseen(&[first, ("PMI_RANK", "0")], "MPICH Version: 4.0.2"), None);
        assert_eq!(foreseen(&[first, ("PMIX_RANK", "0")], "Open MPI v4.1.4"), None);
        assert_eq!(foreseen(&[first, ("OMPI_COMM_WORLD_SIZE", "4")], "Open MPI v4.1.4"), None);
        assert_eq!(foreseen(&[("SLURM_PROCID", "1")], "Open MPI v4.1.4"), None);
        let alone = [("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "1"), first];
        assert_eq!(foresee(lookup(&alone), "Open MPI v4.1.4"), None);
    }

    #[test]
    fn invalid_task_counts_are_ignored() {
        let odd = [("SLURM_JOB_ID", "9"), ("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "four")];
        assert_eq!(verdict(&odd, 1), Verdict::Ok);
    }
}
