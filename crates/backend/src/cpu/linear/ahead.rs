//! Weights that a product takes next, brought near while this one keeps the core busy: pieces of them come and go too quickly for the
//! processor to foresee them.

use super::super::panels::PANEL;
use super::super::vector::Vectors;

/// Weights of so many inputs in one panel after the other, a few inputs at a time: each is a cache line.
pub struct Ahead {
    next: *const f32,
    done: usize,
    inputs: usize,
    /// Floats from panel to panel.
    panel: usize,
}

impl Ahead {
    /// The weights of `inputs` inputs that begin with element `first`, and those of as many in the panels behind, which are `panel`
    /// elements apart. They may lie beyond the last.
    pub fn new(w: &[f32], first: usize, inputs: usize, panel: usize) -> Self {
        Self { next: w.as_ptr().wrapping_add(first), done: 0, inputs, panel }
    }

    /// Fetches those of as many inputs.
    #[inline(always)]
    pub fn fetch<S: Vectors>(&mut self, set: S, mut count: usize) {
        while count > 0 {
            let now = count.min(self.inputs - self.done);
            for input in self.done..self.done + now {
                set.prefetch(self.next.wrapping_add(input * PANEL));
            }
            (self.done, count) = (self.done + now, count - now);
            if self.done == self.inputs {
                (self.done, self.next) = (0, self.next.wrapping_add(self.panel));
            }
        }
    }
}
