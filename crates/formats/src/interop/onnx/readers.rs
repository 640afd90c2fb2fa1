//! How many nodes read a tensor, under all the names that it has: nodes that change nothing give it further ones.

use std::collections::BTreeMap;

use net::Id;

use super::graph::Graph;

/// Readers of names and of tensors.
pub(super) struct Readers<'a> {
    /// How often each name is read; the graph's outputs are read from outside.
    names: BTreeMap<&'a str, usize>,
    /// How often each tensor is read, without the nodes that only gave it another name.
    tensors: BTreeMap<usize, usize>,
}

impl<'a> Readers<'a> {
    /// Of a graph's names; no tensor has one yet.
    pub fn new(graph: &Graph<'a>) -> Self {
        let mut names = BTreeMap::new();
        graph.nodes.iter().flat_map(|node| &node.inputs).chain(&graph.outputs).for_each(|name| {
            *names.entry(*name).or_insert(0) += 1;
        });
        Self { names, tensors: BTreeMap::new() }
    }

    /// A tensor has this name from now on, by a node that read it so often itself.
    pub fn name(&mut self, tensor: Id, name: &str, read: usize) {
        let count = self.tensors.entry(tensor.0).or_insert(0);
        *count = (*count + self.names.get(name).unwrap_or(&0)).saturating_sub(read);
    }

    /// Whether a tensor is read once, under whichever name.
    pub fn is_one(&self, tensor: Id) -> bool {
        self.tensors.get(&tensor.0) == Some(&1)
    }
}
