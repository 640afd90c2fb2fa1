//! The parameter-free shortcut.

use std::rc::Rc;

use crate::backend::cuda::device::Cuda;
use crate::backend::cuda::driver::memory::CudaBuf;
use crate::backend::cuda::driver::slice::Activation;
use crate::backend::cuda::format::Format;
use crate::backend::cuda::kernels::kernel::kernels;
use crate::backend::cuda::layout::channels_last;
use crate::backend::cuda::shared::Shared;
use crate::backend::op::{OpSpec, Shortcut};
use crate::backend::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc, Traffic};

kernels! {
    /// y: every `stride`-th place of x, its channels from `before` on, zeros around them.
    shortcut_forward: ShortcutForward over threads(n * out_h * out_w * out_c) {
        x: [Activation; n * h * w * c],
        y: [Activation; n * out_h * out_w * out_c],
        n: u32,
        h: u32,
        w: u32,
        c: u32,
        out_h: u32,
        out_w: u32,
        out_c: u32,
        stride: u32,
        before: u32,
    }

    /// dx: the places that were taken, zeros elsewhere.
    shortcut_backward: ShortcutBackward over threads(n * h * w * c) {
        dy: [Activation; n * out_h * out_w * out_c],
        dx: [Activation; n * h * w * c],
        n: u32,
        h: u32,
        w: u32,
        c: u32,
        out_h: u32,
        out_w: u32,
        out_c: u32,
        stride: u32,
        before: u32,
    }
}

/// The shortcut of known sizes.
pub struct Plan {
    shared: Rc<Shared>,
    op: Shortcut,
    x: TensorDesc,
    y: TensorDesc,
}

impl Plan {
    pub fn new(shared: &Rc<Shared>, op: &Shortcut, r: &PlanRequest<'_, Cuda>) -> Result<Self, Error> {
        let x = r.x[0];
        let shape = op.output(&[x.shape]);
        let shape = shape.map_err(|why| Error::Unsupported { op: r.name.into(), why })?;
        Ok(Self { shared: shared.clone(), op: *op, x, y: channels_last(x.n, shape) })
    }

    /// Images, then the sizes of x and y, then step and first channel.
    fn sizes(&self) -> [u32; 9] {
        let (x, y) = (self.x.shape, self.y.shape);
        [self.x.n, x.h, x.w, x.c, y.h, y.w, y.c, self.op.stride, self.op.before(x)].map(|v| v as u32)
    }
}

/// Plans the op.
pub fn plan(gpu: &Cuda, op: &Shortcut, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    Ok(Box::new(Plan::new(&gpu.shared, op, r)?))
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

    fn traffic(&self, _: bool) -> Option<Traffic> {
        let both = self.x.elems() + self.y.elems();
        Some(self.shared.traffic(both, both))
    }

    fn forward(&mut self, _: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let shared = &self.shared;
        let (x, y) = (shared.holds(x[0], self.x.elems())?, shared.holds(y, self.y.elems())?);
        let [n, h, w, c, out_h, out_w, out_c, stride, before] = self.sizes();
        shared.launch(&ShortcutForward { x, y, n, h, w, c, out_h, out_w, out_c, stride, before })
    }

    fn backward(&mut self, _: &Pass<'_, Cuda>, mut g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        let shared = &self.shared;
        let (dy, dx) = (shared.holds(g.dy, self.y.elems())?, shared.holds(dx, self.x.elems())?);
        let [n, h, w, c, out_h, out_w, out_c, stride, before] = self.sizes();
        shared.launch(&ShortcutBackward { dy, dx, n, h, w, c, out_h, out_w, out_c, stride, before })
    }
}
