//! Whether MPI sees as many ranks as Slurm started tasks.
//!
//! With the wrong PMI, `srun -n 4` starts four programs that each believe to be rank 0 of 1, without any message: four
//! trainings instead of one, writing to the same folder.

use std::time::{Duration, SystemTime};

use super::launcher;
use super::verdict::Verdict;

/// The variable with the end time of the job, in seconds since 1970.
pub const END: &str = "SLURM_JOB_END_TIME";

/// Compares the number of ranks with Slurm's variables, which `lookup` reads.
///
/// Fatal only if MPI sees one rank inside an srun step of several tasks and no mpirun has set its variables; any other
/// mismatch is a warning. Outside of Slurm it is always [`Verdict::Ok`].
pub fn check(lookup: impl Fn(&str) -> Option<String>, size: usize) -> Verdict {
    if lookup("SLURM_JOB_ID").is_none() || is_over(&lookup) {
        return Verdict::Ok;
    }
    // An mpirun starts its daemons by srun, one a node: the step's number of tasks is then the number of daemons.
    let by_mpirun = launcher::has_mpirun(&lookup);
    match (step_tasks(&lookup), number(&lookup, "SLURM_NTASKS")) {
        (Some(tasks), _) if !by_mpirun && tasks > 1 && size == 1 => Verdict::Fatal(lone_ranks(tasks)),
        (Some(tasks), _) if !by_mpirun && tasks != size => Verdict::Warning(mismatch("this step of", tasks, size)),
        (Some(_), _) if !by_mpirun => Verdict::Ok,
        (_, Some(tasks)) if tasks != size => Verdict::Warning(mismatch("the job with", tasks, size)),
        _ => Verdict::Ok,
    }
}

/// What will keep MPI from seeing the other tasks of an srun step. Task 0 prints it before MPI starts, since Open MPI may then end
/// the process with a text that blames its own build. `library` is MPI's name and version.
pub fn foresee(lookup: impl Fn(&str) -> Option<String>, library: &str) -> Option<String> {
    let tasks = step_tasks(&lookup).filter(|&tasks| tasks > 1 && !is_over(&lookup))?;
    if launcher::has_mpirun(&lookup) || lookup("SLURM_PROCID").as_deref() != Some("0") {
        return None;
    }
    let has = |name| lookup(name).is_some();
    let how = match (has("PMIX_RANK"), has("PMI_RANK"), library.starts_with("Open MPI")) {
        (false, false, _) => "without any PMI (--mpi=none, or Slurm's default)",
        (false, true, true) => "by PMI-2, which Open MPI rarely speaks",
        _ => return None,
    };
    Some(format!(
        "srun started {tasks} tasks {how}; if MPI fails now, or sees one rank only: srun --mpi=pmix (Open MPI) or srun \
         --mpi=pmi2 (MPICH, Intel MPI); `srun --mpi=list` names what this Slurm has"
    ))
}

/// Returns true if the job has already ended. A shell or tmux session that was started in a job keeps the job's variables.
pub fn is_over(lookup: impl Fn(&str) -> Option<String>) -> bool {
    let end = lookup(END).and_then(|end| end.trim().parse().ok()).map(Duration::from_secs);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    end.zip(now.ok()).is_some_and(|(end, now)| end < now)
}

fn number(lookup: &impl Fn(&str) -> Option<String>, name: &str) -> Option<usize> {
    lookup(name)?.parse().ok()
}

/// Tasks of the srun step that this process is in.
fn step_tasks(lookup: &impl Fn(&str) -> Option<String>) -> Option<usize> {
    lookup("SLURM_STEP_ID")?;
    number(lookup, "SLURM_STEP_NUM_TASKS")
}

fn lone_ranks(tasks: usize) -> String {
    format!(
        "srun started {tasks} tasks, but MPI sees only one rank: each would train alone. srun and this MPI speak \
         different PMIs. Start with `srun --mpi=pmix` (Open MPI) or `srun --mpi=pmi2` (MPICH, Intel MPI); `srun \
         --mpi=list` names what this Slurm has; or use mpirun inside the job. For one rank on purpose: srun -n 1"
    )
}

fn mismatch(what: &str, tasks: usize, size: usize) -> String {
    format!("MPI sees {size} rank(s), but Slurm started {what} {tasks} task(s); training goes on with {size}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(pairs: &[(&str, &str)], size: usize) -> Verdict {
        let lookup = |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string());
        check(lookup, size)
    }

    const STEP: [(&str, &str); 4] =
        [("SLURM_JOB_ID", "9"), ("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_NTASKS", "4")];

    fn step_and(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
        STEP.iter().chain(more).copied().collect()
    }

    #[test]
    fn outside_of_slurm_anything_goes() {
        assert_eq!(verdict(&[], 1), Verdict::Ok);
        assert_eq!(verdict(&[("SLURM_NTASKS", "4")], 1), Verdict::Ok);
    }

    #[test]
    fn a_matching_step_is_fine() {
        assert_eq!(verdict(&STEP, 4), Verdict::Ok);
        // A step smaller than its job, which is all that counts inside a step.
        let step =
            [("SLURM_JOB_ID", "9"), ("SLURM_STEP_ID", "1"), ("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_NTASKS", "4")];
        assert_eq!(verdict(&step, 1), Verdict::Ok);
    }

    #[test]
    fn lone_ranks_of_a_step_are_fatal_and_the_text_holds_the_cure() {
        let Verdict::Fatal(text) = verdict(&STEP, 1) else { panic!("four lone ranks passed") };
        assert!(text.contains("4 tasks") && text.contains("--mpi=pmix"), "{text}");
    }

    #[test]
    fn variables_of_a_job_that_is_over_do_not_count() {
        assert_eq!(verdict(&step_and(&[(END, "1000000000")]), 1), Verdict::Ok);
        assert!(matches!(verdict(&step_and(&[(END, "99999999999")]), 1), Verdict::Fatal(_)));
    }

    #[test]
    fn slurms_own_pmi_does_not_excuse_lone_ranks() {
        for pmi in [("PMIX_RANK", "0"), ("PMI_RANK", "0")] {
            assert!(matches!(verdict(&step_and(&[pmi]), 1), Verdict::Fatal(_)), "{pmi:?}");
        }
    }

    #[test]
    fn mpirun_inside_a_step_may_start_what_it_likes() {
        for mpirun in [("OMPI_COMM_WORLD_SIZE", "1"), ("MV2_COMM_WORLD_SIZE", "1")] {
            assert!(matches!(verdict(&step_and(&[mpirun]), 1), Verdict::Warning(_)), "{mpirun:?}");
            assert_eq!(verdict(&step_and(&[mpirun]), 4), Verdict::Ok);
        }
        assert!(matches!(verdict(&step_and(&[("PMI_RANK", "0"), ("MPI_LOCALNRANKS", "1")]), 1), Verdict::Warning(_)));
    }

    #[test]
    fn other_mismatches_warn() {
        assert!(matches!(verdict(&STEP, 2), Verdict::Warning(_)));
        // A batch script that calls the program without srun or mpirun.
        let batch = [("SLURM_JOB_ID", "9"), ("SLURM_NTASKS", "4")];
        let Verdict::Warning(text) = verdict(&batch, 1) else { panic!("no warning") };
        assert!(text.contains("MPI sees 1 rank(s)") && text.contains("4 task(s)"), "{text}");
        assert_eq!(verdict(&batch, 4), Verdict::Ok);
    }

    #[test]
    fn a_pmi_that_mpi_will_not_find_is_foreseen_by_task_0() {
        let foreseen = |more: &[(&'static str, &'static str)], library| {
            let pairs = step_and(more);
            let lookup = |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string());
            foresee(lookup, library)
        };
        let first = ("SLURM_PROCID", "0");
        let text = foreseen(&[first], "MPICH Version: 4.0.2").unwrap();
        assert!(text.contains("4 tasks without any PMI") && text.contains("--mpi=pmix"), "{text}");
        let text = foreseen(&[first, ("PMI_RANK", "0")], "Open MPI v4.1.4").unwrap();
        assert!(text.contains("4 tasks by PMI-2"), "{text}");
        assert_eq!(foreseen(&[first, ("PMI_RANK", "0")], "MPICH Version: 4.0.2"), None);
        assert_eq!(foreseen(&[first, ("PMIX_RANK", "0")], "Open MPI v4.1.4"), None);
        assert_eq!(foreseen(&[first, ("OMPI_COMM_WORLD_SIZE", "4")], "Open MPI v4.1.4"), None);
        assert_eq!(foreseen(&[("SLURM_PROCID", "1")], "Open MPI v4.1.4"), None);
        let alone = [("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "1"), first];
        let lookup = |name: &str| alone.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string());
        assert_eq!(foresee(lookup, "Open MPI v4.1.4"), None);
    }

    #[test]
    fn unreadable_numbers_are_passed_over() {
        let odd = [("SLURM_JOB_ID", "9"), ("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "four")];
        assert_eq!(verdict(&odd, 1), Verdict::Ok);
    }
}
