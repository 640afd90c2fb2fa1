//! Blurred downsampling. Forward and backward both gather in a fixed order.

use net::BlurPool;

use super::unary;
use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::{Activation, Slice};
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::layout::channels_last;
use crate::cuda::shared::Shared;
use crate::{Error, PlanRequest, Planned, TensorDesc};

// The entries of `rows` and `columns` are positions inside an image. The entries of `row_first` and `column_first` are
// offsets up to the length of these lists.
kernels! {
    /// Computes each position in `to` as a weighted sum of positions in `from`.
    blur_gather: BlurGather over threads((n * to_h * to_w * c).div_ceil(4)) {
        from: [Activation; n * h * w * c],
        to: [Activation; n * to_h * to_w * c],
        row_first: [u32; to_h + 1],
        rows: [u32; 0],
        row_weights: [f32; rows],
        column_first: [u32; to_w + 1],
        columns: [u32; 0],
        column_weights: [f32; columns],
        n: u32,
        h: u32,
        w: u32,
        c: u32,
        to_h: u32,
        to_w: u32,
    }
}

/// For each output position along an axis, the input positions to add and their weights.
struct GatherList {
    first: CudaBuf,
    places: CudaBuf,
    weights: CudaBuf,
}

impl GatherList {
    /// Copies positions and weights of each output to the GPU.
    fn new(shared: &Shared, entries: &[Vec<(usize, f32)>], what: &str) -> Result<Self, Error> {
        let ends = entries.iter().scan(0, |end, own| {
            *end += own.len() as u32;
            Some(*end)
        });
        let first: Vec<u32> = std::iter::once(0).chain(ends).collect();
        let places: Vec<u32> = entries.iter().flatten().map(|(place, _)| *place as u32).collect();
        let weights: Vec<f32> = entries.iter().flatten().map(|(_, weight)| *weight).collect();
        Ok(Self {
            first: shared.constant(&first, what)?,
            places: shared.constant(&places, what)?,
            weights: shared.constant(&weights, what)?,
        })
    }
}

/// Regroups the entries by input cell. The result lists the terms of each cell's gradient.
fn transposed(entries: &[Vec<(usize, f32)>], cells: usize) -> Vec<Vec<(usize, f32)>> {
    let mut transposed = vec![Vec::new(); cells];
    for (output, own) in entries.iter().enumerate() {
        own.iter().for_each(|&(cell, weight)| transposed[cell].push((output, weight)));
    }
    transposed
}

/// Lists for rows and for columns.
type Lists = [GatherList; 2];

/// Enqueues the computation of the tensor `to` from the tensor `from`.
fn gather(
    shared: &Shared,
    [over_rows, over_columns]: &Lists,
    (from, source): (Slice<'_, Activation>, TensorDesc),
    (to, result): (Slice<'_, Activation>, TensorDesc),
) -> Result<(), Error> {
    let [n, h, w, c] = [source.n, source.shape.h, source.shape.w, source.shape.c].map(|size| size as u32);
    let [to_h, to_w] = [result.shape.h, result.shape.w].map(|size| size as u32);
    shared.launch(&BlurGather {
        from,
        to,
        row_first: over_rows.first.slice(),
        rows: over_rows.places.slice(),
        row_weights: over_rows.weights.slice(),
        column_first: over_columns.first.slice(),
        columns: over_columns.places.slice(),
        column_weights: over_columns.weights.slice(),
        n,
        h,
        w,
        c,
        to_h,
        to_w,
    })
}

pub fn plan(gpu: &Cuda, op: &BlurPool, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let (shared, x, weights) = (&gpu.shared, r.x[0], op.weights());
    let entries = |axis| -> Result<Vec<Vec<(usize, f32)>>, Error> {
        let cells = op.cells(x.shape, axis).map_err(|why| Error::Unsupported { op: r.name.into(), why })?;
        Ok(cells.into_iter().map(|cells| cells.into_iter().zip(weights.iter().copied()).collect()).collect())
    };
    let (rows, columns) = (entries(0)?, entries(1)?);
    let list = |entries: &[Vec<(usize, f32)>]| GatherList::new(shared, entries, r.name);
    let forward: Lists = [list(&rows)?, list(&columns)?];
    let backward: Lists = [list(&transposed(&rows, x.shape.h))?, list(&transposed(&columns, x.shape.w))?];
    let lists = forward.iter().chain(&backward);
    let bytes = lists.map(|list| list.first.bytes() + list.places.bytes() + list.weights.bytes()).sum();
    let y = channels_last(x.n, r.output()?);
    let both = x.elems() + y.elems();
    unary::plan(
        gpu,
        [x, y],
        shared.traffic(both, both),
        bytes,
        move |shared, from, to| gather(shared, &forward, (from, x), (to, y)),
        move |shared, from, to| gather(shared, &backward, (from, y), (to, x)),
    )
}
