//! The layer table and the memory plan that `--dry-run` prints.

use std::fmt::Write;

use backend::{Backend, Traffic};
use base::text::plural;
use net::{NetSpec, SpecError};

use super::estimate::{self, Layer};
use super::graph::Graph;

/// Returns one line per layer: name, kind, output shape, parameters, and millions of multiply-adds per image.
pub fn layers(net: &NetSpec) -> Result<String, SpecError> {
    with_last(net, None)
}

/// Like [`layers`], and also shows the implementation that computes each layer in training.
pub fn planned_layers<B: Backend>(graph: &Graph<B>) -> Result<String, SpecError> {
    with_last(graph.net(), Some(&|node| graph.implementation(node)))
}

/// Returns the layer table. If `by` is given, it computes an additional last column for each node.
fn with_last(net: &NetSpec, by: Option<&dyn Fn(usize) -> String>) -> Result<String, SpecError> {
    let layers = estimate::layers(net)?;
    let width = layers.iter().map(|layer| base::text::shown(&layer.name).chars().count()).max().unwrap_or(0).max(24);
    let head = ["layer", "kind", "output", "parameters", "MMAC"];
    let last = if by.is_some() { "  by" } else { "" };
    let mut text =
        format!("{:<width$} {:<16} {:>12} {:>11} {:>9}{last}\n", head[0], head[1], head[2], head[3], head[4]);
    for (node, Layer { name, kind, output, parameters, frozen, macs }) in layers.iter().enumerate() {
        let by = by.map_or_else(String::new, |by| format!("  {}", by(node)));
        let (shape, macs) = (output.to_string(), *macs as f64 / 1e6);
        let name = base::text::shown(name);
        let frozen = if *frozen { "  frozen" } else { "" };
        let _ = writeln!(text, "{name:<width$} {kind:<16} {shape:>12} {parameters:>11} {macs:>9.3}{by}{frozen}");
    }
    let params: usize = layers.iter().map(|layer| layer.parameters).sum();
    let macs: u64 = layers.iter().map(|layer| layer.macs).sum();
    let _ = writeln!(text, "{:<width$} {:<16} {:>12} {params:>11} {:>9.3}", "total", "", "", macs as f64 / 1e6);
    Ok(text)
}

/// Returns a table of this rank's memory. `slots` is the number of optimizer values per parameter, and `others` has
/// further rows (name and bytes).
pub fn memory<B: Backend>(graph: &Graph<B>, batch: usize, slots: usize, others: &[(&str, usize)]) -> String {
    let memory = graph.memory();
    let params: usize = graph.layout().buckets.iter().sum();
    let each = graph.backend().parameter_bytes();
    let mut rows = vec![
        (format!("activations, {}", plural(batch, "image")), memory.activation_elems * 4),
        ("gradients of activations (extra)".into(), (memory.elems - memory.activation_elems) * 4),
        (format!("parameters, {}", plural(graph.layout().buckets.len(), "bucket")), params * each),
        ("gradients of parameters".into(), params * each),
        (format!("gradients of workers, {} arenas", graph.gathered_arenas()), params * 4 * graph.gathered_arenas()),
        (format!("optimizer, {}", plural(slots, "slot")), params * 4 * slots),
        ("state of layers".into(), graph.state_bytes()),
    ];
    // with one worker per rank, there are no separate gradients of workers
    rows.retain(|(_, bytes)| *bytes > 0);
    rows.extend(others.iter().map(|(what, bytes)| (what.to_string(), *bytes)));
    let mut text = format!("{:<34} {:>10}\n", "memory of this rank", "MB");
    for (what, bytes) in &rows {
        let _ = writeln!(text, "{what:<34} {:>10.1}", *bytes as f64 / 1e6);
    }
    let sum: usize = rows.iter().map(|r| r.1).sum();
    let _ = writeln!(text, "{:<34} {:>10.1}", "total", sum as f64 / 1e6);
    text
}

/// Returns a table of the bytes that the kernels of a step read and write, by kind of operation. Empty if the backend
/// does not count them.
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
