//! References to nodes that are not made yet: a cycle, or an order that does not fit.

use super::file::Entry;
use super::value::{Kind, Value};

/// Why the entry at `from` cannot read `name`, which stands later in the same list, at `to`.
pub(super) fn explain(entries: &[Entry], from: usize, to: usize) -> String {
    let (own, other) = (&entries[from], &entries[to]);
    match way(entries, to, from) {
        Some(way) => {
            let names: Vec<&str> = way.iter().map(|&at| entries[at].name.as_str()).collect();
            format!(
                "a cycle: it reads {}, which is made from it ({} -> {}); let it read what comes before it",
                other.name,
                names.join(" -> "),
                own.name
            )
        }
        None => format!("it reads {}, which comes later, in line {}; move that before it", other.name, other.line),
    }
}

/// The entries through which the output of `start` depends on that of `end`: `start` first, and `end` only where it is `start` itself.
fn way(entries: &[Entry], start: usize, end: usize) -> Option<Vec<usize>> {
    if start == end {
        return Some(vec![start]);
    }
    let mut before: Vec<Option<usize>> = vec![None; entries.len()];
    let mut open = vec![start];
    while let Some(at) = open.pop() {
        if at == end {
            let mut way = Vec::new();
            let mut step = before[end];
            while let Some(at) = step {
                way.push(at);
                step = if at == start { None } else { before[at] };
            }
            way.reverse();
            return Some(way);
        }
        for next in read_by(entries, at) {
            if next != start && before[next].is_none() {
                before[next] = Some(at);
                open.push(next);
            }
        }
    }
    None
}

/// The entries of the same list that an entry reads.
fn read_by(entries: &[Entry], at: usize) -> Vec<usize> {
    match entries[at].keys.get("inputs") {
        Some(Value { kind: Kind::List(inputs), .. }) => {
            let place = |input: &Value| entries.iter().position(|entry| input.text() == Ok(entry.name.as_str()));
            inputs.iter().filter_map(place).collect()
        }
        _ => at.checked_sub(1).into_iter().collect(),
    }
}
