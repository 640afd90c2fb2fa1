//! `trireme diff`: in what two runs differ.

use std::path::PathBuf;

use base::screen;
use loaders::printable;
use report::history::{Differing, EvalLine, Parting, Run, compare};

use super::exit::Failure;
use super::output::print;

/// Arguments of `trireme diff`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  trireme diff runs/r20 runs/r20-cosine")]
pub struct Args {
    /// Output folder of a run
    #[arg(value_name = "RUN")]
    pub first: PathBuf,
    /// That of another
    #[arg(value_name = "RUN")]
    pub second: PathBuf,
    /// Print one JSON object to stdout
    #[arg(long)]
    pub json: bool,
}

/// Compares recipes, circumstances, losses and scores.
pub fn run(args: &Args) -> Result<(), Failure> {
    let [first, second] = [&args.first, &args.second].map(|path| Run::open(path).map_err(Failure::failed));
    let (first, second) = (first?, second?);
    first.warnings().iter().chain(&second.warnings()).for_each(|warning| screen::say(warning));
    let keys = compare(&first.recipe, &second.recipe);
    let facts = compare(&first.circumstances(), &second.circumstances());
    let parting = Parting::of(&first.log, &second.log);
    if args.json {
        return print(object(&first, &second, &keys, &facts, parting));
    }
    let mut lines = vec![format!("a  {}", first.folder.display()), format!("b  {}", second.folder.display())];
    lines.extend(section("recipe", &keys));
    lines.extend(section("circumstances", &facts));
    lines.push(String::new());
    lines.push(losses(parting));
    lines.push(format!("scores: a {}; b {}", score(first.log.evals.last()), score(second.log.evals.last())));
    print(lines.join("\n"))
}

fn section(name: &str, rows: &[Differing]) -> Vec<String> {
    if rows.is_empty() {
        return vec![String::new(), format!("{name}: the same")];
    }
    let value =
        |value: &Option<String>| value.as_deref().map_or("(not given)".into(), |text| printable(text).to_string());
    let pair = |row: &Differing| {
        [
            format!("  {}", printable(&row.key)),
            format!("    a  {}", value(&row.first)),
            format!("    b  {}", value(&row.second)),
        ]
    };
    [String::new(), format!("{name}:")].into_iter().chain(rows.iter().flat_map(pair)).collect()
}

fn losses(parting: Parting) -> String {
    match parting {
        Parting { shared: 0, .. } => "losses: no step stands in both logs".into(),
        Parting { shared, apart: None, .. } => {
            format!("losses: the same number in all {shared} steps that both logged")
        }
        Parting { apart: Some(apart), far: None, .. } => {
            format!("losses: the same number before step {apart}, within 1 % ever after")
        }
        Parting { apart: Some(apart), far: Some(far), .. } => {
            format!("losses: the same number before step {apart}, within 1 % before step {far}")
        }
    }
}

fn score(eval: Option<&EvalLine>) -> String {
    eval.map_or("none".into(), |e| {
        let map = if e.has_several() { format!("{}, ", e.leading_text()) } else { String::new() };
        let top1 = format!("{map}top-1 {:.2} %", 100.0 * e.top1);
        format!("{top1}, loss {:.4} on {} at step {}", e.loss, printable(&e.split), e.step)
    })
}

fn object(first: &Run, second: &Run, keys: &[Differing], facts: &[Differing], parting: Parting) -> serde_json::Value {
    let rows = |rows: &[Differing]| {
        let row = |row: &Differing| (row.key.clone(), serde_json::json!([row.first, row.second]));
        rows.iter().map(row).collect::<serde_json::Map<_, _>>()
    };
    let score = |run: &Run| {
        run.log.evals.last().map(|e| serde_json::json!({"step": e.step, "top1": e.top1, "loss": e.loss, "map": e.map}))
    };
    serde_json::json!({
        "a": first.folder.to_string_lossy(), "b": second.folder.to_string_lossy(), "recipe": rows(keys), "circumstances": rows(facts),
        "steps_in_both": parting.shared, "losses_differ_from": parting.apart, "losses_differ_by_1_percent_from": parting.far,
        "scores": [score(first), score(second)],
    })
}
