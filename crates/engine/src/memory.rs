//! Which tensors share memory: places of activations and their gradients, settled once for the largest batch.

use std::ops::Range;

use backend::{Error, Keeps};
use net::{NetSpec, Op};

use super::packing::{Lifetime, pack};

/// What the planner must know of a node beyond its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// f32 words of its output.
    pub elems: usize,
    /// Whether it has no pass: whoever reads it reads its input.
    pub looked_through: bool,
    /// Whether its pass writes no output: who reads it computes it from its first input.
    pub unwritten: bool,
    /// Input whose gradient takes over the memory of the output's gradient.
    pub alias: Option<usize>,
    /// Whether it adds a second gradient by itself.
    pub adds: bool,
    /// What its backward reads of the forward pass.
    pub keeps: Keeps,
    /// Whether its output can be made anew in backward.
    pub recomputes: bool,
}

impl NodeFacts {
    /// Whether a memory plan made of these serves a node with those facts.
    pub(super) fn serve(&self, other: &Self) -> bool {
        let Keeps { inputs, output } = self.keeps;
        let kind = |of: &Self| (of.looked_through, of.unwritten, of.alias, of.adds);
        kind(self) == kind(other)
            && other.elems <= self.elems
            && other.keeps.inputs <= inputs
            && (output || !other.keeps.output)
            && (other.recomputes || !self.recomputes)
    }
}

/// One move of the backward pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// A node's output is made anew, since backward reads it and it was not kept.
    Recompute {
        node: usize,
        /// The value that is written.
        to: usize,
    },
    /// Gradient `to` += `from`.
    Add {
        tensor: usize,
        /// The value that keeps the sum.
        to: usize,
        /// The value that is added.
        from: usize,
    },
    /// Backward of a node.
    Node {
        node: usize,
        /// The output's gradient.
        dy: usize,
        /// A second summand of it.
        second: Option<usize>,
        /// Each input's gradient; none for the aliased one and for the network's input.
        dx: Vec<Option<usize>>,
    },
}

/// Values and their places.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Elements of the memory that all share.
    pub elems: usize,
    /// Place of each value.
    pub places: Vec<Range<usize>>,
    /// Value of each tensor (input first) in the forward pass.
    pub tensors: Vec<usize>,
    /// The same in backward; only those that [`NodeFacts::keeps`] names are there then.
    pub kept: Vec<usize>,
    /// Backward, in order; empty for inference.
    pub moves: Vec<Move>,
    /// Values that receive the gradients of the losses: of the scores, then of the auxiliary classifiers.
    pub losses: Vec<usize>,
    /// Elements of the values that are in use when the forward pass ends.
    pub activation_elems: usize,
}

/// A moment after all passes.
const ALWAYS: usize = usize::MAX;

/// Values with the moments at which they are in use: node i runs at moment i, the losses follow at moment n, move m at n + 1 + m.
#[derive(Default)]
struct Values(Vec<Lifetime>);

impl Values {
    fn new_at(&mut self, moment: usize, elems: usize) -> usize {
        self.0.push(Lifetime { elems, from: moment, to: moment });
        self.0.len() - 1
    }

    fn used(&mut self, value: usize, moment: usize) {
        self.0[value].to = self.0[value].to.max(moment);
    }
}

/// The tensor behind each one that has a gradient of its own: an op without a pass is looked through.
fn resolve(net: &NetSpec, facts: &[NodeFacts]) -> Vec<usize> {
    through(net, |node| facts[node].looked_through)
}

/// The tensor that holds each one's data: as [`resolve`], but a tensor that no pass writes is held by the input that it is computed from.
fn holders(net: &NetSpec, facts: &[NodeFacts]) -> Vec<usize> {
    through(net, |node| facts[node].looked_through || facts[node].unwritten)
}

/// The tensor behind each one, where the first input stands for the output of some nodes.
fn through(net: &NetSpec, passed: impl Fn(usize) -> bool) -> Vec<usize> {
    let mut behind = vec![0];
    for (i, node) in net.nodes.iter().enumerate() {
        behind.push(if passed(i) { behind[node.inputs[0].0] } else { i + 1 });
    }
    behind
}

/// The summands of a tensor's gradient.
#[derive(Clone, Debug, Default)]
struct Summands {
    /// Values in the tensor's own layout.
    whole: Vec<usize>,
    /// A value in the layout of a shortcut's output, which the node that made the tensor reads through that shortcut.
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
    net: &'a NetSpec,
    facts: &'a [NodeFacts],
    /// By tensor: which holds its data.
    holders: &'a [usize],
    values: Values,
    /// By tensor: the value that holds it in backward; none where it has yet to be made anew.
    kept: Vec<Option<usize>>,
    /// By tensor: values whose sum is its gradient, so far.
    pending: Vec<Summands>,
    moves: Vec<Move>,
}

impl Backward<'_> {
    fn now(&self) -> usize {
        self.net.nodes.len() + 1 + self.moves.len()
    }

    /// A part of a tensor's gradient is in this value. Parts that the tensor's node does not add by itself are added at once, so that
    /// a tensor with many readers takes no more memory than one with two.
    fn arrives(&mut self, tensor: usize, value: usize) {
        self.pending[tensor].whole.push(value);
        self.add(tensor);
    }

    /// The same of a part that the tensor's node reads through a shortcut.
    fn arrives_through(&mut self, tensor: usize, value: usize) {
        self.pending[tensor].through = Some(value);
        self.add(tensor);
    }

    fn add(&mut self, tensor: usize) {
        let adds = tensor > 0 && self.facts[tensor - 1].adds;
        let Summands { mut whole, through } = std::mem::take(&mut self.pending[tensor]);
        while whole.len() > 1 + usize::from(adds && through.is_none()) {
            let (from, now) = (whole.swap_remove(0), self.now());
            [whole[0], from].into_iter().for_each(|value| self.values.used(value, now));
            self.moves.push(Move::Add { tensor, to: whole[0], from });
        }
        self.pending[tensor] = Summands { whole, through };
    }

    /// Sees to it that a tensor is there at the next move: the values that it and, where it is made anew, its sources are in.
    fn is_there(&mut self, tensor: usize) -> usize {
        if let Some(value) = self.kept[tensor] {
            return value;
        }
        let node = tensor - 1;
        let sources: Vec<usize> = self.net.nodes[node].inputs.iter().map(|id| self.holders[id.0]).collect();
        let sources: Vec<usize> = sources.into_iter().map(|source| self.is_there(source)).collect();
        let now = self.now();
        sources.into_iter().for_each(|value| self.values.used(value, now));
        let to = self.values.new_at(now, self.facts[node].elems);
        self.moves.push(Move::Recompute { node, to });
        self.kept[tensor] = Some(to);
        to
    }

    /// Makes what the backward pass of a node reads of the forward pass be there.
    fn reads(&mut self, node: usize) -> Vec<usize> {
        let Keeps { inputs, output } = self.facts[node].keeps;
        let inputs = self.net.nodes[node].inputs.iter().take(inputs).map(|id| self.holders[id.0]);
        let tensors: Vec<usize> = inputs.chain(output.then_some(node + 1)).collect();
        tensors.into_iter().map(|tensor| self.is_there(tensor)).collect()
    }

    /// The pass of a node that reads these tensors, of which none is the network's input.
    fn node(&mut self, node: usize, inputs: &[Option<Source>]) {
        let Summands { whole, through } = std::mem::take(&mut self.pending[node + 1]);
        let (Some(&dy), second) = (whole.first(), through.or(whole.get(1).copied())) else { return };
        let reads = self.reads(node);
        let now = self.now();
        reads.into_iter().chain([dy]).chain(second).for_each(|value| self.values.used(value, now));
        let alias = self.facts[node].alias;
        let of_its_own = |(i, source): (usize, &Option<Source>)| source.filter(|_| alias != Some(i)).map(|s| s.tensor);
        let wanted: Vec<Option<usize>> = inputs.iter().enumerate().map(of_its_own).collect();
        let dx: Vec<Option<usize>> =
            wanted.iter().map(|t| t.map(|t| self.values.new_at(now, self.facts[t - 1].elems))).collect();
        self.moves.push(Move::Node { node, dy, second, dx: dx.clone() });
        wanted.iter().zip(&dx).for_each(|(t, b)| t.iter().zip(b).for_each(|(&t, &b)| self.arrives(t, b)));
        match alias.and_then(|i| inputs[i]) {
            Some(Source { tensor, shortened: true }) => self.arrives_through(tensor, dy),
            Some(Source { tensor, .. }) => self.arrives(tensor, dy),
            None => {}
        }
    }
}

/// Whether an input of a node comes through a shortcut without a pass.
fn shortened(net: &NetSpec, facts: &[NodeFacts], node: usize, input: usize) -> bool {
    let maker = net.nodes[node].inputs[input].0.checked_sub(1);
    maker.is_some_and(|maker| facts[maker].looked_through && matches!(net.nodes[maker].op, Op::Shortcut(_)))
}

/// The value of each tensor (input first), in use from the node that makes it to its last reader in the forward pass; what is read after
/// all passes is in use always.
fn forward(net: &NetSpec, input: usize, facts: &[NodeFacts], runs: &[bool]) -> (Values, Vec<usize>) {
    let mut values = Values::default();
    let mut tensors = vec![values.new_at(0, input)];
    for (i, (node, fact)) in net.nodes.iter().zip(facts).enumerate() {
        let value = match (fact.looked_through || fact.unwritten, runs[i]) {
            (true, _) => tensors[node.inputs[0].0],
            (false, true) => values.new_at(i, fact.elems),
            (false, false) => usize::MAX,
        };
        tensors.push(value);
        if runs[i] && !fact.looked_through {
            node.inputs.iter().for_each(|id| values.used(tensors[id.0], i));
        }
    }
    (values, tensors)
}

impl Memory {
    /// For training: what backward reads is kept, or made anew where that is cheap.
    pub fn train(net: &NetSpec, input: usize, facts: &[NodeFacts]) -> Self {
        let (real, holders, n) = (resolve(net, facts), holders(net, facts), net.nodes.len());
        let (mut values, tensors) = forward(net, input, facts, &vec![true; n]);
        let read_after: Vec<usize> = net.scores().chain([net.features().0]).map(|t| real[t]).collect();
        read_after.iter().for_each(|t| values.used(tensors[*t], ALWAYS));
        let anew = |t: usize| t > 0 && facts[t - 1].recomputes && !read_after.contains(&t);
        let kept = (0..=n).map(|t| (!anew(t)).then_some(tensors[t])).collect();
        let pending = vec![Summands::default(); real.len()];
        let mut back = Backward { net, facts, holders: &holders, values, kept, pending, moves: Vec::new() };
        let mut losses = Vec::new();
        for t in net.scores().map(|t| real[t]) {
            let value = back.values.new_at(n, if t == 0 { input } else { facts[t - 1].elems });
            losses.push(value);
            back.arrives(t, value);
        }
        for node in (0..n).rev().filter(|&n| !facts[n].looked_through) {
            let inputs = net.nodes[node].inputs.iter().enumerate().map(|(place, id)| {
                let tensor = Some(real[id.0]).filter(|&t| t != 0)?;
                Some(Source { tensor, shortened: shortened(net, facts, node, place) })
            });
            back.node(node, &inputs.collect::<Vec<_>>());
        }
        let Backward { values, moves, kept, .. } = back;
        let kept = holders.iter().map(|t| kept[*t].unwrap_or(tensors[*t])).collect();
        Self { tensors, kept, moves, losses, ..Self::packed(&values, n) }
    }

    /// For inference, without auxiliary classifiers: a place is free again after the last reader of its tensor.
    pub fn infer(net: &NetSpec, input: usize, facts: &[NodeFacts]) -> Self {
        let (mut values, tensors) = forward(net, input, facts, &net.serving());
        // the scores are read afterwards, and sometimes what they are made of
        [net.nodes.len(), net.features().0].into_iter().for_each(|tensor| values.used(tensors[tensor], ALWAYS));
        Self { kept: tensors.clone(), tensors, ..Self::packed(&values, net.nodes.len()) }
    }

    /// The places of these values; the forward pass ends at moment `end`.
    fn packed(values: &Values, end: usize) -> Self {
        let (places, elems) = pack(&values.0);
        let at_end = values.0.iter().filter(|life| life.from <= end && end <= life.to);
        Self { elems, places, activation_elems: at_end.map(|life| life.elems).sum(), ..Self::default() }
    }
}

/// Bytes of a graph by purpose.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    pub parameters: usize,
    pub activations: usize,
    /// Work space and private memory of the operations, allocated already.
    pub workspace: usize,
}

impl Need {
    /// Of a graph with so many bytes of parameters.
    pub fn new(parameters: usize, train: bool, memory: &Memory, workspace: usize) -> Self {
        let parameters = parameters.saturating_mul(1 + usize::from(train));
        let activations = memory.elems.saturating_mul(4);
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
            have: format!("{} are free; {advice}{}", mb(free), loaders::memory::limits_cure()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::Shape;

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
