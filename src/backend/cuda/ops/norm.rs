//! Batch normalisation with residual and ReLU: kernels of our own, all sums in f64 and in a fixed order.

use std::rc::Rc;

use crate::backend::cuda::driver::inlet::Inlet;
use crate::backend::cuda::driver::memory::CudaBuf;
use crate::backend::cuda::driver::pinned::Pinned;
use crate::backend::cuda::kernels::module::Arg::{At, F32, F64, I32, U32, U64};
use crate::backend::cuda::shared::Shared;
use crate::backend::cuda::{Cuda, Format};
use crate::backend::op::Norm;
use crate::backend::{Error, Gradients, Pass, Planned, Request, TensorDesc, across};

/// Bits of the kernels' `mode`.
const RELU: i32 = 1;
const RESIDUAL: i32 = 2;
const SECOND: i32 = 4;

/// Batch normalisation of known sizes, with the statistics of its last batch.
pub struct Plan {
    shared: Rc<Shared>,
    op: Norm,
    x: TensorDesc,
    /// Parts of two sums a channel.
    partial: CudaBuf,
    /// Means and sums of squared offsets, f64.
    statistics: CudaBuf,
    /// The same in the host's sight.
    seen: Pinned<f64>,
    /// Sums of the backward pass, in the host's sight.
    sums: Pinned<f64>,
    /// Mean, scale, bias, f32.
    affine: CudaBuf,
    /// Slopes of dx, f32.
    slopes: CudaBuf,
    /// Statistics and sums of the whole batch, where it lies on several ranks.
    whole: Option<Whole>,
    /// Values a channel behind the statistics: this rank's, or the whole batch's.
    n: f64,
}

/// What all ranks have together.
struct Whole {
    statistics: Inlet<f64>,
    sums: Inlet<f64>,
}

impl Plan {
    pub fn new(shared: &Rc<Shared>, op: &Norm, r: &Request<'_, Cuda>) -> Result<Self, Error> {
        let x = r.x[0];
        let c = x.shape.c;
        let splits = shared.column_grid(x.n * x.shape.plane(), c).1 as usize;
        Ok(Self {
            shared: shared.clone(),
            op: op.clone(),
            x,
            partial: shared.alloc(4 * splits * c, r.name)?,
            statistics: shared.alloc(4 * c, r.name)?,
            seen: shared.pinned(2 * c, r.name)?,
            sums: shared.pinned(2 * c, r.name)?,
            affine: shared.alloc(3 * c, r.name)?,
            slopes: shared.alloc(3 * c, r.name)?,
            whole: None,
            n: (x.n * x.shape.plane()) as f64,
        })
    }

    fn rows(&self) -> usize {
        self.x.n * self.x.shape.plane()
    }

    fn mode(&self) -> i32 {
        RELU * i32::from(self.op.relu) + RESIDUAL * i32::from(self.op.residual)
    }

    fn statistics(&self) -> u64 {
        self.whole.as_ref().map_or(self.statistics.address(), |w| w.statistics.address())
    }

    /// Statistics of the batch, and what the forward pass needs of them.
    fn measure(&mut self, pass: &Pass<'_, Cuda>, x: u64, gamma: u64, beta: u64) -> Result<(), Error> {
        let (shared, c) = (self.shared.clone(), self.x.shape.c);
        let grid = shared.column_grid(self.rows(), c);
        let (partial, channels, rows) = (At(self.partial.address()), U32(c as u32), U64(self.rows() as u64));
        let (statistics, seen) = (At(self.statistics.address()), At(self.seen.address()));
        let affine = At(self.affine.address());
        let (gamma, beta, eps) = (At(gamma), At(beta), F32(self.op.eps));
        // SAFETY: x holds (rows, channels) (checked by the caller), all else was allocated for so many channels and splits.
        unsafe {
            shared.launch("norm_moments", grid, &[At(x), partial, rows, channels])?;
            let args = [At(x), partial, U32(grid.1), rows, channels, gamma, beta, eps, statistics, seen, affine];
            shared.launch("norm_statistics", shared.grid(32 * c), &args)?;
        }
        self.n = self.rows() as f64;
        let Some(ranks) = pass.across else {
            self.whole = None;
            return Ok(());
        };
        shared.settle()?;
        let (mean, m2) = self.seen.as_mut_slice().split_at_mut(c);
        self.n = across::statistics(ranks, self.n, pass.running, mean, m2)?;
        let whole = match self.whole.take() {
            Some(whole) => whole,
            None => {
                let block = || shared.inlet(2 * c, "statistics of all ranks");
                Whole { statistics: block()?, sums: block()? }
            }
        };
        let whole = self.whole.insert(whole);
        whole.statistics.write(self.seen.as_slice(), shared.stream())?;
        let (all, n) = (At(whole.statistics.address()), F64(self.n));
        // SAFETY: as above; running statistics are not read.
        unsafe { shared.launch("norm_affine", shared.grid(c), &[all, At(0), n, channels, gamma, beta, eps, affine]) }
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
        [&self.partial, &self.statistics, &self.affine, &self.slopes].map(crate::backend::cuda::bytes).iter().sum()
    }

    fn implementation(&self) -> String {
        "own".into()
    }

    fn alias(&self) -> Option<usize> {
        Some(usize::from(self.op.residual))
    }

    fn adds(&self) -> bool {
        true
    }

    fn forward(&mut self, pass: &Pass<'_, Cuda>, x: &[&CudaBuf], y: &mut CudaBuf) -> Result<(), Error> {
        let (elems, c) = (self.x.elems(), self.x.shape.c);
        let (gamma, beta) = (pass.params.at(pass.slots[0])?, pass.params.at(pass.slots[1])?);
        let shared = self.shared.clone();
        let residual = x.get(1).map(|r| shared.holds(r, elems)).transpose()?.unwrap_or(0);
        let (x, y) = (shared.holds(x[0], elems)?, shared.holds(y, elems)?);
        let (channels, affine) = (U32(c as u32), At(self.affine.address()));
        if pass.training {
            self.measure(pass, x, gamma, beta)?;
        } else {
            let running = shared.blocks.borrow().running.address() + 4 * pass.running_at as u64;
            let args = [At(0), At(running), F64(0.0), channels, At(gamma), At(beta), F32(self.op.eps), affine];
            // SAFETY: `begin` has brought all running statistics; the rest as above.
            unsafe { shared.launch("norm_affine", shared.grid(c), &args)? };
        }
        let args = [At(x), At(residual), At(y), affine, U64(self.rows() as u64), channels, I32(self.mode())];
        // SAFETY: all tensors hold (rows, channels), checked above.
        unsafe { shared.launch("norm_forward", shared.column_grid(self.rows(), c), &args) }
    }

    fn backward(&mut self, pass: &Pass<'_, Cuda>, g: Gradients<'_, Cuda>) -> Result<(), Error> {
        let (shared, elems, c) = (self.shared.clone(), self.x.elems(), self.x.shape.c);
        let (x, y, dy) = (shared.holds(g.x[0], elems)?, shared.holds(g.y, elems)?, shared.holds(g.dy, elems)?);
        let second = g.dy2.map(|d| shared.holds(d, elems)).transpose()?;
        let (dgamma, dbeta) = (g.dparams.at(pass.slots[0])?, g.dparams.at(pass.slots[1])?);
        let mode = self.mode() + SECOND * i32::from(second.is_some());
        let (rows, channels, grid) = (U64(self.rows() as u64), U32(c as u32), shared.column_grid(self.rows(), c));
        let [partial, affine, slopes] = [&self.partial, &self.affine, &self.slopes].map(|b| At(b.address()));
        let (statistics, n, eps) = (At(self.statistics()), F64(self.n), F32(self.op.eps));
        // SAFETY: all tensors hold (rows, channels), checked above; all else was allocated for so many channels and splits.
        unsafe {
            let args = [At(x), At(y), At(second.unwrap_or(0)), At(dy), affine, partial, rows, channels, I32(mode)];
            shared.launch("norm_backward_sums", grid, &args)?;
            let sums = At(self.sums.address());
            let (dgamma, dbeta) = (At(dgamma), At(dbeta));
            let args = [partial, U32(grid.1), statistics, n, channels, eps, affine, dgamma, dbeta, sums, slopes];
            shared.launch("norm_gradients", shared.grid(32 * c), &args)?;
        }
        // the parameters' own gradients are summed with all others; dx needs those of the whole batch here
        if let (Some(ranks), Some(whole)) = (pass.across, &mut self.whole) {
            shared.settle()?;
            let (s, sx) = self.sums.as_mut_slice().split_at_mut(c);
            across::gradients(ranks, c, s, sx)?;
            whole.sums.write(self.sums.as_slice(), shared.stream())?;
            let args = [At(whole.sums.address()), statistics, n, channels, eps, affine, slopes];
            // SAFETY: as above.
            unsafe { shared.launch("norm_slopes", shared.grid(c), &args)? };
        }
        // with a residual, dy keeps its own gradient and dx is the other's
        let dx = match (self.op.residual, g.dx) {
            (true, None) => return Ok(()),
            (true, Some(dx)) => shared.holds(dx, elems)?,
            (false, _) => dy,
        };
        // what the sums' pass has stored is masked already
        let left = if mode & (RESIDUAL | SECOND) == 0 { mode } else { 0 };
        let args = [At(x), At(dy), At(dx), affine, slopes, rows, channels, I32(left)];
        // SAFETY: as above.
        unsafe { shared.launch("norm_backward", grid, &args) }
    }

    fn pool_statistics(&self, running: &[f32], sums: &mut [f64]) -> u64 {
        let (c, n) = (self.x.shape.c, self.rows() as f64);
        let (mean, m2) = self.seen.as_slice().split_at(c);
        for i in 0..c {
            let d = mean[i] - f64::from(running[i]);
            sums[i] += n * d;
            // this rank's share of the whole batch's
            sums[c + i] += n * (m2[i] / self.n + d * d);
        }
        n as u64
    }
}
