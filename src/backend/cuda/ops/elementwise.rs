//! ReLU, tanh, the sum of two tensors and copies, in any memory layout.

use std::rc::Rc;

use crate::backend::cuda::device::Cuda;
use crate::backend::cuda::driver::memory::CudaBuf;
use crate::backend::cuda::format::Format;
use crate::backend::cuda::kernels::elementwise::{
    CopyTensor, ReluBackward, ReluForward, SumOfTwo, TanhBackward, TanhForward,
};
use crate::backend::cuda::shared::Shared;
use crate::backend::{Error, Gradients, Pass, Planned, Request, TensorDesc};

/// Which function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Function {
    Relu,
    Tanh,
    Add,
    Copy,
}

/// An element-wise op of known size.
pub struct Plan {
    shared: Rc<Shared>,
    function: Function,
    x: TensorDesc,
}

impl Plan {
    pub fn new(shared: &Rc<Shared>, function: Function, r: &Request<'_, Cuda>) -> Self {
        Self { shared: shared.clone(), function, x: r.x[0] }
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

    fn forward(&mut self, _: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let (shared, elems) = (&self.shared, self.x.elems());
        let (a, y, n) = (shared.holds(x[0], elems)?, shared.holds(y, elems)?, elems as u64);
        match self.function {
            Function::Relu => shared.launch(&ReluForward { x: a, y, n }),
            Function::Tanh => shared.launch(&TanhForward { x: a, y, n }),
            Function::Add => shared.launch(&SumOfTwo { a, b: shared.holds(x[1], elems)?, y, n }),
            Function::Copy => shared.launch(&CopyTensor { x: a, y, n }),
        }
    }

    fn backward(&mut self, _: &Pass<'_, Cuda>, g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let (shared, elems) = (&self.shared, self.x.elems());
        let (y, dy, n) = (shared.holds(g.y, elems)?, shared.holds(g.dy, elems)?, elems as u64);
        match (self.function, g.dx) {
            (Function::Relu, _) => shared.launch(&ReluBackward { y, dy, n }),
            (Function::Tanh, _) => shared.launch(&TanhBackward { y, dy, n }),
            (Function::Add, Some(dx)) => shared.launch(&CopyTensor { x: dy, y: shared.holds(dx, elems)?, n }),
            (Function::Add, None) | (Function::Copy, _) => Ok(()),
        }
    }
}
