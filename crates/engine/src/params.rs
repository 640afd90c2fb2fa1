//! The table of parameters: name -> plain shape, format and place in the flat arenas.

use backend::{Backend, ParamFormat, Slot};
use net::NetSpec;
use net::ParamSpec;

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
