//! `trireme doctor`: what this machine and this MPI can do.

use training::{doctor, launch};

use super::output::{Failure, print};

/// Arguments of `trireme doctor`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  trireme doctor
  mpirun -n 2 trireme doctor
  mpirun -n 2 trireme doctor --cuda-aware")]
pub struct Args {
    /// Where there is no GPU, also say which libraries of it were looked for, and where
    #[arg(short, long)]
    pub verbose: bool,
    /// Try whether this MPI sums in the memory of GPUs, one a rank; one that does not can end the job by a signal
    #[arg(long)]
    pub cuda_aware: bool,
    /// Let several ranks use one GPU for it
    #[arg(long, requires = "cuda_aware")]
    pub share_gpu: bool,
}

/// Prints the report on rank 0; problems make it fail.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.cuda_aware {
        return match launch::try_cuda_aware(args.share_gpu)? {
            Some(text) => print(text),
            None => Ok(()),
        };
    }
    let Some(report) = doctor::examine(args.verbose)? else { return Ok(()) };
    print(&report.text)?;
    match report.problems {
        0 => Ok(()),
        n => Err(Failure::failed(format!("{n} problem(s) found, see above"))),
    }
}
