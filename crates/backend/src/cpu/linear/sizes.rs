//! Sizes of a linear layer, and of the pieces in which its products are made.

use super::super::panels::PANEL;
use super::super::threads::Threads;

/// Steps of a sum that are made at once: the weights of a panel for so many inputs, those that come next, and as many values of a few
/// samples fit into the first cache.
pub const DEPTH: usize = 128;

/// Inputs whose gradients are made at once: of so many panels' width.
pub const GROUP: usize = 3 * PANEL;

/// Of a layer with so many samples, inputs and outputs.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub n: usize,
    pub inputs: usize,
    pub outputs: usize,
}

impl Sizes {
    /// Panels of weights.
    pub fn panels(&self) -> usize {
        self.outputs.div_ceil(PANEL)
    }

    /// The outputs of a panel that there are.
    pub fn outputs_of(&self, panel: usize) -> std::ops::Range<usize> {
        panel * PANEL..((panel + 1) * PANEL).min(self.outputs)
    }

    /// Elements of the outputs of all samples, in panels.
    pub fn in_panels(&self) -> usize {
        self.panels() * self.n * PANEL
    }

    /// Elements of one thread's work space for the gradient of inputs: turned weights, and sums.
    pub fn inputs_work(&self) -> usize {
        GROUP * (DEPTH + self.n)
    }

    /// Elements of work space for any pass.
    pub fn work(&self, threads: Threads) -> usize {
        let weights = self.in_panels() + threads.0 * self.n * GROUP;
        weights.max(threads.0 * self.inputs_work())
    }
}
