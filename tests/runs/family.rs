//! A program built for one MPI, started with the mpirun of another. The program detects this before MPI starts.

use std::time::Duration;

use support::program::{PATIENCE, ProgramOutput, run, start, trireme};

/// The environment variables that an mpirun sets.
struct Mpirun {
    name: &'static str,
    size: &'static str,
    on_node: &'static str,
    local: &'static str,
    rank: &'static str,
    others: &'static str,
}

const OPEN_MPI: Mpirun = Mpirun {
    name: "Open MPI's mpirun",
    size: "OMPI_COMM_WORLD_SIZE",
    on_node: "OMPI_COMM_WORLD_LOCAL_SIZE",
    local: "OMPI_COMM_WORLD_LOCAL_RANK",
    rank: "OMPI_COMM_WORLD_RANK",
    others: "built for MPICH",
};
const HYDRA: Mpirun = Mpirun {
    name: "MPICH's mpiexec (Hydra)",
    size: "PMI_SIZE",
    on_node: "MPI_LOCALNRANKS",
    local: "MPI_LOCALRANKID",
    rank: "PMI_RANK",
    others: "built for Open MPI",
};

/// Returns the mpirun for which the program was not built.
fn foreign() -> Mpirun {
    let versions = run(0, &["--version", "--verbose"]).succeeded().stdout;
    if versions.contains("MPI: Open MPI") { HYDRA } else { OPEN_MPI }
}

/// Starts the program with the variables that this mpirun would set.
fn doctor(mpirun: &Mpirun, rank: &str, local: &str, size: &str) -> ProgramOutput {
    let mut program = trireme(0, &["doctor"]);
    program.env(mpirun.rank, rank).env(mpirun.local, local).env(mpirun.size, size).env(mpirun.on_node, size);
    start(program).wait(PATIENCE)
}

#[test]
fn an_mpirun_of_the_other_family_is_refused_before_mpi_starts_by_one_rank_of_each_node() {
    let mpirun = foreign();
    for (rank, who) in [("0", "rank 0: "), ("2", "rank 2: ")] {
        let ended = doctor(&mpirun, rank, "0", "4");
        let parts = [who, mpirun.name, "4 ranks", mpirun.others];
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert_eq!(ended.failed(1, &parts).stdout, "");
    }
    let second = doctor(&mpirun, "1", "1", "4");
    assert_eq!((second.status.code(), second.stderr.as_str(), second.stdout.as_str()), (Some(1), "", ""));
    assert!(
        second.took > Duration::from_secs(1),
        "this rank must wait, because mpirun may end all ranks when the first ends: {:?}",
        second.took
    );
}

#[test]
fn one_rank_under_the_other_familys_mpirun_may_continue() {
    doctor(&foreign(), "0", "0", "1").succeeded();
}
