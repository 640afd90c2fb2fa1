//! Stochastic depth. Draws the same random numbers as the reference, and draws them again in the backward pass.

use net::DropPath;

use crate::cuda::device::Cuda;
use crate::cuda::driver::slice::Activation;
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::ops::dropout::plan_dropping;
use crate::draws::FIRST_INDEX;
use crate::{Error, PlanRequest, Planned};

kernels! {
    /// to = from * factor, where a row's factor is 0 with probability p, otherwise 1 / (1 - p)
    drop_path: DropPathKernel over threads((rows * elems).div_ceil(4)) {
        from: [Activation; rows * elems],
        to: [Activation; rows * elems],
        rows: u32,
        elems: u32,
        seed: u64,
        epoch: [u32; 1],
        ids: [u64; rows],
        op: u32,
        p: f32,
    }
}

pub fn plan(gpu: &Cuda, op: &DropPath, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let (p, index, rows, elems) = (op.0, r.index, r.x[0].n as u32, r.x[0].shape.elems() as u32);
    plan_dropping(gpu, r, move |shared, seed, from, to| {
        let blocks = shared.blocks.borrow();
        let (epoch, ids, op) = (blocks.inbox.epoch()?, blocks.inbox.ids()?, u32::from(FIRST_INDEX | index));
        shared.launch(&DropPathKernel { from, to, rows, elems, seed, epoch, ids, op, p })
    })
}
