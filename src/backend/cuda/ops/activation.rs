//! Functions of one element, in any memory layout: the plan that they share.

use std::rc::Rc;

use crate::backend::cuda::device::Cuda;
use crate::backend::cuda::driver::memory::CudaBuf;
use crate::backend::cuda::driver::slice::{Activation, Slice};
use crate::backend::cuda::format::Format;
use crate::backend::cuda::shared::Shared;
use crate::backend::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc, Traffic};

/// The tensors of one element-wise pass, of n elements each. The gradient of x replaces that of y.
#[derive(Clone, Copy)]
pub struct Tensors<'a> {
    pub x: Slice<'a, Activation>,
    pub y: Slice<'a, Activation>,
    pub n: u64,
}

/// Launches y = f(x).
pub type Forward = fn(&Shared, Tensors<'_>) -> Result<(), Error>;
/// Launches the pass that turns the gradient of y into that of x.
pub type Backward = fn(&Shared, Tensors<'_>, dy: Slice<'_, Activation>) -> Result<(), Error>;

/// A function of one element, of known size.
struct Plan {
    shared: Rc<Shared>,
    forward: Forward,
    backward: Backward,
    x: TensorDesc,
}

/// Plans such a function.
pub fn plan(
    gpu: &Cuda,
    forward: Forward,
    backward: Backward,
    r: &PlanRequest<'_, Cuda>,
) -> Result<Box<dyn Planned<Cuda>>, Error> {
    Ok(Box::new(Plan { shared: gpu.shared.clone(), forward, backward, x: r.x[0] }))
}

impl Plan {
    fn tensors<'a>(&self, x: &'a CudaBuf, y: &'a CudaBuf) -> Result<Tensors<'a>, Error> {
        let elems = self.x.elems();
        Ok(Tensors { x: self.shared.holds(x, elems)?, y: self.shared.holds(y, elems)?, n: elems as u64 })
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

    fn traffic(&self, _: bool) -> Option<Traffic> {
        let n = self.x.elems();
        Some(self.shared.traffic(2 * n, 3 * n))
    }

    fn forward(&mut self, _: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        (self.forward)(&self.shared, self.tensors(x[0], y)?)
    }

    fn backward(&mut self, _: &Pass<'_, Cuda>, g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let dy = self.shared.holds(g.dy, self.x.elems())?;
        (self.backward)(&self.shared, self.tensors(g.x[0], g.y)?, dy)
    }
}
