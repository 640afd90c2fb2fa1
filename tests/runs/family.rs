//! Ranks that an mpirun of another family of MPI has started: told before MPI starts, rank 0 first.

use std::time::Duration;

use crate::support::program::{Ended, PATIENCE, run, start, trireme};

/// The variables by which an mpirun of two ranks is known, and its name for the rank.
struct Mpirun {
    name: &'static str,
    size: &'static str,
    local: &'static str,
    rank: &'static str,
    others: &'static str,
}

const OPEN_MPI: Mpirun = Mpirun {
    name: "Open MPI's mpirun",
    size: "OMPI_COMM_WORLD_SIZE",
    local: "OMPI_COMM_WORLD_LOCAL_SIZE",
    rank: "OMPI_COMM_WORLD_RANK",
    others: "built for MPICH",
};
const HYDRA: Mpirun = Mpirun {
    name: "MPICH's mpiexec (Hydra)",
    size: "PMI_SIZE",
    local: "MPI_LOCALNRANKS",
    rank: "PMI_RANK",
    others: "built for Open MPI",
};

/// That of the family which the program was not built for.
fn foreign() -> Mpirun {
    let versions = run(0, &["--version", "--verbose"]).succeeded().stdout;
    if versions.contains("MPI: Open MPI") { HYDRA } else { OPEN_MPI }
}

/// The program as that mpirun would start it.
fn doctor(mpirun: &Mpirun, rank: &str, size: &str) -> Ended {
    let mut program = trireme(0, &["doctor"]);
    program.env(mpirun.rank, rank).env(mpirun.size, size).env(mpirun.local, size);
    start(program).wait(PATIENCE)
}

#[test]
fn an_mpirun_of_the_other_family_is_refused_before_mpi_starts_and_rank_0_speaks_first() {
    let mpirun = foreign();
    let first = doctor(&mpirun, "0", "2");
    let second = doctor(&mpirun, "1", "2");
    for (ended, rank) in [(&first, "rank 0: "), (&second, "rank 1: ")] {
        let parts =
            [rank, mpirun.name, "started 2 ranks, but this trireme was", mpirun.others, "could not find each other"];
        assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert!(parts.iter().all(|part| ended.stderr.contains(part)), "{parts:?} in {}", ended.stderr);
        assert_eq!(ended.stdout, "");
    }
    // an mpirun ends all ranks when the first has failed
    assert!(second.took > Duration::from_secs(1), "{:?}", second.took);
    assert!(first.took < second.took, "{:?}, {:?}", first.took, second.took);
}

#[test]
fn one_rank_under_the_other_family_s_mpirun_may_go_on() {
    doctor(&foreign(), "0", "1").succeeded();
}
