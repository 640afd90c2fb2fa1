//! The table of what a run takes from a file, and whether it may start like that.

use formats::interop::Weights;
use loaders::printable;

use super::fit::{Fate, Fit, Row};
use crate::error::Error;

/// Fates in the order of the table, each with its words.
const WORDS: [(Fate, &str); 6] = [
    (Fate::Taken, "taken"),
    (Fate::Excluded, "excluded"),
    (Fate::Replaced, "replaced"),
    (Fate::Shape, "wrong shape"),
    (Fate::Missing, "missing"),
    (Fate::Left, "left"),
];

/// Names that a row of the short table lists.
const MOST: usize = 8;

/// One line a fate: how many tensors, and which.
pub fn short(fit: &Fit, weights: &Weights) -> Vec<String> {
    let head = format!("init       {} ({})", weights.path.display(), weights.format);
    std::iter::once(head).chain(rows(fit, weights).map(|row| format!("           {row}"))).collect()
}

/// The same without the file.
pub fn rows(fit: &Fit, weights: &Weights) -> impl Iterator<Item = String> {
    WORDS.iter().filter_map(|(fate, word)| {
        let rows: Vec<&Row> = fit.of(*fate).collect();
        let names = if *fate == Fate::Taken { String::new() } else { format!(": {}", listed(&rows, weights)) };
        let plural = if rows.len() == 1 { "" } else { "s" };
        (!rows.is_empty()).then(|| format!("{word}: {} tensor{plural}{names}", rows.len()))
    })
}

fn listed(rows: &[&Row], weights: &Weights) -> String {
    let one = |row: &&Row| format!("{}{}", printable(&row.name), shapes(row, weights));
    let more = if rows.len() > MOST { format!(" and {} more", rows.len() - MOST) } else { String::new() };
    format!("{}{more}", rows.iter().take(MOST).map(one).collect::<Vec<_>>().join(", "))
}

/// The shapes of both sides, where that tells something.
fn shapes(row: &Row, weights: &Weights) -> String {
    let found = row.found.map(|index| &weights.tensors[index].1);
    match (row.fate, &row.shape, found) {
        (Fate::Shape | Fate::Replaced, Some(own), Some(found)) => format!(" ({own:?} here, {found:?} in the file)"),
        _ => String::new(),
    }
}

/// One line a tensor, for `--dry-run`.
pub fn whole(fit: &Fit, weights: &Weights) -> String {
    let mut text =
        format!("{:<44} {:<12} {:<20} in {} ({})\n", "tensor", "init", "shape", weights.path.display(), weights.format);
    for row in &fit.rows {
        let word = WORDS.iter().find(|(fate, _)| *fate == row.fate).map_or("", |(_, word)| word);
        let shape = row.shape.as_ref().map_or("-".into(), |shape| format!("{shape:?}"));
        let file = row.found.map_or("-".into(), |index| {
            let (name, shape, _) = &weights.tensors[index];
            format!("{} {shape:?}", printable(name))
        });
        text += &format!("{:<44} {word:<12} {shape:<20} {file}\n", printable(&row.name).to_string());
    }
    text
}

/// Refuses what `strict` does not allow.
pub fn check(fit: &Fit, weights: &Weights, strict: bool) -> Result<(), Error> {
    let odd = [Fate::Shape, Fate::Missing, Fate::Left].into_iter().any(|fate| fit.of(fate).next().is_some());
    if !strict || !odd {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "the weights of {} do not fit the network: {}. Name what shall start at random in init.exclude, map names by init.match, or allow \
         all of it by init.strict = false",
        weights.path.display(),
        rows(fit, weights).collect::<Vec<_>>().join("; ")
    )))
}
