//! Nodes stand in the order in which they run; what does not is a cycle, or a file that another program has mixed up.

use std::collections::BTreeMap;

use super::graph::Graph;

/// Fails for a value that two nodes make, a node that reads what it makes, and one that reads what comes later.
pub(super) fn check(graph: &Graph<'_>) -> Result<(), String> {
    let mut makers: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, node) in graph.nodes.iter().enumerate() {
        for output in node.outputs.iter().filter(|name| !name.is_empty()) {
            if let Some(other) = makers.insert(output, at) {
                return Err(format!("nodes {} and {} both make {output}", graph.nodes[other].label(), node.label()));
            }
        }
    }
    for (at, node) in graph.nodes.iter().enumerate() {
        for input in &node.inputs {
            if let Some(maker) = makers.get(input).filter(|maker| **maker >= at) {
                return Err(why(graph, &makers, at, *maker));
            }
        }
    }
    Ok(())
}

/// A cycle from `from` through `to` back, or an order that does not fit.
fn why(graph: &Graph<'_>, makers: &BTreeMap<&str, usize>, from: usize, to: usize) -> String {
    let mut before: BTreeMap<usize, usize> = BTreeMap::new();
    let mut open = vec![to];
    while let Some(at) = open.pop() {
        if at == from {
            let mut way = vec![from];
            let mut step = from;
            while step != to {
                step = before[&step];
                way.push(step);
            }
            way.reverse();
            let names: Vec<&str> = [from].iter().chain(&way).map(|at| graph.nodes[*at].label()).collect();
            return format!("a cycle of nodes, each of which reads the next: {}", names.join(" -> "));
        }
        for next in graph.nodes[at].inputs.iter().filter_map(|input| makers.get(input)) {
            if *next != to && !before.contains_key(next) {
                before.insert(*next, at);
                open.push(*next);
            }
        }
    }
    let (own, other) = (graph.nodes[from].label(), graph.nodes[to].label());
    format!("node {own} reads what node {other} makes, which comes later; sort the nodes, as onnx.checker wants them")
}
