//! Multi-head self-attention.

use std::rc::Rc;

use net::Attention;

use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::Activation;
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::layout::channels_last;
use crate::cuda::shared::Shared;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc, Traffic};

/// Maximum number of channels per head (`HEAD` in attention.cu).
const MOST_CHANNELS: usize = 128;

// `queries` is images * heads * positions.
kernels! {
    /// Computes y and each query's statistics.
    attention_forward: AttentionForward over threads(queries * 32) {
        x: [Activation; 3 * queries * width],
        y: [Activation; queries * width],
        statistics: [f32; 2 * queries],
        queries: u64,
        positions: u32,
        heads: u32,
        width: u32,
        scale: f32,
    }

    /// Computes the gradients for the queries, and completes the statistics.
    attention_queries: AttentionQueries over threads(queries * 32) {
        x: [Activation; 3 * queries * width],
        y: [Activation; queries * width],
        dy: [Activation; queries * width],
        dx: [Activation; 3 * queries * width],
        statistics: [f32; 3 * queries],
        queries: u64,
        positions: u32,
        heads: u32,
        width: u32,
        scale: f32,
    }

    /// Computes the gradients for the keys and values.
    attention_keys: AttentionKeys over threads(queries * 32) {
        x: [Activation; 3 * queries * width],
        dy: [Activation; queries * width],
        dx: [Activation; 3 * queries * width],
        statistics: [f32; 3 * queries],
        queries: u64,
        positions: u32,
        heads: u32,
        width: u32,
        scale: f32,
    }
}

struct Plan {
    shared: Rc<Shared>,
    x: TensorDesc,
    y: TensorDesc,
    heads: u32,
    width: u32,
    scale: f32,
    /// For each query: the greatest product, 1 / the sum of exponentials, and the product of output and gradient.
    statistics: CudaBuf,
}

pub fn plan(gpu: &Cuda, op: &Attention, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let (x, y) = (r.x[0], channels_last(r.x[0].n, r.output()?));
    let width = op.head_channels(x.shape.c);
    if width > MOST_CHANNELS {
        let why =
            format!("a head has {width} channels; on a GPU at most {MOST_CHANNELS} are supported. Use more heads");
        return Err(Error::Unsupported { op: r.name.into(), why });
    }
    let statistics = gpu.shared.alloc(3 * x.n * op.heads * x.shape.plane(), r.name)?;
    let (heads, width, scale) = (op.heads as u32, width as u32, op.scale(x.shape.c) as f32);
    Ok(Box::new(Plan { shared: gpu.shared.clone(), x, y, heads, width, scale, statistics }))
}

impl Plan {
    /// Returns the number of queries in all heads and images, and the number of positions per image.
    fn sizes(&self) -> (u64, u32) {
        let plane = self.x.shape.plane();
        ((self.x.n * plane) as u64 * u64::from(self.heads), plane as u32)
    }
}

impl Planned<Cuda> for Plan {
    fn output(&self) -> TensorDesc {
        self.y
    }

    fn state_bytes(&self) -> usize {
        12 * self.sizes().0 as usize
    }

    fn keeps(&self) -> Keeps {
        Keeps { inputs: 1, output: true }
    }

    fn traffic(&self, _: bool) -> Option<Traffic> {
        let [x, y] = [self.x.elems(), self.y.elems()];
        Some(self.shared.traffic(x + y, 3 * x + 3 * y))
    }

    fn forward(&mut self, _: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let Self { shared, heads, width, scale, .. } = &*self;
        let (x, y) = (shared.holds(x[0], self.x.elems())?, shared.holds(y, self.y.elems())?);
        let (statistics, (queries, positions)) = (self.statistics.slice(), self.sizes());
        let (heads, width, scale) = (*heads, *width, *scale);
        shared.launch(&AttentionForward { x, y, statistics, queries, positions, heads, width, scale })
    }

    fn backward(&mut self, _: &Pass<'_, Cuda>, mut g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let Some(dx) = g.take_dx(0) else { return Ok(()) };
        let Self { shared, heads, width, scale, .. } = &*self;
        let (x, y) = (shared.holds(g.x[0], self.x.elems())?, shared.holds(g.y, self.y.elems())?);
        let (dy, dx) = (shared.holds(g.dy, self.y.elems())?, shared.holds(dx, self.x.elems())?);
        let (statistics, (queries, positions)) = (self.statistics.slice(), self.sizes());
        let (heads, width, scale) = (*heads, *width, *scale);
        shared.launch(&AttentionQueries { x, y, dy, dx, statistics, queries, positions, heads, width, scale })?;
        shared.launch(&AttentionKeys { x, dy, dx, statistics, queries, positions, heads, width, scale })
    }
}
