//! Concatenation along the channels, which are adjacent in memory.

use std::rc::Rc;

use net::Concat;

use super::bias::rows_of;
use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::Activation;
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::layout::channels_last;
use crate::cuda::shared::Shared;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc, Traffic};

kernels! {
    /// Copies `columns` columns from one matrix to another, starting at `from_first` and `to_first`.
    copy_columns: CopyColumns over threads(rows * columns) {
        from: [Activation; rows.saturating_sub(1) * from_width + from_first + columns],
        to: [Activation; rows.saturating_sub(1) * to_width + to_first + columns],
        rows: u32,
        columns: u32,
        from_width: u32,
        from_first: u32,
        to_width: u32,
        to_first: u32,
    }
}

struct Plan {
    shared: Rc<Shared>,
    x: Vec<TensorDesc>,
    y: TensorDesc,
    /// Number of positions per channel: images times pixels.
    rows: u32,
}

impl Plan {
    /// Yields each input with its index and its first channel in y.
    fn parts(&self) -> impl Iterator<Item = (usize, &TensorDesc, u32)> {
        self.x.iter().enumerate().scan(0, |first, (i, x)| {
            *first += x.shape.c;
            Some((i, x, (*first - x.shape.c) as u32))
        })
    }
}

pub fn plan(gpu: &Cuda, _: &Concat, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let y = channels_last(r.x[0].n, r.output()?);
    let rows = rows_of(y.n * y.shape.plane(), r.name)?;
    Ok(Box::new(Plan { shared: gpu.shared.clone(), x: r.x.to_vec(), y, rows }))
}

impl Planned<Cuda> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn tensors_for_backward(&self) -> Keeps {
        Keeps::NOTHING
    }

    fn traffic(&self, _: bool) -> Option<Traffic> {
        let n = self.y.elems();
        Some(self.shared.traffic(2 * n, 2 * n))
    }

    fn forward(&mut self, _: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let (shared, to, rows) = (&self.shared, self.shared.holds(y, self.y.elems())?, self.rows);
        let to_width = self.y.shape.c as u32;
        self.parts().try_for_each(|(i, desc, to_first)| {
            let (from, columns) = (shared.holds(x[i], desc.elems())?, desc.shape.c as u32);
            let (from_width, from_first) = (columns, 0);
            shared.launch(&CopyColumns { from, to, rows, columns, from_width, from_first, to_width, to_first })
        })
    }

    fn backward(&mut self, _: &Pass<'_, Cuda>, g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let (shared, from, rows) = (&self.shared, self.shared.holds(g.dy, self.y.elems())?, self.rows);
        let from_width = self.y.shape.c as u32;
        self.parts().try_for_each(|(i, desc, from_first)| {
            let Some(dx) = &g.dx[i] else { return Ok(()) };
            let (to, columns) = (shared.holds(dx, desc.elems())?, desc.shape.c as u32);
            let (to_width, to_first) = (columns, 0);
            shared.launch(&CopyColumns { from, to, rows, columns, from_width, from_first, to_width, to_first })
        })
    }
}
