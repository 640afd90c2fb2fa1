//! The gradient of a bias, with ReLU's mask in the same pass.

use crate::backend::Error;
use crate::backend::cuda::driver::memory::CudaBuf;
use crate::backend::cuda::kernels::module::Arg::{At, I32, U32, U64};
use crate::backend::cuda::shared::Shared;

/// Masks `dy` where `y` is zero (with `relu`) and leaves its sums over the rows in `dbias`. `partial` holds two words for each channel
/// of each block row of [`Shared::column_grid`].
pub fn backward(
    shared: &Shared,
    (y, dy): (u64, u64),
    partial: &CudaBuf,
    (rows, channels): (usize, usize),
    relu: bool,
    dbias: u64,
) -> Result<(), Error> {
    let grid = shared.column_grid(rows, channels);
    partial.check(0, 2 * grid.1 as usize * channels)?;
    let (at, count) = (At(partial.address()), U32(channels as u32));
    let args = [At(y), At(dy), at, U64(rows as u64), count, I32(i32::from(relu))];
    // SAFETY: the caller has seen that y and dy hold (rows, channels); partial is checked above.
    unsafe { shared.launch("bias_backward", grid, &args)? };
    // SAFETY: the caller has seen that the bias has a value a channel.
    unsafe { shared.launch("bias_gradient", shared.grid(32 * channels), &[at, U32(grid.1), At(dbias), count]) }
}
