//! Stochastic depth. Draws the same random numbers as the reference, and draws them again in the backward pass.

use std::rc::Rc;

use net::DropPath;

use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::{Activation, Slice};
use crate::cuda::kernels::declarations::CopyTensor;
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::shared::Shared;
use crate::draws::FIRST_INDEX;
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc, Traffic};

kernels! {
    /// to = from times each row's 0 or 1 / (1 - p)
    drop_path: DropPathKernel over threads(rows * elems) {
        from: [Activation; rows * elems],
        to: [Activation; rows * elems],
        rows: u32,
        elems: u64,
        seed: u64,
        epoch: [u32; 1],
        ids: [u64; rows],
        op: u32,
        p: f32,
    }
}

struct Plan {
    shared: Rc<Shared>,
    p: f32,
    index: u16,
    x: TensorDesc,
}

pub fn plan(gpu: &Cuda, op: &DropPath, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    Ok(Box::new(Plan { shared: gpu.shared.clone(), p: op.0, index: r.index, x: r.x[0] }))
}

impl Plan {
    fn drop(&self, seed: u64, from: Slice<'_, Activation>, to: Slice<'_, Activation>) -> Result<(), Error> {
        let (rows, elems, blocks) = (self.x.n as u32, self.x.shape.elems() as u64, self.shared.blocks.borrow());
        let (epoch, ids, op) = (blocks.inbox.epoch()?, blocks.inbox.ids()?, u32::from(FIRST_INDEX | self.index));
        self.shared.launch(&DropPathKernel { from, to, rows, elems, seed, epoch, ids, op, p: self.p })
    }
}

impl Planned<Cuda> for Plan {
    fn output(&self) -> TensorDesc {
        self.x
    }

    fn alias(&self) -> Option<usize> {
        Some(0)
    }

    fn traffic(&self, _: bool) -> Option<Traffic> {
        let n = self.x.elems();
        Some(self.shared.traffic(2 * n, 2 * n))
    }

    fn forward(&mut self, pass: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let (shared, elems) = (&self.shared, self.x.elems());
        let (x, y) = (shared.holds(x[0], elems)?, shared.holds(y, elems)?);
        if pass.training {
            return self.drop(pass.key.seed, x, y);
        }
        shared.launch(&CopyTensor { x, y, n: elems as u64 })
    }

    fn backward(&mut self, pass: &Pass<'_, Cuda>, g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let dy = self.shared.holds(g.dy, self.x.elems())?;
        self.drop(pass.key.seed, dy, dy)
    }
}
