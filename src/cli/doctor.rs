//! `trireme doctor`: checks what this machine and this MPI can do.

use base::text::plural;
use training::{doctor, launch};

use super::output::{Failure, print};

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  trireme doctor
  mpirun -n 2 trireme doctor
  mpirun -n 2 trireme doctor --cuda-aware")]
pub struct Args {
    /// If there is no GPU, also print which GPU libraries were searched for, and where
    #[arg(short, long)]
    pub verbose: bool,
    /// Test whether this MPI can sum in GPU memory, with one GPU per rank. An MPI that cannot may end the job with a
    /// signal
    #[arg(long)]
    pub cuda_aware: bool,
    /// Allow ranks to share a GPU for this test
    #[arg(long, requires = "cuda_aware")]
    pub share_gpu: bool,
}

/// Prints the report on rank 0. Returns an error if the report contains problems.
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
        n => Err(Failure::failed(format!("{} found, see above", plural(n, "problem")))),
    }
}
