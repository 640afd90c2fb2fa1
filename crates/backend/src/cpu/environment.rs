//! The environment variables of oneDNN, read before another thread changes the environment: getenv(3) beside setenv(3) is undefined in C,
//! and MPI libraries call the latter while they start.

use super::layout::Md;
use super::onednn::{Engine, arg, reorder};
use super::sys;
use crate::Error;

/// Of the tensor that is copied: one block of channels, few pixels.
const CHANNELS: usize = 8;
const DIMS: [usize; 4] = [1, CHANNELS, 2, 2];
const VALUES: usize = 4 * CHANNELS;

/// Has oneDNN read all its variables, which it does once: some with the first engine and primitive, some when it generates code, which a
/// copy into another layout needs, some with the first execution, and the hints on the width of registers (`ONEDNN_CPU_ISA_HINTS`) where
/// they are asked for, which that copy does on some processors only.
pub fn read() -> Result<(), Error> {
    // SAFETY: sets a variable of libgomp for this thread, which the engine of a run sets again: nothing here needs a team of threads.
    unsafe { sys::omp_set_num_threads(1) };
    // SAFETY: returns a number. Which hints there are does not matter here.
    unsafe { sys::dnnl_get_cpu_isa_hints() };
    let engine = Engine::without_team()?;
    let (plain, blocked) = (Md::plain(&DIMS)?, Md::activation(&DIMS, CHANNELS)?);
    let (from, mut to) = ([1.0f32; VALUES], [0.0f32; VALUES]);
    let copy = reorder(&engine, &plain, &blocked, "reading of the environment")?;
    let data = [(arg::SRC, from.as_ptr().cast_mut()), (arg::DST, to.as_mut_ptr())];
    // SAFETY: both arrays hold the values of their layout, which needs no padding.
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
