//! The parameter-free shortcut.

use std::rc::Rc;

use crate::backend::cuda::driver::memory::CudaBuf;
use crate::backend::cuda::kernels::module::Arg::{self, At, U32};
use crate::backend::cuda::shared::Shared;
use crate::backend::cuda::{Cuda, Format, channels_last};
use crate::backend::op::{Op, Shortcut};
use crate::backend::{Error, Gradients, Pass, Planned, Request, TensorDesc};

/// The shortcut of known sizes.
pub struct Plan {
    shared: Rc<Shared>,
    op: Shortcut,
    x: TensorDesc,
    y: TensorDesc,
}

impl Plan {
    pub fn new(shared: &Rc<Shared>, op: &Shortcut, r: &Request<'_, Cuda>) -> Result<Self, Error> {
        let x = r.x[0];
        let shape = Op::Shortcut(*op).output(&[x.shape]);
        let shape = shape.map_err(|why| Error::Unsupported { op: r.name.into(), why })?;
        Ok(Self { shared: shared.clone(), op: *op, x, y: channels_last(x.n, shape) })
    }

    fn sizes(&self) -> [Arg; 9] {
        let (x, y) = (self.x.shape, self.y.shape);
        [self.x.n, x.h, x.w, x.c, y.h, y.w, y.c, self.op.stride, self.op.before(x)].map(|v| U32(v as u32))
    }
}

impl Planned<Cuda> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
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
        let shared = &self.shared;
        let (x, y) = (shared.holds(x[0], self.x.elems())?, shared.holds(y, self.y.elems())?);
        let args: Vec<Arg> = [At(x), At(y)].into_iter().chain(self.sizes()).collect();
        // SAFETY: both tensors are as large as planned (checked).
        unsafe { shared.launch("shortcut_forward", shared.grid(self.y.elems()), &args) }
    }

    fn backward(&mut self, _: &Pass<'_, Cuda>, g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let Some(dx) = g.dx else { return Ok(()) };
        let shared = &self.shared;
        let (dy, dx) = (shared.holds(g.dy, self.y.elems())?, shared.holds(dx, self.x.elems())?);
        let args: Vec<Arg> = [At(dy), At(dx)].into_iter().chain(self.sizes()).collect();
        // SAFETY: as above.
        unsafe { shared.launch("shortcut_backward", shared.grid(self.x.elems()), &args) }
    }
}
