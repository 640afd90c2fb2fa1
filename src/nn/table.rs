//! The layer table and the memory plan, as `--dry-run` prints them.

use std::fmt::Write;

use super::graph::Graph;
use crate::backend::{Backend, Traffic};

/// One line per layer: name, kind, output shape, parameters, millions of multiply-adds of one image.
pub fn layers<B: Backend>(graph: &Graph<B>) -> String {
    let (net, shapes) = (graph.net(), graph.shapes());
    let mut text = format!("{:<24} {:<9} {:>12} {:>11} {:>9}\n", "layer", "kind", "output", "parameters", "MMAC");
    let (mut params, mut macs) = (0, 0);
    for (i, node) in net.nodes.iter().enumerate() {
        let own: usize = graph.params().iter().filter(|p| p.node == i).map(|p| p.spec.elems()).sum();
        let cost = node.op.macs(shapes[node.inputs[0].0]);
        let shape = shapes[i + 1].to_string();
        let kind = node.op.kind();
        let trained = graph.params().iter().any(|p| p.node == i && !net.frozen.contains(&p.name));
        let frozen = if own > 0 && !trained { "  frozen" } else { "" };
        let _ = writeln!(text, "{:<24} {kind:<9} {shape:>12} {own:>11} {:>9.3}{frozen}", node.name, cost as f64 / 1e6);
        (params, macs) = (params + own, macs + cost);
    }
    let _ = writeln!(text, "{:<24} {:<9} {:>12} {params:>11} {:>9.3}", "total", "", "", macs as f64 / 1e6);
    text
}

/// Where this rank's memory goes. `slots` is the number of optimizer values per parameter.
pub fn memory<B: Backend>(graph: &Graph<B>, batch: usize, slots: usize, others: &[(&str, usize)]) -> String {
    let memory = graph.memory();
    let total: usize = memory.buffers.iter().sum();
    let params: usize = graph.layout().chunks.iter().sum();
    let each = graph.backend().parameter_bytes();
    let mut rows = vec![
        (format!("activations, {batch} images"), memory.activation_elems * 4),
        ("gradients of activations".into(), (total - memory.activation_elems) * 4),
        (format!("parameters, {} chunks", graph.layout().chunks.len()), params * each),
        ("gradients of parameters".into(), params * each),
        (format!("gradients of workers, {} arenas", graph.gathered_arenas()), params * 4 * graph.gathered_arenas()),
        (format!("optimizer, {slots} slot(s)"), params * 4 * slots),
        ("state of layers".into(), graph.state_bytes()),
    ];
    rows.extend(others.iter().map(|(what, bytes)| (what.to_string(), *bytes)));
    let mut text = format!("{:<34} {:>10}\n", "memory of this rank", "MB");
    for (what, bytes) in &rows {
        let _ = writeln!(text, "{what:<34} {:>10.1}", *bytes as f64 / 1e6);
    }
    let sum: usize = rows.iter().map(|r| r.1).sum();
    let _ = writeln!(text, "{:<34} {:>10.1}", "total", sum as f64 / 1e6);
    text
}

/// Bytes that the kernels of a step read and write, by kind of operation; empty where the backend does not count them.
pub fn traffic<B: Backend>(graph: &Graph<B>) -> String {
    let shares = graph.traffic();
    if shares.is_empty() {
        return String::new();
    }
    let mut text = format!("{:<34} {:>10} {:>10}\n", "memory traffic of a pass, MB", "forward", "backward");
    let mut row = |what: &str, forward: usize, backward: usize| {
        let _ = writeln!(text, "{what:<34} {:>10.1} {:>10.1}", forward as f64 / 1e6, backward as f64 / 1e6);
    };
    shares.iter().for_each(|share| row(share.kind, share.traffic.forward, share.traffic.backward));
    let total = |of: fn(&Traffic) -> usize| shares.iter().map(|share| of(&share.traffic)).sum();
    row("total", total(|t| t.forward), total(|t| t.backward));
    text.push('\n');
    text
}
