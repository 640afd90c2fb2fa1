//! SGD with momentum and Nesterov's form. The learning rate stays outside the buffer (w -= lr b), so that a rate that changes
//! needs no momentum correction (Goyal et al. 2017, arXiv 1706.02677, remark 2).

use crate::backend::{Arena, Backend, DecayRange, Error, Sgd};
use crate::nn::Graph;

/// SGD's settings and its momentum, chunk by chunk as the parameters.
pub struct SgdMomentum<B: Backend> {
    momentum: f32,
    nesterov: bool,
    decay: Vec<Vec<DecayRange>>,
    buffers: Arena<B>,
}

impl<B: Backend> SgdMomentum<B> {
    /// Optimizer values per parameter.
    pub const SLOTS: usize = 1;

    /// For the parameters of `graph`; `decay` gives each one's weight decay by its name.
    pub fn new(graph: &Graph<B>, momentum: f64, nesterov: bool, decay: impl Fn(&str) -> f64) -> Result<Self, Error> {
        let layout = graph.layout();
        let decay = (0..layout.chunks.len()).map(|c| layout.decay(c, |p| decay(&p.name) as f32)).collect();
        let buffers = Arena::new(graph.backend(), &layout.chunks)?;
        Ok(Self { momentum: momentum as f32, nesterov, decay, buffers })
    }

    /// One step from the gradients that lie in the graph; tells whether all parameters are still finite.
    pub fn step(&mut self, graph: &mut Graph<B>, lr: f64) -> Result<bool, Error> {
        let numbers = Sgd { lr: lr as f32, momentum: self.momentum, nesterov: self.nesterov };
        let (backend, weights, grads) = graph.arenas();
        let mut finite = true;
        for (chunk, decay) in self.decay.iter().enumerate() {
            let momentum = &mut self.buffers.chunks[chunk];
            finite &= backend.sgd(numbers, decay, &mut weights.chunks[chunk], &grads.chunks[chunk], momentum)?;
        }
        Ok(finite)
    }
}
