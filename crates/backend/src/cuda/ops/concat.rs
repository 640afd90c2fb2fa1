//! Concatenation along the channels, which are adjacent in memory.

use net::Concat;

use super::bias::rows_of;
use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::Activation;
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::layout::channels_last;
use crate::planned::ClosurePlan;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc};

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

/// Yields each input with its index and its first channel in the output.
fn parts(inputs: &[TensorDesc]) -> impl Iterator<Item = (usize, &TensorDesc, u32)> {
    inputs.iter().enumerate().scan(0, |first, (i, x)| {
        *first += x.shape.c;
        Some((i, x, (*first - x.shape.c) as u32))
    })
}

pub fn plan(gpu: &Cuda, _: &Concat, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let (shared, launcher, y_desc) = (gpu.shared.clone(), gpu.shared.clone(), channels_last(r.x[0].n, r.output()?));
    // the number of positions per channel: images times pixels
    let rows = rows_of(y_desc.n * y_desc.shape.plane(), r.name)?;
    let (elems, width) = (y_desc.elems(), y_desc.shape.c as u32);
    let (inputs, inputs_back) = (r.x.to_vec(), r.x.to_vec());
    let traffic = Some(shared.traffic(2 * elems, 2 * elems));
    let forward = move |_: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf| {
        let (to, to_width) = (launcher.holds(y, elems)?, width);
        parts(&inputs).try_for_each(|(i, desc, to_first)| {
            let (from, columns) = (launcher.holds(x[i], desc.elems())?, desc.shape.c as u32);
            let (from_width, from_first) = (columns, 0);
            launcher.launch(&CopyColumns { from, to, rows, columns, from_width, from_first, to_width, to_first })
        })
    };
    let backward = move |_: &Pass<'_, Cuda>, g: Gradients<'_, Cuda>| {
        let (from, from_width) = (shared.holds(g.dy, elems)?, width);
        parts(&inputs_back).try_for_each(|(i, desc, from_first)| {
            let Some(dx) = &g.dx[i] else { return Ok(()) };
            let (to, columns) = (shared.holds(dx, desc.elems())?, desc.shape.c as u32);
            let (to_width, to_first) = (columns, 0);
            shared.launch(&CopyColumns { from, to, rows, columns, from_width, from_first, to_width, to_first })
        })
    };
    Ok(Box::new(ClosurePlan { traffic, ..ClosurePlan::new(y_desc, Keeps::NOTHING, forward, backward) }))
}
