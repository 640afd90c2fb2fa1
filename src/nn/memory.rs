//! Which tensors share memory: buffers for activations and their gradients, settled once for the largest batch.

use super::spec::{Id, NetSpec, Op};
use crate::backend::Error;

/// What the planner must know of a node beyond its inputs.
#[derive(Clone, Copy, Debug)]
pub struct NodeFacts {
    /// Elements of its output.
    pub elems: usize,
    /// Whether it has no pass: whoever reads it reads its input.
    pub looked_through: bool,
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
        /// The tensor whose gradient it is.
        tensor: usize,
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
        /// Buffer for each input's gradient; none for the aliased one and for the network's input.
        dx: Vec<Option<usize>>,
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
    /// Buffers that receive the gradients of the losses: of the scores, then of the auxiliary classifiers.
    pub losses: Vec<usize>,
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

/// The tensor that really holds each one's data: an op without a pass is looked through.
pub fn resolve(net: &NetSpec, facts: &[NodeFacts]) -> Vec<usize> {
    let mut real = vec![0];
    for (i, node) in net.nodes.iter().enumerate() {
        real.push(if facts[i].looked_through { real[node.inputs[0].0] } else { i + 1 });
    }
    real
}

/// The summands of a tensor's gradient.
#[derive(Clone, Debug, Default)]
struct Summands {
    /// Buffers in the tensor's own layout.
    whole: Vec<usize>,
    /// A buffer in the layout of a shortcut's output, which the node that made the tensor reads through that shortcut.
    through: Option<usize>,
}

/// A tensor that a node reads.
#[derive(Clone, Copy, Debug)]
struct Source {
    tensor: usize,
    /// Whether it comes through a shortcut without a pass.
    shortened: bool,
}

/// The backward pass as far as it is planned.
struct Backward<'a> {
    facts: &'a [NodeFacts],
    pool: Pool,
    /// By tensor: buffers whose sum is its gradient, so far.
    pending: Vec<Summands>,
    moves: Vec<Move>,
}

impl Backward<'_> {
    /// A part of a tensor's gradient is in this buffer. Parts that the tensor's node does not add by itself are added at once, so that
    /// a tensor with many readers takes no more memory than one with two.
    fn arrives(&mut self, tensor: usize, buffer: usize) {
        self.pending[tensor].whole.push(buffer);
        self.add(tensor);
    }

    /// The same of a part that the tensor's node reads through a shortcut.
    fn arrives_through(&mut self, tensor: usize, buffer: usize) {
        self.pending[tensor].through = Some(buffer);
        self.add(tensor);
    }

    fn add(&mut self, tensor: usize) {
        let adds = tensor > 0 && self.facts[tensor - 1].adds;
        let Summands { whole, through } = &mut self.pending[tensor];
        while whole.len() > 1 + usize::from(adds && through.is_none()) {
            let from = whole.swap_remove(0);
            self.moves.push(Move::Add { tensor, to: whole[0], from });
            self.pool.give(from);
        }
    }

    /// The pass of a node that reads these tensors, of which none is the network's input.
    fn node(&mut self, node: usize, inputs: &[Option<Source>]) {
        let Summands { whole, through } = std::mem::take(&mut self.pending[node + 1]);
        let (Some(&dy), second) = (whole.first(), through.or(whole.get(1).copied())) else { return };
        let alias = self.facts[node].alias;
        let of_its_own = |(i, source): (usize, &Option<Source>)| source.filter(|_| alias != Some(i)).map(|s| s.tensor);
        let wanted: Vec<Option<usize>> = inputs.iter().enumerate().map(of_its_own).collect();
        let dx: Vec<Option<usize>> =
            wanted.iter().map(|t| t.map(|t| self.pool.take(self.facts[t - 1].elems))).collect();
        self.moves.push(Move::Node { node, dy, second, dx: dx.clone() });
        wanted.iter().zip(&dx).for_each(|(t, b)| t.iter().zip(b).for_each(|(&t, &b)| self.arrives(t, b)));
        second.into_iter().for_each(|b| self.pool.give(b));
        match alias.and_then(|i| inputs[i]) {
            Some(Source { tensor, shortened: true }) => self.arrives_through(tensor, dy),
            Some(Source { tensor, .. }) => self.arrives(tensor, dy),
            None => self.pool.give(dy),
        }
    }
}

/// Whether an input of a node comes through a shortcut without a pass.
fn shortened(net: &NetSpec, facts: &[NodeFacts], node: usize, input: usize) -> bool {
    let maker = net.nodes[node].inputs[input].0.checked_sub(1);
    maker.is_some_and(|maker| facts[maker].looked_through && matches!(net.nodes[maker].op, Op::Shortcut(_)))
}

impl Memory {
    /// For training: every activation is kept, gradients share buffers.
    pub fn train(net: &NetSpec, input: usize, facts: &[NodeFacts]) -> Self {
        let real = resolve(net, facts);
        let mut pool = Pool::default();
        let mut own = vec![pool.take(input)];
        own.extend(facts.iter().map(|f| if f.looked_through { usize::MAX } else { pool.take(f.elems) }));
        let tensors: Vec<usize> = real.iter().map(|&t| own[t]).collect();
        let activation_elems = pool.sizes.iter().sum();
        let mut back = Backward { facts, pool, pending: vec![Summands::default(); real.len()], moves: Vec::new() };
        let mut losses = Vec::new();
        for t in net.scores().map(|t| real[t]) {
            let buffer = back.pool.take(if t == 0 { input } else { facts[t - 1].elems });
            losses.push(buffer);
            back.arrives(t, buffer);
        }
        for node in (0..net.nodes.len()).rev().filter(|&n| !facts[n].looked_through) {
            let inputs = net.nodes[node].inputs.iter().enumerate().map(|(place, id)| {
                let tensor = Some(real[id.0]).filter(|&t| t != 0)?;
                Some(Source { tensor, shortened: shortened(net, facts, node, place) })
            });
            back.node(node, &inputs.collect::<Vec<_>>());
        }
        let Backward { pool, moves, .. } = back;
        Self { buffers: pool.sizes, tensors, moves, losses, activation_elems }
    }

    /// For inference, without auxiliary classifiers: a buffer is free again after the last reader of its tensor.
    pub fn infer(net: &NetSpec, input: usize, facts: &[NodeFacts]) -> Self {
        let real = resolve(net, facts);
        let mut last_use = vec![usize::MAX; real.len()];
        let serving = net.serving();
        for (i, node) in net.nodes.iter().enumerate().filter(|(i, _)| serving[*i]) {
            node.inputs.iter().for_each(|Id(t)| last_use[real[*t]] = i);
        }
        // the scores are read afterwards, and sometimes what they are made of
        [net.nodes.len(), net.features().0].into_iter().for_each(|tensor| last_use[real[tensor]] = usize::MAX);
        let mut pool = Pool::default();
        let mut own = vec![pool.take(input)];
        for (i, f) in facts.iter().enumerate() {
            own.push(if f.looked_through || !serving[i] { usize::MAX } else { pool.take(f.elems) });
            (0..=i).filter(|&t| last_use[t] == i).for_each(|t| pool.give(own[t]));
        }
        let tensors = real.iter().map(|&t| own[t]).collect();
        let activation_elems = pool.sizes.iter().sum();
        Self { buffers: pool.sizes, tensors, moves: Vec::new(), losses: Vec::new(), activation_elems }
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
