//! The table of parameters: name -> plain shape, format and place in the flat arenas. Also places of running statistics, and which
//! parameters are not trained.

use backend::{Backend, ParamFormat, Slot};
use net::{NetSpec, ParamSpec};

use super::memory::{Memory, Move};

/// Slots start on multiples of this many elements: one cache line.
const ALIGN: usize = 16;

/// One parameter.
#[derive(Clone, Debug)]
pub struct Param<B: Backend> {
    /// `<layer>.<field>`.
    pub name: String,
    /// Plain shape and start.
    pub spec: ParamSpec,
    /// Index of its node.
    pub node: usize,
    /// How it lies in memory.
    pub format: B::Format,
    /// Where.
    pub slot: Slot,
}

/// All parameters in the order of the network, and the chunks that hold them in the order in which backward finishes them.
pub struct Layout<B: Backend> {
    /// In the order of the network.
    pub params: Vec<Param<B>>,
    /// Elements of each chunk.
    pub chunks: Vec<usize>,
    /// Node whose backward pass finishes each chunk.
    pub finished_by: Vec<usize>,
    /// Whether the parameters of each chunk are the frozen ones; no chunk holds both kinds.
    pub frozen: Vec<bool>,
}

impl<B: Backend> Layout<B> {
    /// Packs parameters from the last node to the first; a chunk closes once it holds `chunk_bytes`.
    /// `formats[node]` are the formats of each node's parameters.
    pub fn new(net: &NetSpec, specs: &[Vec<ParamSpec>], formats: &[Vec<B::Format>], chunk_bytes: usize) -> Self {
        let mut layout = Self { params: Vec::new(), chunks: Vec::new(), finished_by: Vec::new(), frozen: Vec::new() };
        // the chunks that take parameters now, the trained and the frozen ones
        let mut open = [None; 2];
        for node in (0..net.nodes.len()).rev() {
            for (spec, format) in specs[node].iter().zip(&formats[node]).rev() {
                let name = net.parameter(node, spec);
                let frozen = net.frozen.contains(&name);
                let chunk = *open[usize::from(frozen)].get_or_insert_with(|| layout.begin_chunk(frozen));
                let (offset, len) = (layout.chunks[chunk], format.elems());
                let slot = Slot { chunk, offset, len };
                layout.params.push(Param { name, spec: spec.clone(), node, format: format.clone(), slot });
                layout.chunks[chunk] = (offset + len).next_multiple_of(ALIGN);
                layout.finished_by[chunk] = node;
            }
            open = open.map(|chunk| chunk.filter(|chunk| layout.chunks[*chunk] * 4 < chunk_bytes));
        }
        layout.params.reverse();
        layout.sort_chunks();
        layout
    }

    fn begin_chunk(&mut self, frozen: bool) -> usize {
        self.chunks.push(0);
        self.finished_by.push(0);
        self.frozen.push(frozen);
        self.chunks.len() - 1
    }

    /// Numbers the chunks in the order in which backward finishes them: two that are filled side by side may end in another order than
    /// they begin.
    fn sort_chunks(&mut self) {
        let mut order: Vec<usize> = (0..self.chunks.len()).collect();
        order.sort_by_key(|&chunk| std::cmp::Reverse(self.finished_by[chunk]));
        let mut number = vec![0; order.len()];
        order.iter().enumerate().for_each(|(new, &old)| number[old] = new);
        self.params.iter_mut().for_each(|p| p.slot.chunk = number[p.slot.chunk]);
        self.chunks = order.iter().map(|&chunk| self.chunks[chunk]).collect();
        self.finished_by = order.iter().map(|&chunk| self.finished_by[chunk]).collect();
        self.frozen = order.iter().map(|&chunk| self.frozen[chunk]).collect();
    }

    /// The parameters of a chunk in the order of memory.
    pub fn of_chunk(&self, chunk: usize) -> Vec<&Param<B>> {
        let mut params: Vec<_> = self.params.iter().filter(|p| p.slot.chunk == chunk).collect();
        params.sort_by_key(|p| p.slot.offset);
        params
    }
}

/// Where a batch normalisation's running statistics lie.
#[derive(Clone, Copy, Debug)]
pub struct NormPlace {
    /// Its node.
    pub node: usize,
    /// Its number of channels C.
    pub channels: usize,
    /// First of 2 C values: means, then variances.
    pub offset: usize,
}

// Frozen parameters: which layers have no others, and the backward pass that skips gradients that only they need.

/// What a graph does without while its network's [`frozen`](NetSpec::frozen) parameters are not trained.
#[derive(Default)]
pub(super) struct Freeze {
    /// Whether that is so now.
    pub on: bool,
    /// For each node, whether it has parameters and none of them is ever trained while `on`.
    nodes: Vec<bool>,
    /// The backward pass of the meantime: from the last node to the first that a trained parameter needs.
    pub moves: Vec<Move>,
}

impl Freeze {
    /// Of a network for training; it is on if any parameter is frozen.
    pub fn new(net: &NetSpec, specs: &[Vec<ParamSpec>], memory: &Memory) -> Self {
        if net.frozen.is_empty() {
            return Self::default();
        }
        let is_frozen = |node: usize, p: &ParamSpec| net.frozen.contains(&net.parameter(node, p));
        let trained: Vec<bool> =
            specs.iter().enumerate().map(|(node, own)| own.iter().any(|p| !is_frozen(node, p))).collect();
        let mut needed = vec![false];
        for (node, trained) in net.nodes.iter().zip(&trained) {
            needed.push(*trained || node.inputs.iter().any(|id| needed[id.0]));
        }
        let nodes = specs.iter().zip(&trained).map(|(own, trained)| !own.is_empty() && !trained).collect();
        Self { on: true, nodes, moves: shortened(net, memory, &needed) }
    }

    /// Whether no parameter of this node is trained now, though it has some.
    pub fn holds(&self, node: usize) -> bool {
        self.on && self.nodes.get(node).is_some_and(|held| *held)
    }
}

/// The moves of backward without those for gradients that nobody needs; `needed`: of each tensor.
fn shortened(net: &NetSpec, memory: &Memory, needed: &[bool]) -> Vec<Move> {
    let of_inputs = |node: usize, dx: &[Option<usize>]| {
        net.nodes[node].inputs.iter().zip(dx).map(|(id, buffer)| buffer.filter(|_| needed[id.0])).collect()
    };
    // values that later moves may read
    let mut read = vec![false; memory.places.len()];
    let mut moves = Vec::new();
    for step in memory.moves.iter().rev() {
        let kept = match *step {
            Move::Add { tensor, .. } => needed[tensor].then(|| step.clone()),
            Move::Recompute { to, .. } => read[to].then(|| step.clone()),
            Move::Node { node, dy, second, ref dx } => {
                needed[node + 1].then(|| Move::Node { node, dy, second, dx: of_inputs(node, dx) })
            }
        };
        if let Some(Move::Node { node, .. } | Move::Recompute { node, .. }) = kept {
            let tensors = net.nodes[node].inputs.iter().map(|id| id.0).chain([node + 1]);
            tensors.for_each(|tensor| read[memory.kept[tensor]] = true);
        }
        moves.extend(kept);
    }
    moves.reverse();
    moves
}
