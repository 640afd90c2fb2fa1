//! An exponential moving average of the parameters and of batch norm's running statistics, by TensorFlow's rule: at step t,
//! counted from 1, d = min(decay, (1 + t) / (10 + t)); average -= (1 - d) (average - value). It starts from the first values.
//! The running statistics are averaged too, as in Inception's training script and in timm: they belong to the weights.

use crate::backend::{Arena, Backend, Error};
use crate::nn::Graph;

/// The averages.
pub struct Ema<B: Backend> {
    decay: f64,
    /// Of the parameters, in their layout.
    pub weights: Arena<B>,
    /// Of the running statistics.
    pub running: Vec<f32>,
}

impl<B: Backend> Ema<B> {
    /// Starts from the graph's parameters and running statistics.
    pub fn new(graph: &Graph<B>, decay: f64) -> Result<Self, Error> {
        let (backend, layout) = (graph.backend(), graph.layout());
        let mut weights = Arena::new(backend, &layout.chunks)?;
        for i in 0..layout.params.len() {
            graph.pack(i, &graph.param(i)?, &mut weights)?;
        }
        Ok(Self { decay, weights, running: graph.running().to_vec() })
    }

    /// Weight of the values after optimizer step `step`, counted from 1: 1 - d.
    pub fn weight(&self, step: u64) -> f64 {
        let t = step as f64;
        1.0 - self.decay.min((1.0 + t) / (10.0 + t))
    }

    /// Takes in the running statistics after a step; [`Optimizer::step`](super::Optimizer::step) takes in the parameters.
    pub fn update_running(&mut self, running: &[f32], step: u64) {
        let weight = self.weight(step);
        for (to, from) in self.running.iter_mut().zip(running) {
            *to = (f64::from(*to) + weight * (f64::from(*from) - f64::from(*to))) as f32;
        }
    }

    /// Runs `f` on the graph with the averages in place of its parameters and running statistics.
    pub fn with<T>(&mut self, graph: &mut Graph<B>, f: impl FnOnce(&mut Graph<B>) -> T) -> T {
        graph.swap_weights(&mut self.weights, &mut self.running);
        let result = f(graph);
        graph.swap_weights(&mut self.weights, &mut self.running);
        result
    }
}
