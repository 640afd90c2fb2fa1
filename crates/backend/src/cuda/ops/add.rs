//! Sum of two tensors.

use std::rc::Rc;

use net::Add;

use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::kernels::declarations::{CopyTensor, SumOfTwo};
use crate::cuda::shared::Shared;
use crate::{Error, Gradients, Pass, PlanRequest, Planned, TensorDesc, Traffic};

struct Plan {
    shared: Rc<Shared>,
    x: TensorDesc,
}

pub fn plan(gpu: &Cuda, _: &Add, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    Ok(Box::new(Plan { shared: gpu.shared.clone(), x: r.x[0] }))
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
        Some(self.shared.traffic(3 * n, 2 * n))
    }

    fn forward(&mut self, _: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let (shared, elems) = (&self.shared, self.x.elems());
        let (a, b) = (shared.holds(x[0], elems)?, shared.holds(x[1], elems)?);
        shared.launch(&SumOfTwo { a, b, y: shared.holds(y, elems)?, n: elems as u64 })
    }

    fn backward(&mut self, _: &Pass<'_, Cuda>, mut g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let (shared, elems) = (&self.shared, self.x.elems());
        let Some(dx) = g.take_dx(1) else { return Ok(()) };
        let (dy, dx) = (shared.holds(g.dy, elems)?, shared.holds(dx, elems)?);
        shared.launch(&CopyTensor { x: dy, y: dx, n: elems as u64 })
    }
}
