//! ReLU, tanh and the sum of two, in any order of memory.

use std::rc::Rc;

use crate::backend::cuda::driver::memory::CudaBuf;
use crate::backend::cuda::kernels::module::Arg::{At, U64};
use crate::backend::cuda::shared::Shared;
use crate::backend::cuda::{Cuda, Format};
use crate::backend::{Error, Gradients, Pass, Planned, Request, TensorDesc};

/// Which function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Relu,
    Tanh,
    Add,
    Copy,
}

/// An element-wise op of known size.
pub struct Plan {
    shared: Rc<Shared>,
    kind: Kind,
    x: TensorDesc,
}

impl Plan {
    pub fn new(shared: &Rc<Shared>, kind: Kind, r: &Request<'_, Cuda>) -> Self {
        Self { shared: shared.clone(), kind, x: r.x[0] }
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
        let y = At(shared.holds(y, elems)?);
        let (a, n) = (At(shared.holds(x[0], elems)?), U64(elems as u64));
        let grid = shared.grid(elems.div_ceil(4));
        // SAFETY: all tensors hold as many activations, checked here.
        unsafe {
            match self.kind {
                Kind::Relu => shared.launch("relu_forward", grid, &[a, y, n]),
                Kind::Tanh => shared.launch("tanh_forward", grid, &[a, y, n]),
                Kind::Add => shared.launch("sum_of_two", grid, &[a, At(shared.holds(x[1], elems)?), y, n]),
                Kind::Copy => shared.launch("copy_tensor", grid, &[a, y, n]),
            }
        }
    }

    fn backward(&mut self, _: &Pass<'_, Cuda>, g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let (shared, elems) = (&self.shared, self.x.elems());
        let (y, dy, n) = (At(shared.holds(g.y, elems)?), At(shared.holds(g.dy, elems)?), U64(elems as u64));
        let grid = shared.grid(elems.div_ceil(4));
        // SAFETY: as above.
        unsafe {
            match (self.kind, g.dx) {
                (Kind::Relu, _) => shared.launch("relu_backward", grid, &[y, dy, n]),
                (Kind::Tanh, _) => shared.launch("tanh_backward", grid, &[y, dy, n]),
                (Kind::Add, Some(dx)) => shared.launch("copy_tensor", grid, &[dy, At(shared.holds(dx, elems)?), n]),
                (Kind::Add, None) | (Kind::Copy, _) => Ok(()),
            }
        }
    }
}
