//! Inverted dropout: the draws are the reference's, made anew in the backward pass instead of being kept.

use std::rc::Rc;

use crate::backend::cuda::driver::memory::CudaBuf;
use crate::backend::cuda::kernels::module::Arg::{At, F32, U32, U64};
use crate::backend::cuda::shared::Shared;
use crate::backend::cuda::{Cuda, Format};
use crate::backend::reference::dropout::FIRST_INDEX;
use crate::backend::{Error, Gradients, Pass, Planned, Request, TensorDesc};

/// Dropout of known size.
pub struct Plan {
    shared: Rc<Shared>,
    p: f32,
    index: u16,
    x: TensorDesc,
}

impl Plan {
    pub fn new(shared: &Rc<Shared>, p: f32, r: &Request<'_, Cuda>) -> Self {
        Self { shared: shared.clone(), p, index: r.index, x: r.x[0] }
    }

    /// to = from times 0 or 1 / (1 - p)
    fn drop(&self, seed: u64, from: u64, to: u64) -> Result<(), Error> {
        let (shared, shape) = (&self.shared, self.x.shape);
        let blocks = shared.blocks.borrow();
        let (epoch, ids) = (At(blocks.epoch.address()), At(blocks.ids.address()));
        let [rows, channels, plane] = [self.x.n, shape.c, shape.plane()].map(|v| U32(v as u32));
        let op = U32(u32::from(FIRST_INDEX | self.index));
        let args = [At(from), At(to), rows, channels, plane, U64(seed), epoch, ids, op, F32(self.p)];
        // SAFETY: both tensors are as large as planned (checked by the callers); `begin` has brought an id for each row.
        unsafe { shared.launch("dropout", shared.grid(self.x.elems().div_ceil(4)), &args) }
    }
}

impl Planned<Cuda> for Plan {
    fn output(&self) -> TensorDesc {
        self.x
    }

    fn formats(&self) -> Vec<Format> {
        Vec::new()
    }

    fn state_bytes(&self) -> usize {
        0
    }

    fn implementation(&self) -> String {
        "own".into()
    }

    fn alias(&self) -> Option<usize> {
        Some(0)
    }

    fn forward(&mut self, pass: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let (shared, elems) = (&self.shared, self.x.elems());
        let (x, y) = (shared.holds(x[0], elems)?, shared.holds(y, elems)?);
        if pass.training {
            return self.drop(pass.key.seed, x, y);
        }
        // SAFETY: both hold as many activations.
        unsafe { shared.launch("copy_tensor", shared.grid(elems.div_ceil(4)), &[At(x), At(y), U64(elems as u64)]) }
    }

    fn backward(&mut self, pass: &Pass<'_, Cuda>, g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let dy = self.shared.holds(g.dy, self.x.elems())?;
        self.drop(pass.key.seed, dy, dy)
    }
}
