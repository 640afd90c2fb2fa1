//! Whether MPI sees the ranks that were started.

use super::verdict::Verdict;
use super::{launcher, slurm};

/// Checks the launch: both the launcher's own variables and Slurm's against the number of ranks that MPI sees.
///
/// `size` is [`WorldInfo::size`](super::WorldInfo::size). Reads the environment as it was when
/// [`Comm::launch`](super::Comm::launch) was called, since MPI libraries change it. The first fatal verdict wins, then the
/// first warning.
pub fn check_launch(size: usize) -> Verdict {
    let lookup = |name: &str| launcher::variable(name);
    let verdicts = [launcher::check(lookup, size), slurm::check(lookup, size)];
    let fatal = |v: &&Verdict| matches!(v, Verdict::Fatal(_));
    let warning = |v: &&Verdict| matches!(v, Verdict::Warning(_));
    let worst = verdicts.iter().find(fatal).or(verdicts.iter().find(warning));
    worst.cloned().unwrap_or(Verdict::Ok)
}
