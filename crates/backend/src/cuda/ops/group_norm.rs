//! Normalises sets of values that share mean and variance. A set is a channel group of an image, or all channels of a
//! position.

use std::rc::Rc;

use net::GroupNorm;

use super::bias::PartialSums;
use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::CudaBuf;
use crate::cuda::driver::slice::Activation;
use crate::cuda::kernels::kernel::kernels;
use crate::cuda::layout::Format;
use crate::cuda::shared::Shared;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, TensorDesc, Traffic};

// `sets` is rows / plane * groups.
kernels! {
    /// Computes y and each set's statistics.
    group_norm_forward: GroupNormForward over sets(sets, plane * (channels / groups.max(1))) {
        x: [Activation; sets / groups.max(1) * plane * channels],
        y: [Activation; sets / groups.max(1) * plane * channels],
        weight: [f32; channels],
        bias: [f32; channels],
        statistics: [f32; 2 * sets],
        sets: u64,
        plane: u32,
        channels: u32,
        groups: u32,
        eps: f32,
    }

    /// Replaces dy by dx.
    group_norm_backward: GroupNormBackward over sets(sets, plane * (channels / groups.max(1))) {
        x: [Activation; sets / groups.max(1) * plane * channels],
        dy: [Activation; sets / groups.max(1) * plane * channels],
        weight: [f32; channels],
        statistics: [f32; 2 * sets],
        sets: u64,
        plane: u32,
        channels: u32,
        groups: u32,
    }

    /// Computes the gradients of weight and bias.
    group_norm_weights: GroupNormWeights over columns(rows, channels) as grid {
        x: [Activation; rows * channels],
        dy: [Activation; rows * channels],
        statistics: [f32; sets + rows.div_ceil(plane.max(1)) * groups],
        sets: u64,
        plane: u32,
        groups: u32,
        partial: [f64; 2 * grid.x * grid.y * width],
        arrivals: [u32; grid.x],
        rows: u32,
        channels: u32,
        width: u32,
        dweight: [f32; channels],
        dbias: [f32; channels],
    }
}

struct Plan {
    shared: Rc<Shared>,
    eps: f32,
    x: TensorDesc,
    /// Rows per set, and channel groups per image.
    plane: usize,
    groups: usize,
    statistics: CudaBuf,
    parts: PartialSums,
}

/// Plans a normalisation whose sets have `plane` rows and one of `groups` channel groups.
pub fn plan_over(
    gpu: &Cuda,
    [plane, groups]: [usize; 2],
    eps: f32,
    r: &PlanRequest<'_, Cuda>,
) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let (shared, x) = (gpu.shared.clone(), r.x[0]);
    let rows = x.n * x.shape.plane();
    let statistics = shared.alloc(2 * rows / plane * groups, r.name)?;
    let parts = PartialSums::new(&shared, rows, 1, x.shape.c, 2, r.name)?;
    Ok(Box::new(Plan { shared, eps, x, plane, groups, statistics, parts }))
}

pub fn plan(gpu: &Cuda, op: &GroupNorm, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    plan_over(gpu, [r.x[0].shape.plane(), op.groups], op.eps, r)
}

impl Plan {
    fn sets(&self) -> u64 {
        (self.x.n * self.x.shape.plane() / self.plane * self.groups) as u64
    }

    /// Returns rows per set, channels and groups.
    fn sizes(&self) -> [u32; 3] {
        [self.plane, self.x.shape.c, self.groups].map(|size| size as u32)
    }
}

impl Planned<Cuda> for Plan {
    fn output(&self) -> TensorDesc {
        self.x
    }

    fn formats(&self) -> Vec<Format> {
        vec![Format::Plain(self.x.shape.c); 2]
    }

    fn state_bytes(&self) -> usize {
        self.statistics.bytes() + self.parts.bytes()
    }

    fn tensors_for_backward(&self) -> Keeps {
        Keeps::INPUT
    }

    fn input_with_gradient_in_dy(&self) -> Option<usize> {
        Some(0)
    }

    fn traffic(&self, _: bool) -> Option<Traffic> {
        let n = self.x.elems();
        Some(self.shared.traffic(4 * n, 7 * n))
    }

    fn forward(&mut self, pass: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let (shared, elems, [plane, channels, groups]) = (&self.shared, self.x.elems(), self.sizes());
        let (weight, bias) = (pass.params.at(pass.slots[0])?, pass.params.at(pass.slots[1])?);
        let (x, y) = (shared.holds(x[0], elems)?, shared.holds(y, elems)?);
        let (statistics, sets, eps) = (self.statistics.slice(), self.sets(), self.eps);
        shared.launch(&GroupNormForward { x, y, weight, bias, statistics, sets, plane, channels, groups, eps })
    }

    fn backward(&mut self, pass: &Pass<'_, Cuda>, g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let (shared, elems, [plane, channels, groups]) = (&self.shared, self.x.elems(), self.sizes());
        let (x, dy) = (shared.holds(g.x[0], elems)?, shared.holds(g.dy, elems)?);
        let (statistics, sets) = (self.statistics.slice(), self.sets());
        if !pass.frozen {
            shared.launch(&GroupNormWeights {
                x,
                dy,
                statistics,
                sets,
                plane,
                groups,
                partial: self.parts.sums(),
                arrivals: self.parts.arrivals(),
                rows: self.parts.rows,
                channels,
                width: self.parts.width(),
                dweight: g.dparams.at(pass.slots[0])?,
                dbias: g.dparams.at(pass.slots[1])?,
            })?;
        }
        let weight = pass.params.at(pass.slots[0])?;
        shared.launch(&GroupNormBackward { x, dy, weight, statistics, sets, plane, channels, groups })
    }
}
