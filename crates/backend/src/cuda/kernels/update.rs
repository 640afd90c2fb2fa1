//! The kernels of update.cu and of the update rules in `crates/backend/src/update`.

use super::declarations::Piece;
use super::kernel::{Geometry, Grid, Kernel, kernels};
use crate::Error;
use crate::cuda::driver::slice::{Activation, plain};

/// The values of a tensor on which its rate depends: its weight decay, whether its learning rate adapts, and the factor
/// on its rate.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct NormedTensor {
    pub decay: f64,
    pub adapts: u32,
    pub factor: f32,
}

plain! { NormedTensor = "NormedTensor" }

/// Number of f64 values that an optimizer step passes to its kernels, see update.cu.
pub const NUMBERS: usize = 10;

/// Number of rates that come before the tensors' rates.
const FIRST: usize = crate::update::rates::FIRST;

kernels! {
    /// Computes a step's rates from the norms of all tensors.
    step_rates: StepRates over one_block() {
        gradients: [f64; count],
        weights: [f64; count],
        tensors: [NormedTensor; count],
        count: u32,
        numbers: [f64; NUMBERS],
        limit: f64,
        rates: [f32; FIRST + count],
    }

    /// Clips each unit's gradient relative to the norm of its weights. All units are inside the first `end` elements.
    limit_units: LimitUnits over blocks(count) given(end) {
        units: [Piece; count],
        count: u32,
        w: [f32; end],
        g: [f32; end],
        part: f64,
        least: f64,
        tiny: f64,
    }

    /// Performs a step of an update rule on pieces. All pieces are inside the first `end` elements and use the first
    /// `factors` rates.
    update_sgd: UpdateArguments over blocks(count) given(end, factors) {
        pieces: [Piece; count],
        count: u32,
        numbers: [f64; NUMBERS],
        rates: [f32; factors],
        skip: [u32; 4],
        w: [f32; end],
        g: [f32; end],
        narrow: (null or [Activation; end]),
        slot0: (null or [f32; end]),
        slot1: (null or [f32; end]),
        slot2: (null or [f32; end]),
        half: (null or [Activation; end]),
        not_finite: [u32; 1],
    }
}

/// Name prefix of the update rules' kernels. All of them take [`UpdateArguments`].
pub const RULE: &str = "update_";

/// An optimizer step with the kernel of an update rule.
pub struct UpdateStep<'a> {
    /// The kernel's name, which begins with [`RULE`].
    pub rule: &'static str,
    pub arguments: UpdateArguments<'a>,
}

// SAFETY: all update rules have the parameters of `UpdateArguments` (checked by a test in `source`) and access the same
// elements.
unsafe impl Kernel for UpdateStep<'_> {
    fn name(&self) -> &'static str {
        self.rule
    }

    fn grid(&self, geometry: &Geometry) -> Grid {
        self.arguments.grid(geometry)
    }

    fn check(&self, grid: Grid) -> Result<(), Error> {
        if !self.rule.starts_with(RULE) {
            return Err(Error::Unsupported {
                op: self.rule.into(),
                why: "it is not the kernel of an update rule".into(),
            });
        }
        self.arguments.check(grid)
    }

    fn arguments(&self) -> Vec<u64> {
        self.arguments.arguments()
    }
}
