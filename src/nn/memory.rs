//! Which tensors share memory: buffers for activations and their gradients, settled once for the largest batch.

use super::spec::{Id, NetSpec};
use crate::backend::Error;

/// What the planner must know of a node beyond its inputs.
#[derive(Clone, Copy, Debug)]
pub struct NodeFacts {
    /// Elements of its output.
    pub elems: usize,
    /// Whether it only renames its input.
    pub renames: bool,
    /// Input whose gradient takes over the memory of the output's gradient.
    pub alias: Option<usize>,
    /// Whether it adds a second gradient by itself.
    pub adds: bool,
}

/// One move of the backward pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// Gradient buffer `to` += `from`.
    Add {
        /// Buffer that keeps the sum.
        to: usize,
        /// Buffer that is added.
        from: usize,
    },
    /// Backward of a node.
    Node {
        /// Which node.
        node: usize,
        /// Buffer with the output's gradient.
        dy: usize,
        /// Buffer with a second summand.
        second: Option<usize>,
        /// Buffer for the gradient of the input that is not aliased.
        dx: Option<usize>,
    },
}

/// Buffers and who uses them.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Elements of each buffer.
    pub buffers: Vec<usize>,
    /// Buffer of each tensor (input first).
    pub tensors: Vec<usize>,
    /// Backward, in order; empty for inference.
    pub moves: Vec<Move>,
    /// Buffer that receives the loss's gradient.
    pub loss: usize,
    /// Elements of the activations' buffers; the rest are gradients.
    pub activation_elems: usize,
}

/// Buffers with a free list.
#[derive(Default)]
struct Pool {
    sizes: Vec<usize>,
    free: Vec<usize>,
}

impl Pool {
    /// The smallest free buffer that fits, else the largest one grown, else a new one.
    fn take(&mut self, elems: usize) -> usize {
        let fits = |b: &&usize| self.sizes[**b] >= elems;
        let best = self.free.iter().filter(fits).min_by_key(|b| self.sizes[**b]);
        let Some(&b) = best.or_else(|| self.free.iter().max_by_key(|b| self.sizes[**b])) else {
            self.sizes.push(elems);
            return self.sizes.len() - 1;
        };
        self.free.retain(|f| *f != b);
        self.sizes[b] = self.sizes[b].max(elems);
        b
    }

    fn give(&mut self, buffer: usize) {
        self.free.push(buffer);
    }
}

/// The tensor that really holds each one's data: an op that only renames is looked through.
pub fn resolve(net: &NetSpec, facts: &[NodeFacts]) -> Vec<usize> {
    let mut real = vec![0];
    for (i, node) in net.nodes.iter().enumerate() {
        real.push(if facts[i].renames { real[node.inputs[0].0] } else { i + 1 });
    }
    real
}

/// The tensor behind an input of a node, unless it is the image.
fn input_tensor(net: &NetSpec, real: &[usize], node: usize, index: usize) -> Option<usize> {
    Some(real[net.nodes[node].inputs.get(index)?.0]).filter(|&t| t != 0)
}

/// The tensor whose gradient backward of a node writes to a buffer of its own.
pub fn gradient_input(net: &NetSpec, facts: &[NodeFacts], real: &[usize], node: usize) -> Option<usize> {
    (0..2).filter(|&i| facts[node].alias != Some(i)).find_map(|i| input_tensor(net, real, node, i))
}

impl Memory {
    /// For training: every activation is kept, gradients share buffers.
    pub fn train(net: &NetSpec, input: usize, facts: &[NodeFacts]) -> Self {
        let real = resolve(net, facts);
        let mut pool = Pool::default();
        let mut own = vec![pool.take(input)];
        own.extend(facts.iter().map(|f| if f.renames { usize::MAX } else { pool.take(f.elems) }));
        let tensors: Vec<usize> = real.iter().map(|&t| own[t]).collect();
        let activation_elems = pool.sizes.iter().sum();
        let mut pending: Vec<Vec<usize>> = vec![Vec::new(); real.len()];
        let last = real[net.nodes.len()];
        let loss = pool.take(if last == 0 { input } else { facts[last - 1].elems });
        pending[last].push(loss);
        let mut moves = Vec::new();
        for node in (0..net.nodes.len()).rev().filter(|&n| !facts[n].renames) {
            let mut sums = std::mem::take(&mut pending[node + 1]);
            while sums.len() > 1 + usize::from(facts[node].adds) {
                let from = sums.swap_remove(0);
                moves.push(Move::Add { to: sums[0], from });
                pool.give(from);
            }
            let (Some(&dy), second) = (sums.first(), sums.get(1).copied()) else { continue };
            let dx = gradient_input(net, facts, &real, node);
            let dx = dx.map(|t| (t, pool.take(facts[t - 1].elems)));
            moves.push(Move::Node { node, dy, second, dx: dx.map(|d| d.1) });
            if let Some((t, buffer)) = dx {
                pending[t].push(buffer);
            }
            second.into_iter().for_each(|b| pool.give(b));
            match facts[node].alias.and_then(|i| input_tensor(net, &real, node, i)) {
                Some(t) => pending[t].push(dy),
                None => pool.give(dy),
            }
        }
        Self { buffers: pool.sizes, tensors, moves, loss, activation_elems }
    }

    /// For inference: a buffer is free again after the last reader of its tensor.
    pub fn infer(net: &NetSpec, input: usize, facts: &[NodeFacts]) -> Self {
        let real = resolve(net, facts);
        let mut last_use = vec![usize::MAX; real.len()];
        for (i, node) in net.nodes.iter().enumerate() {
            node.inputs.iter().for_each(|Id(t)| last_use[real[*t]] = i);
        }
        last_use[real[net.nodes.len()]] = usize::MAX;
        let mut pool = Pool::default();
        let mut own = vec![pool.take(input)];
        for (i, f) in facts.iter().enumerate() {
            own.push(if f.renames { usize::MAX } else { pool.take(f.elems) });
            (0..=i).filter(|&t| last_use[t] == i).for_each(|t| pool.give(own[t]));
        }
        let tensors = real.iter().map(|&t| own[t]).collect();
        let activation_elems = pool.sizes.iter().sum();
        Self { buffers: pool.sizes, tensors, moves: Vec::new(), loss: 0, activation_elems }
    }
}

/// Bytes of a graph by purpose.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// Parameters, and their gradients.
    pub parameters: usize,
    /// Activations and their gradients.
    pub activations: usize,
    /// Work space and private memory of the operations, allocated already.
    pub workspace: usize,
}

impl Need {
    /// Of a graph with so many bytes of parameters.
    pub fn of(parameters: usize, train: bool, memory: &Memory, workspace: usize) -> Self {
        let parameters = parameters.saturating_mul(1 + usize::from(train));
        let activations =
            memory.buffers.iter().fold(0, |sum: usize, words| sum.saturating_add(*words)).saturating_mul(4);
        Self { parameters, activations, workspace }
    }

    /// Fails where a device has fewer bytes free than parameters and activations of `batch` rows need, and says what would fit.
    pub fn check(&self, net: &NetSpec, batch: usize, free: Option<usize>) -> Result<(), Error> {
        let need = self.parameters.saturating_add(self.activations);
        let Some(free) = free.filter(|free| *free < need) else { return Ok(()) };
        let mb = |bytes: usize| format!("{:.0} MB", bytes as f64 / 1e6);
        // activations grow with the batch, parameters do not
        let fits = batch as f64 * free.saturating_sub(self.parameters) as f64 / self.activations.max(1) as f64;
        let advice = match fits as usize {
            0 => "not even one image a rank would fit".into(),
            rows => format!("about {rows} images a rank would fit: try a smaller batch, more workers or more ranks"),
        };
        Err(Error::DeviceMemory {
            what: format!("{} at {batch} images", net.name),
            need: format!(
                "{} (parameters and gradients {}, activations {}), beside {} of work space that it has",
                mb(need),
                mb(self.parameters),
                mb(self.activations),
                mb(self.workspace)
            ),
            have: format!("{} are free; {advice}", mb(free)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::op::Shape;

    #[test]
    fn what_does_not_fit_is_said_with_what_would() {
        let net = NetSpec::new("net", Shape::vector(1));
        let need = Need { parameters: 40_000_000, activations: 960_000_000, workspace: 7_000_000 };
        assert!(need.check(&net, 96, None).is_ok());
        assert!(need.check(&net, 96, Some(1_000_000_000)).is_ok());
        let error = need.check(&net, 96, Some(540_000_000)).unwrap_err().to_string();
        for part in [
            "net at 96 images needs 1000 MB",
            "gradients 40 MB",
            "activations 960 MB",
            "7 MB of work space",
            "540 MB are free",
            "about 50 images",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
        let error = need.check(&net, 96, Some(30_000_000)).unwrap_err().to_string();
        assert!(error.contains("not even one image"), "{error}");
    }
}
