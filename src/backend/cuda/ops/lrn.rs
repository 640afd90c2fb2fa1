//! Local response normalisation.

use std::rc::Rc;

use crate::backend::cuda::driver::memory::CudaBuf;
use crate::backend::cuda::kernels::module::Arg::{self, At, F32, U32, U64};
use crate::backend::cuda::shared::Shared;
use crate::backend::cuda::{Cuda, Format};
use crate::backend::op::Lrn;
use crate::backend::{Error, Gradients, Pass, Planned, Request, TensorDesc};

/// LRN of known sizes.
pub struct Plan {
    shared: Rc<Shared>,
    op: Lrn,
    x: TensorDesc,
}

impl Plan {
    pub fn new(shared: &Rc<Shared>, op: &Lrn, r: &Request<'_, Cuda>) -> Result<Self, Error> {
        if r.train {
            shared.reserve(4 * r.x[0].elems(), r.name)?;
        }
        Ok(Self { shared: shared.clone(), op: *op, x: r.x[0] })
    }

    fn numbers(&self) -> [Arg; 6] {
        let (rows, o) = (self.x.n * self.x.shape.plane(), &self.op);
        let (channels, radius) = (U32(self.x.shape.c as u32), U32(o.radius as u32));
        [U64(rows as u64), channels, radius, F32(o.k), F32(o.alpha), F32(o.beta)]
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

    fn forward(&mut self, _: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let (shared, elems) = (&self.shared, self.x.elems());
        let (x, y) = (shared.holds(x[0], elems)?, shared.holds(y, elems)?);
        let args: Vec<Arg> = [At(x), At(y)].into_iter().chain(self.numbers()).collect();
        // SAFETY: both tensors are as large as planned (checked).
        unsafe { shared.launch("lrn_forward", shared.grid(elems), &args) }
    }

    fn backward(&mut self, _: &Pass<'_, Cuda>, g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let Some(dx) = g.dx else { return Ok(()) };
        let (shared, elems) = (&self.shared, self.x.elems());
        let (x, dy) = (At(shared.holds(g.x[0], elems)?), At(shared.holds(g.dy, elems)?));
        let (dx, sent) = (At(shared.holds(dx, elems)?), At(shared.scratch()));
        let send: Vec<Arg> = [x, dy, sent].into_iter().chain(self.numbers()).collect();
        let gather: Vec<Arg> = [x, dy, sent, dx].into_iter().chain(self.numbers()).collect();
        // SAFETY: all tensors are as large as planned (checked); the work space holds an f32 for each element.
        unsafe {
            shared.launch("lrn_send", shared.grid(elems), &send)?;
            shared.launch("lrn_backward", shared.grid(elems), &gather)
        }
    }
}
