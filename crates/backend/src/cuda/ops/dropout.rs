//! Inverted dropout. Draws the same random numbers as the reference, and draws them again in the backward pass instead
//! of storing a mask.

use net::Dropout;

use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::{Activation, Slice};
use crate::cuda::kernels::declarations::CopyTensor;
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::shared::Shared;
use crate::draws::FIRST_INDEX;
use crate::planned::elementwise;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned};

kernels! {
    /// to = from * factor, where an element's factor is 0 with probability p, otherwise 1 / (1 - p)
    dropout: DropoutKernel over threads((rows * channels * plane).div_ceil(4)) {
        from: [Activation; rows * channels * plane],
        to: [Activation; rows * channels * plane],
        rows: u32,
        channels: u32,
        plane: u32,
        seed: u64,
        epoch: [u32; 1],
        ids: [u64; rows],
        op: u32,
        p: f32,
    }
}

pub fn plan(gpu: &Cuda, op: &Dropout, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let (p, index, x) = (op.0, r.index, r.x[0]);
    let [rows, channels, plane] = [x.n, x.shape.c, x.shape.plane()].map(|v| v as u32);
    plan_dropping(gpu, r, move |shared, seed, from, to| {
        let blocks = shared.blocks.borrow();
        let (epoch, ids, op) = (blocks.inbox.epoch()?, blocks.inbox.ids()?, u32::from(FIRST_INDEX | index));
        shared.launch(&DropoutKernel { from, to, rows, channels, plane, seed, epoch, ids, op, p })
    })
}

/// Plans an operation that drops activations in training. `drop(gpu, seed, from, to)` launches its kernel.
pub fn plan_dropping(
    gpu: &Cuda,
    r: &PlanRequest<'_, Cuda>,
    drop: impl Fn(&Shared, u64, Slice<'_, Activation>, Slice<'_, Activation>) -> Result<(), Error> + Copy + 'static,
) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let (shared, n) = (gpu.shared.clone(), r.x[0].elems());
    let (traffic, launcher) = (shared.traffic(2 * n, 2 * n), shared.clone());
    let forward = move |pass: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf| {
        let (x, y) = (launcher.holds(x[0], n)?, launcher.holds(y, n)?);
        if pass.training {
            return drop(&launcher, pass.key.seed, x, y);
        }
        launcher.launch(&CopyTensor { x, y, n: n as u64 })
    };
    elementwise(r.x[0], Keeps::NOTHING, Some(traffic), forward, move |pass, g: Gradients<'_, Cuda>| {
        let dy = shared.holds(g.dy, n)?;
        drop(&shared, pass.key.seed, dy, dy)
    })
}
