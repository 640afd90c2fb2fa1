//! Batch normalisation with residual and ReLU, as our own kernels. All sums over many values are in f64 and in a fixed
//! order.

use std::rc::Rc;

use loaders::order::worker_positions;
use net::Norm;

use super::bias::PartialSums;
use super::shortcut::GpuShortcut;
use crate::cuda::device::Cuda;
use crate::cuda::driver::memory::{CudaBuf, Inlet};
use crate::cuda::driver::pinned::Pinned;
use crate::cuda::driver::slice::{Activation, Slice};
use crate::cuda::kernels::declarations::{
    NormAddGroups, NormAffine, NormBackward, NormForward, NormGradients, NormMoments, NormSlopes,
};
use crate::cuda::kernels::kernel::Kernel;
use crate::cuda::layout::Format;
use crate::cuda::pass::PLACES;
use crate::cuda::shared::Shared;
use crate::{Error, Gradients, Keeps, Pass, PlanRequest, Planned, ShapedShortcut, Slot, TensorDesc, Traffic, across};

/// Bits of the kernels' `mode` argument.
const RELU: i32 = 1;
const RESIDUAL: i32 = 2;
const SECOND: i32 = 4;
const THROUGH: i32 = 8;

/// Batch normalisation for fixed sizes, with the statistics of its last batch.
struct Plan {
    shared: Rc<Shared>,
    op: Norm,
    x: TensorDesc,
    /// The shortcuts through which the residual and the second gradient are read.
    residual: Option<GpuShortcut>,
    second: Option<GpuShortcut>,
    /// Memory for the partial results of two sums per channel.
    parts: PartialSums,
    /// Number of image groups that are normalised separately, and memory for each group's gradients for gamma and beta.
    groups: usize,
    group_gradients: CudaBuf,
    /// Channels that share a byte of the mask.
    pack: usize,
    /// One bit per element: set if ReLU let the value through. Needed only after a residual, because then backward
    /// cannot compute it from x.
    mask: CudaBuf,
    /// Means and sums of squared deviations in f64.
    statistics: CudaBuf,
    /// A copy of the statistics in host memory, one for each place of the outbox.
    seen: [Pinned<f64>; PLACES],
    /// Sums of the backward pass, in host memory.
    sums: Pinned<f64>,
    /// Mean, scale and bias in f32.
    affine: CudaBuf,
    /// Coefficients of dx, see norm.cu.
    slopes: CudaBuf,
    /// Statistics and sums of the whole batch, if it is distributed over ranks.
    global: Option<GlobalStatistics>,
    /// Values per channel in the statistics: this rank's or the whole batch's.
    n: f64,
}

/// Values that are the same on all ranks.
struct GlobalStatistics {
    statistics: Inlet<f64>,
    sums: Inlet<f64>,
}

impl GlobalStatistics {
    fn new(shared: &Shared, channels: usize) -> Result<Self, Error> {
        let block = || shared.inlet(2 * channels, "statistics of all ranks");
        Ok(Self { statistics: block()?, sums: block()? })
    }
}

/// The tensors of a backward pass, and the `mode` argument of its kernels.
struct Tensors<'a> {
    x: Slice<'a, Activation>,
    dy: Slice<'a, Activation>,
    /// A second gradient that is added to dy.
    second: Option<Slice<'a, Activation>>,
    mode: i32,
}

pub fn plan(gpu: &Cuda, op: &Norm, r: &PlanRequest<'_, Cuda>) -> Result<Box<dyn Planned<Cuda>>, Error> {
    let shared = &gpu.shared;
    let x = r.x[0];
    let (c, rows) = (x.shape.c, x.n * x.shape.plane());
    let groups = r.norm_groups().count();
    if groups > 1 {
        shared.grouped()?;
    }
    let parts = PartialSums::new(shared, rows, groups, c, 2, r.name)?;
    let pack = shared.geometry().pack(c);
    let masked = r.train && op.relu && op.residual;
    let mask = if masked { rows * parts.tiling.tiles * parts.tiling.width / pack } else { 0 };
    let shortcut = |of: Option<ShapedShortcut>| of.map(|of| GpuShortcut::new(shared, &of, x.n, r.name)).transpose();
    Ok(Box::new(Plan {
        shared: shared.clone(),
        op: op.clone(),
        x,
        residual: shortcut(r.through.residual)?,
        second: shortcut(r.through.second)?,
        parts,
        groups,
        group_gradients: shared.alloc(if groups > 1 { 2 * c * groups } else { 0 }, r.name)?,
        pack,
        mask: shared.alloc(mask.div_ceil(4), r.name)?,
        statistics: shared.alloc(4 * c * groups, r.name)?,
        seen: [shared.pinned(2 * c * groups, r.name)?, shared.pinned(2 * c * groups, r.name)?],
        sums: shared.pinned(2 * c * groups, r.name)?,
        affine: shared.alloc(3 * c * groups, r.name)?,
        slopes: shared.alloc(2 * c * groups, r.name)?,
        global: None,
        n: rows as f64,
    }))
}

impl Plan {
    /// Returns the values per channel in this rank's batch.
    fn own(&self) -> f64 {
        f64::from(self.parts.rows)
    }

    /// Returns the number of images, and the number of groups in this pass. Without batch statistics there is a single
    /// group, because all images use the running statistics.
    fn division(&self, pass: &Pass<'_, Cuda>) -> [u32; 2] {
        [self.x.n as u32, if pass.takes_statistics() { self.groups as u32 } else { 1 }]
    }

    /// Launches a kernel for this number of groups.
    fn launch(&self, groups: u32, kernel: &impl Kernel) -> Result<(), Error> {
        if groups > 1 { self.shared.launch_grouped(kernel) } else { self.shared.launch(kernel) }
    }

    fn mode(&self) -> i32 {
        RELU * i32::from(self.op.relu) + RESIDUAL * i32::from(self.op.residual)
    }

    fn residual_elems(&self) -> usize {
        self.residual.as_ref().map_or(self.x.elems(), |shortcut| shortcut.x.elems())
    }

    fn second_elems(&self) -> usize {
        self.second.as_ref().map_or(self.x.elems(), |shortcut| shortcut.y.elems())
    }

    /// Returns the statistics of the whole batch if it is distributed over ranks, otherwise this rank's.
    fn statistics(&self) -> Slice<'_, f64> {
        self.global.as_ref().map_or(self.statistics.slice(), |w| w.statistics.slice())
    }

    /// Computes the batch's statistics and the affine map for the forward pass.
    fn measure(&mut self, pass: &Pass<'_, Cuda>, x: Slice<'_, Activation>) -> Result<(), Error> {
        let (shared, c) = (self.shared.clone(), self.x.shape.c);
        let (rows, channels, width) = (self.parts.rows, c as u32, self.parts.width());
        let (partial, arrivals) = (self.parts.sums(), self.parts.arrivals());
        let (gamma, beta) = self.op.gamma_beta(pass.slots);
        let (gamma, beta) = (gamma.map(|slot| pass.params.at(slot)).transpose()?, pass.params.at(beta)?);
        let (eps, affine) = (self.op.eps, self.affine.slice());
        let place = shared.blocks.borrow().outbox.current();
        let (statistics, seen) = (self.statistics.slice(), self.seen[place].slice());
        let [images, groups] = self.division(pass);
        let moments = NormMoments {
            x,
            partial,
            arrivals,
            rows,
            channels,
            width,
            images,
            groups,
            gamma,
            beta,
            eps,
            statistics,
            seen,
            affine,
        };
        self.launch(groups, &moments)?;
        self.n = self.own();
        let Some(ranks) = pass.across else {
            self.global = None;
            return Ok(());
        };
        shared.settle()?;
        let (mean, m2) = self.seen[place].as_mut_slice().split_at_mut(c);
        self.n = across::statistics(ranks, self.n, pass.running, mean, m2)?;
        let global = self.global.take().map_or_else(|| GlobalStatistics::new(&shared, c), Ok)?;
        let global = self.global.insert(global);
        global.statistics.write(self.seen[place].as_slice(), shared.stream())?;
        let (statistics, n) = (Some(global.statistics.slice()), self.n);
        let affine = self.affine.slice();
        shared.launch(&NormAffine { statistics, running: None, n, channels, gamma, beta, eps, affine })
    }

    /// Computes the affine map from running statistics, for a pass that does not train.
    fn use_running(&self, pass: &Pass<'_, Cuda>) -> Result<(), Error> {
        let (gamma, beta) = self.op.gamma_beta(pass.slots);
        let (gamma, beta) = (gamma.map(|slot| pass.params.at(slot)).transpose()?, pass.params.at(beta)?);
        let (channels, eps, affine) = (self.x.shape.c as u32, self.op.eps, self.affine.slice());
        let blocks = self.shared.blocks.borrow();
        let running = Some(blocks.running.slice().from(pass.running_at)?);
        self.shared.launch(&NormAffine { statistics: None, running, n: 0.0, channels, gamma, beta, eps, affine })
    }

    /// Computes the backward sums, the parameters' gradients, and the coefficients of dx.
    fn sum_gradients(
        &mut self,
        pass: &Pass<'_, Cuda>,
        tensors: &Tensors<'_>,
        dgamma: Option<Slice<'_, f32>>,
        dbeta: Option<Slice<'_, f32>>,
    ) -> Result<(), Error> {
        let (shared, c) = (self.shared.clone(), self.x.shape.c);
        let (rows, channels, eps, n) = (self.parts.rows, c as u32, self.op.eps, self.n);
        let (affine, slopes, sums) = (self.affine.slice(), self.slopes.slice(), self.sums.slice());
        let &Tensors { x, dy, second, mode } = tensors;
        let [images, groups] = self.division(pass);
        let (gamma_of_groups, beta_of_groups) = if groups > 1 {
            let all = self.group_gradients.slice::<f32>();
            let each = c * self.groups;
            (dgamma.map(|_| all.range(0, each)).transpose()?, dbeta.map(|_| all.range(each, each)).transpose()?)
        } else {
            (dgamma, dbeta)
        };
        let gradients = NormGradients {
            x,
            second,
            mask: self.mask.optional(),
            dy,
            affine,
            shortcut: self.second.as_ref().map(GpuShortcut::sizes),
            partial: self.parts.sums(),
            arrivals: self.parts.arrivals(),
            rows,
            channels,
            width: self.parts.width(),
            images,
            groups,
            mode,
            statistics: self.statistics(),
            n,
            eps,
            dgamma: gamma_of_groups,
            dbeta: beta_of_groups,
            sums,
            slopes,
            pack: self.pack,
            second_elems: self.second_elems(),
        };
        self.launch(groups, &gradients)?;
        if groups > 1 {
            let parts = self.group_gradients.slice();
            shared.launch(&NormAddGroups { parts, groups, channels, dgamma, dbeta })?;
        }
        // the parameters' gradients are summed with all other gradients later, but dx needs the sums of the whole batch
        // now
        if let (Some(ranks), Some(global)) = (pass.across, &mut self.global) {
            shared.settle()?;
            let (s, sx) = self.sums.as_mut_slice().split_at_mut(c);
            across::gradients(ranks, c, s, sx)?;
            global.sums.write(self.sums.as_slice(), shared.stream())?;
            let (sums, statistics) = (global.sums.slice(), global.statistics.slice());
            shared.launch(&NormSlopes { sums, statistics, n, channels, eps, affine, slopes })?;
        }
        Ok(())
    }
}

impl Planned<Cuda> for Plan {
    fn output(&self) -> TensorDesc {
        self.x
    }

    fn formats(&self) -> Vec<Format> {
        vec![Format::Plain(self.x.shape.c); 1 + usize::from(self.op.scale)]
    }

    fn state_bytes(&self) -> usize {
        let own = [&self.mask, &self.statistics, &self.affine, &self.slopes, &self.group_gradients];
        let own = own.map(|buffer| buffer.bytes());
        let shortcuts = [&self.residual, &self.second].into_iter().flatten().map(GpuShortcut::bytes);
        self.parts.bytes() + own.into_iter().chain(shortcuts).sum::<usize>()
    }

    fn tensors_for_backward(&self) -> Keeps {
        // backward computes ReLU's mask from x or, after a residual, reads it from `mask`
        Keeps::INPUT
    }

    fn input_with_gradient_in_dy(&self) -> Option<usize> {
        Some(usize::from(self.op.residual))
    }

    fn adds_two_gradients(&self) -> bool {
        true
    }

    fn traffic(&self, second: bool) -> Option<Traffic> {
        let n = self.x.elems();
        let read = |there: bool, shortcut: &Option<GpuShortcut>| match shortcut {
            _ if !there => 0,
            Some(shortcut) => shortcut.copied_elems,
            None => n,
        };
        let (residual, summand) = (read(self.op.residual, &self.residual), read(second, &self.second));
        // How often the kernels read or write a tensor of n elements. Forward: moments, then the result. Backward:
        // sums, then dx. With a second gradient or a residual, the pass that sums also stores the combined gradient.
        let stored = usize::from(second || self.op.residual);
        let Traffic { forward, backward } = self.shared.traffic(3 * n + residual, (5 + stored) * n + summand);
        let mask = self.mask.bytes();
        Some(Traffic { forward: forward + mask, backward: backward + mask })
    }

    fn forward(&mut self, pass: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let (elems, shared) = (self.x.elems(), self.shared.clone());
        let residual_elems = self.residual_elems();
        let residual = x.get(1).map(|r| shared.holds(r, residual_elems)).transpose()?;
        let (x, y) = (shared.holds(x[0], elems)?, shared.holds(y, elems)?);
        if pass.takes_statistics() {
            self.measure(pass, x)?;
        } else {
            self.use_running(pass)?;
        }
        let (affine, rows, channels) = (self.affine.slice(), self.parts.rows, self.x.shape.c as u32);
        let (width, pack, shortcut) = (self.parts.width(), self.pack, self.residual.as_ref().map(GpuShortcut::sizes));
        let mode = self.mode() + THROUGH * i32::from(shortcut.is_some());
        let mask = self.mask.optional().filter(|_| pass.training);
        let [images, groups] = self.division(pass);
        let forward = NormForward {
            x,
            residual,
            y,
            mask,
            affine,
            shortcut,
            rows,
            channels,
            width,
            images,
            groups,
            mode,
            pack,
            residual_elems,
        };
        self.launch(groups, &forward)
    }

    fn backward(&mut self, pass: &Pass<'_, Cuda>, mut g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let wanted = g.take_dx(0);
        let (shared, elems) = (self.shared.clone(), self.x.elems());
        let (x, dy) = (shared.holds(g.x[0], elems)?, shared.holds(g.dy, elems)?);
        let second = g.dy2.map(|d| shared.holds(d, self.second_elems())).transpose()?;
        let through = i32::from(second.is_some() && self.second.is_some());
        let mode = self.mode() + SECOND * i32::from(second.is_some()) + THROUGH * through;
        let (dgamma, dbeta) = self.op.gamma_beta(pass.slots);
        let gradient = |slot: Option<Slot>| slot.filter(|_| !pass.frozen).map(|slot| g.dparams.at(slot)).transpose();
        let (dgamma, dbeta) = (gradient(dgamma)?, gradient(Some(dbeta))?);
        self.sum_gradients(pass, &Tensors { x, dy, second, mode }, dgamma, dbeta)?;
        if pass.frozen {
            // running statistics do not depend on x, so dx = scale g
            self.slopes.clear()?;
        }
        // with a residual, dy keeps the residual's gradient, and dx goes to another buffer
        let dx = match (self.op.residual, wanted) {
            (true, None) => return Ok(()),
            (true, Some(dx)) => shared.holds(dx, elems)?,
            (false, _) => dy,
        };
        // with a residual or a second gradient, the summing pass has already stored the masked gradient in dy
        let mode = if mode & (RESIDUAL | SECOND) == 0 { mode } else { 0 };
        let (affine, slopes) = (self.affine.slice(), self.slopes.slice());
        let (rows, channels, width) = (self.parts.rows, self.x.shape.c as u32, self.parts.width());
        let [images, groups] = self.division(pass);
        let backward = NormBackward { x, dy, dx, affine, slopes, rows, channels, width, images, groups, mode };
        self.launch(groups, &backward)
    }

    fn pool_statistics(&self, running: &[f32], sums: &mut [f64]) -> u64 {
        let (c, plane) = (self.x.shape.c, self.x.shape.plane());
        let place = self.shared.blocks.borrow().outbox.read();
        let groups = (0..self.groups).map(|group| worker_positions(self.x.n, group, self.groups));
        for (rows, seen) in groups.zip(self.seen[place].as_slice().chunks_exact(2 * c)) {
            let (mean, m2) = seen.split_at(c);
            let n = (rows.len() * plane) as f64;
            // if the statistics cover the whole batch, this adds only this rank's share to the sums
            let of = if self.global.is_some() { self.n } else { n };
            for i in 0..c {
                let d = mean[i] - f64::from(running[i]);
                sums[i] += n * d;
                sums[c + i] += n * (m2[i] / of + d * d);
            }
        }
        self.own() as u64
    }
}
