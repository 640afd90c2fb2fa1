//! Access to a graph's state for training, checkpoints and tables: parameters, gradients, running statistics, formats.

use backend::{Across, Arena, Backend, Error, Planned, TensorDesc};
use net::NetSpec;
use net::Shape;

use super::graph::Graph;
use super::memory::Memory;
use super::params::NormPlace;
use super::params::{Layout, Param};

impl<B: Backend> Graph<B> {
    /// The device.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// The network.
    pub fn net(&self) -> &NetSpec {
        &self.net
    }

    /// Logical shape of every tensor, input first.
    pub fn shapes(&self) -> &[Shape] {
        &self.now.shapes
    }

    /// Scores of an image, one a class.
    pub fn classes(&self) -> usize {
        self.now.shapes.last().map_or(0, |shape| shape.elems())
    }

    /// The parameters in the order of the network.
    pub fn params(&self) -> &[Param<B>] {
        &self.layout.params
    }

    /// Whether the network's frozen parameters are not trained now.
    pub fn is_frozen(&self) -> bool {
        self.freeze.on
    }

    /// Trains the network's frozen parameters from the next pass on, or no longer.
    pub fn set_frozen(&mut self, frozen: bool) {
        self.freeze.on = frozen && !self.net.frozen.is_empty();
    }

    /// Whether the parameters of a chunk are trained now.
    pub fn trains(&self, chunk: usize) -> bool {
        !(self.freeze.on && self.layout.frozen[chunk])
    }

    /// Their places in the arenas.
    pub fn layout(&self) -> &Layout<B> {
        &self.layout
    }

    /// Places of tensors and their sharing.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The flat parameters and gradients, to change them.
    pub fn arenas(&mut self) -> (&B, &mut Arena<B>, &mut Arena<B>) {
        self.changed = true;
        self.to_update()
    }

    /// The same for the optimizer, which changes parameters by the device's updates alone.
    pub fn to_update(&mut self) -> (&B, &mut Arena<B>, &mut Arena<B>) {
        (&self.backend, &mut self.weights, &mut self.grads)
    }

    /// The flat parameters.
    pub fn weights(&self) -> &Arena<B> {
        &self.weights
    }

    /// Exchanges all parameters and running statistics for others of the same layout: moving averages, for a while.
    pub fn swap_weights(&mut self, weights: &mut Arena<B>, running: &mut [f32]) {
        self.changed = true;
        std::mem::swap(&mut self.weights, weights);
        self.running.swap_with_slice(running);
    }

    /// The flat parameters, to replace them as a whole.
    pub fn weights_mut(&mut self) -> (&B, &mut Arena<B>) {
        self.changed = true;
        (&self.backend, &mut self.weights)
    }

    /// Gives back the buffers of a gradient chunk; the last one holds the sum that the optimizer reads.
    pub fn put(&mut self, chunk: usize, mut gradients: Vec<B::Buf>) {
        self.grads.chunks[chunk] = gradients.pop().unwrap_or_default();
        gradients.into_iter().for_each(|earlier| self.earlier.give_back(chunk, earlier));
    }

    /// Arenas of gradients beside the one that the optimizer reads: sums of workers, or one per worker.
    pub fn gathered_arenas(&self) -> usize {
        self.earlier.kept()
    }

    /// Takes a gradient chunk out.
    pub fn take(&mut self, chunk: usize) -> B::Buf {
        std::mem::take(&mut self.grads.chunks[chunk])
    }

    /// A parameter as a plain tensor.
    pub fn param(&self, index: usize) -> Result<Vec<f32>, Error> {
        self.unpack(index, &self.weights)
    }

    /// A parameter's gradient as a plain tensor.
    pub fn gradient(&self, index: usize) -> Result<Vec<f32>, Error> {
        self.unpack(index, &self.grads)
    }

    /// A parameter's values in any arena of the parameters' layout (gradients, an optimizer's slot) as a plain tensor.
    pub fn unpack(&self, index: usize, arena: &Arena<B>) -> Result<Vec<f32>, Error> {
        let p = &self.layout.params[index];
        let mut plain = vec![0.0; p.spec.elems()];
        arena.unpack(&p.format, p.slot, &mut plain)?;
        Ok(plain)
    }

    /// Sets a parameter from a plain tensor.
    pub fn set_param(&mut self, index: usize, plain: &[f32]) -> Result<(), Error> {
        let mut weights = std::mem::replace(&mut self.weights, Arena { chunks: Vec::new() });
        self.changed = true;
        let result = self.pack(index, plain, &mut weights);
        self.weights = weights;
        result
    }

    /// Sets a parameter's values in any arena of the parameters' layout from a plain tensor.
    pub fn pack(&self, index: usize, plain: &[f32], arena: &mut Arena<B>) -> Result<(), Error> {
        let p = &self.layout.params[index];
        if plain.len() != p.spec.elems() {
            let (expected, got) = (format!("{} elements", p.spec.elems()), plain.len().to_string());
            return Err(Error::Size { op: p.name.clone(), expected, got });
        }
        arena.pack(&p.format, plain, p.slot)
    }

    /// Makes batch normalisation take its statistics over all ranks' shares of each batch. Each rank must then run one pass a step.
    pub fn normalise_across(&mut self, ranks: Box<dyn Across>) {
        self.across = Some(ranks);
    }

    /// Places of the running statistics.
    pub fn norms(&self) -> &[NormPlace] {
        &self.norms
    }

    /// Running means and variances of all batch normalisations, each as [`NormPlace`] says.
    pub fn running(&self) -> &[f32] {
        &self.running
    }

    /// The same, for writing.
    pub fn running_mut(&mut self) -> &mut [f32] {
        &mut self.running
    }

    pub(super) fn running_of(&self, n: NormPlace) -> &[f32] {
        &self.running[n.offset..n.offset + 2 * n.channels]
    }

    /// Adds the statistics of the batch whose sums were read last to `sums` (as [`NormPlace`] lays them out: `n d`, then
    /// `M2 + n d^2`) and its number of values per channel to `counts`, one for each batch normalisation.
    pub fn pool_statistics(&self, sums: &mut [f64], counts: &mut [f64]) {
        let Some(plan) = self.now.plans.get(&self.read) else { return };
        for (place, count) in self.norms.iter().zip(counts).filter(|(place, _)| !self.freeze.holds(place.node)) {
            if let Some(op) = &plan[place.node] {
                let sums = &mut sums[place.offset..place.offset + 2 * place.channels];
                *count += op.pool_statistics(self.running_of(*place), sums) as f64;
            }
        }
    }

    /// A tensor of the last pass (0 is the input, i + 1 the output of node i) as plain NCHW.
    pub fn output(&self, tensor: usize) -> Result<Vec<f32>, Error> {
        let unmade =
            |node: usize| !self.net.nodes[node].op.renames() && self.planned(node).is_none_or(|op| !op.writes());
        if let Some(node) = tensor.checked_sub(1).filter(|&node| unmade(node)) {
            let why = "the layer behind reads through it, so its output is never made".into();
            return Err(Error::Unsupported { op: self.net.nodes[node].name.clone(), why });
        }
        let desc = TensorDesc { n: self.current, ..self.memory_desc(tensor) };
        self.backend.download(&desc, &*self.tensors.take(self.value_of(tensor))?)
    }

    /// The value of a tensor in the forward pass.
    pub(super) fn value_of(&self, tensor: usize) -> usize {
        self.memory.tensors[tensor]
    }

    /// Primitives behind a node, for the largest batch.
    pub fn implementation(&self, node: usize) -> String {
        match self.planned(node) {
            Some(planned) => planned.implementation(),
            None if self.net.nodes[node].op.renames() => "renamed".into(),
            None => "read through by the norms beside it".into(),
        }
    }

    /// The plan of a node for the largest batch; none where it has no pass.
    fn planned(&self, node: usize) -> Option<&(dyn Planned<B> + 'static)> {
        self.now.plans.values().next_back().and_then(|plan| plan[node].as_deref())
    }

    /// Bytes of private memory of all plans.
    pub fn state_bytes(&self) -> usize {
        let sizes = std::iter::once(&self.now).chain(&self.others);
        sizes.flat_map(|size| size.plans.values()).flatten().flatten().map(|p| p.state_bytes()).sum()
    }

    /// One line per parameter that says how it lies in memory: equal on all ranks, or their sums would mix elements.
    pub fn format_lines(&self) -> String {
        self.layout.params.iter().map(|p| format!("{} {:?} {:?}\n", p.name, p.slot, p.format)).collect()
    }
}
