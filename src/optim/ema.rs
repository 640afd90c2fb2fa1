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
    /// Starts from what the graph holds.
    pub fn new(graph: &Graph<B>, decay: f64) -> Result<Self, Error> {
        let (backend, layout) = (graph.backend(), graph.layout());
        let mut weights = Arena::new(backend, &layout.chunks)?;
        for i in 0..layout.params.len() {
            graph.pack(i, &graph.param(i)?, &mut weights)?;
        }
        Ok(Self { decay, weights, running: graph.running().to_vec() })
    }

    /// Takes in what the graph holds after its optimizer step `step`, counted from 1.
    pub fn update(&mut self, graph: &Graph<B>, step: u64) -> Result<(), Error> {
        let t = step as f64;
        let weight = 1.0 - self.decay.min((1.0 + t) / (10.0 + t));
        for (to, from) in self.weights.chunks.iter_mut().zip(&graph.weights().chunks) {
            graph.backend().lerp(to, from, weight as f32)?;
        }
        for (to, from) in self.running.iter_mut().zip(graph.running()) {
            *to = (f64::from(*to) + weight * (f64::from(*from) - f64::from(*to))) as f32;
        }
        Ok(())
    }

    /// Runs `f` on the graph with the averages in place of its parameters and running statistics.
    pub fn with<T>(&mut self, graph: &mut Graph<B>, f: impl FnOnce(&mut Graph<B>) -> T) -> T {
        graph.swap_weights(&mut self.weights, &mut self.running);
        let result = f(graph);
        graph.swap_weights(&mut self.weights, &mut self.running);
        result
    }
}
