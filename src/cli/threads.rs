//! Variables that libraries read when they are loaded: how OpenMP threads and MPI wait, whether HDF5 locks files.

use super::exit::Failure;
use std::os::unix::process::CommandExt;

/// Threads spin this often (some 10 microseconds) before they sleep.
const SPINS: &str = "20000";

/// Makes OpenMP threads sleep after a short spin, unless the user has set how they wait. By default they spin for
/// milliseconds; with a core taken by anything else (a loader thread, MPI, a neighbour) that costs a factor of three and more.
/// libgomp reads its variables when it is loaded, so the program starts itself once more with them set.
///
/// Open MPI's waits yield the core for the same reason: its thread mostly waits. HDF5 does not lock files: one rank writes, to
/// a name that nobody else knows yet, and many a parallel file system refuses locks.
pub fn calm_waiting() -> Result<(), Failure> {
    let set = |name: &str| std::env::var_os(name).is_some();
    let mut missing = vec![("OMPI_MCA_mpi_yield_when_idle", "1"), ("HDF5_USE_FILE_LOCKING", "FALSE")];
    if !set("OMP_WAIT_POLICY") && !set("GOMP_SPINCOUNT") {
        missing.extend([("OMP_WAIT_POLICY", "passive"), ("GOMP_SPINCOUNT", SPINS)]);
    }
    missing.retain(|(name, _)| !set(name));
    if missing.is_empty() {
        return Ok(());
    }
    let program =
        std::env::current_exe().map_err(|e| Failure::failed(format!("cannot find the program's own file: {e}")))?;
    // only a failure returns
    let error = std::process::Command::new(program).args(std::env::args_os().skip(1)).envs(missing).exec();
    Err(Failure::failed(format!("cannot start the program again with OMP_WAIT_POLICY set: {error}; set it yourself")))
}
