//! The environment variables of oneDNN, read before another thread changes the environment: getenv(3) beside setenv(3) is undefined in C,
//! and MPI libraries call the latter while they start.

use super::layout::Md;
use super::onednn::{Engine, arg, reorder};
use super::sys;
use crate::backend::Error;

/// Has oneDNN read all its variables, which it does once: some with the first engine and primitive, the rest with the first execution.
pub fn read() -> Result<(), Error> {
    // SAFETY: sets a variable of libgomp for this thread, which the engine of a run sets again: nothing here needs a team of threads.
    unsafe { sys::omp_set_num_threads(1) };
    let engine = Engine::without_team()?;
    let one = Md::plain(&[1, 1])?;
    let (from, mut to) = ([1.0f32], [0.0f32]);
    let copy = reorder(&engine, &one, &one, "reading of the environment")?;
    let data = [(arg::SRC, from.as_ptr().cast_mut()), (arg::DST, to.as_mut_ptr())];
    // SAFETY: both arrays hold the one element of their layout.
    unsafe { copy.run(&engine, &data) }
}

#[cfg(test)]
mod tests {
    /// What it is for is tested from outside, in tests/faults.
    #[test]
    fn it_may_be_read_again() {
        super::read().unwrap();
        super::read().unwrap();
    }
}
