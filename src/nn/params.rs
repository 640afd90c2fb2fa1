//! The table of parameters: name -> plain shape, format and place in the flat arenas.

use super::spec::NetSpec;
use crate::backend::op::ParamSpec;
use crate::backend::{Backend, ParamFormat, Slot};

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
}

impl<B: Backend> Layout<B> {
    /// Packs parameters from the last node to the first; a chunk closes once it holds `chunk_bytes`.
    /// `formats[node]` are the formats of each node's parameters.
    pub fn new(net: &NetSpec, specs: &[Vec<ParamSpec>], formats: &[Vec<B::Format>], chunk_bytes: usize) -> Self {
        let mut layout = Self { params: Vec::new(), chunks: Vec::new(), finished_by: Vec::new() };
        let mut open = false;
        for node in (0..net.nodes.len()).rev().filter(|&n| !specs[n].is_empty()) {
            if !open {
                layout.chunks.push(0);
                layout.finished_by.push(node);
            }
            let chunk = layout.chunks.len() - 1;
            for (spec, format) in specs[node].iter().zip(&formats[node]).rev() {
                let (offset, len) = (layout.chunks[chunk], format.elems());
                let name = format!("{}.{}", net.nodes[node].name, spec.field);
                let slot = Slot { chunk, offset, len };
                layout.params.push(Param { name, spec: spec.clone(), node, format: format.clone(), slot });
                layout.chunks[chunk] = (offset + len).next_multiple_of(ALIGN);
            }
            layout.finished_by[chunk] = node;
            open = layout.chunks[chunk] * 4 < chunk_bytes;
        }
        layout.params.reverse();
        layout
    }

    /// The parameters of a chunk in the order of memory.
    pub fn of_chunk(&self, chunk: usize) -> Vec<&Param<B>> {
        let mut params: Vec<_> = self.params.iter().filter(|p| p.slot.chunk == chunk).collect();
        params.sort_by_key(|p| p.slot.offset);
        params
    }
}
