//! What came of the trainings of a sweep, as a table and as JSON.

use loaders::printable;
use report::history::{EvalLine, Run, State};
use serde_json::{Value, json};

use super::grid::{Grid, Point};
use super::training::{Outcome, Sweep};

/// A training as it stands.
pub struct Found {
    /// Its values.
    pub point: Point,
    /// How it ended, if it was tried just now.
    pub outcome: Option<Outcome>,
    /// What it left, if it began.
    pub run: Option<Run>,
}

/// The trainings as they stand; `outcomes` are those of the first ones.
pub fn found(sweep: &Sweep, points: &[Point], outcomes: &[Outcome]) -> Vec<Found> {
    let outcome = |index: usize| outcomes.get(index).copied();
    let of = |(index, point): (usize, &Point)| {
        let run = Run::open(&sweep.folder(point)).ok();
        Found { point: point.clone(), outcome: outcome(index), run }
    };
    points.iter().enumerate().map(of).collect()
}

impl Found {
    fn state(&self) -> String {
        let run = self.run.as_ref();
        match (self.outcome, run.map(Run::state)) {
            (Some(Outcome::Failed), _) => "failed".into(),
            (_, Some(State::Done)) => "done".into(),
            (None, Some(State::Running)) => "running".into(),
            (_, Some(_)) => "stopped".into(),
            (_, None) => "-".into(),
        }
    }

    fn best(&self) -> Option<&EvalLine> {
        self.run.as_ref()?.log.best()
    }

    fn last(&self) -> Option<&EvalLine> {
        self.run.as_ref()?.log.evals.last()
    }
}

/// A line a training in the order of the grid, and one that names the best.
pub fn table(grid: &Grid, all: &[Found]) -> String {
    let titles = ["state", "steps", "best top-1", "last top-1", "last loss", "training"].map(String::from);
    let header: Vec<String> = grid.titles().into_iter().chain(titles).collect();
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(all.iter().map(row)).collect();
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    let scored = all.iter().filter_map(|found| Some((found, found.best()?)));
    let best = scored.reduce(|best, next| if next.1.leading() > best.1.leading() { next } else { best });
    let best = best.map(|(found, eval)| {
        let name = if eval.has_several() { "" } else { "top-1 " };
        format!("best: {}, {name}{}", found.point.sets().join(" "), eval.leading_text())
    });
    rows.iter().map(line).chain(best).collect::<Vec<_>>().join("\n")
}

fn row(found: &Found) -> Vec<String> {
    let of = |eval: Option<&EvalLine>, text: &dyn Fn(&EvalLine) -> String| eval.map_or("-".into(), text);
    let run = found.run.as_ref();
    let values = found.point.values.iter().map(|(_, value)| printable(value).to_string());
    let rest = [
        found.state(),
        run.map_or("-".into(), |run| run.log.step().to_string()),
        of(found.best(), &EvalLine::leading_text),
        of(found.last(), &EvalLine::leading_text),
        of(found.last(), &|eval| format!("{:.4}", eval.loss)),
        run.map_or("-".into(), |run| format!("{:.1} s", run.log.seconds_of_steps())),
    ];
    values.chain(rest).collect()
}

/// A training as a JSON object.
pub fn object(sweep: &Sweep, found: &Found) -> Value {
    let score = |eval: Option<&EvalLine>| {
        eval.map(
            |e| json!({"step": e.step, "split": e.split, "top1": e.top1, "top5": e.top5, "loss": e.loss, "map": e.map}),
        )
    };
    let set: serde_json::Map<String, Value> =
        found.point.values.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect();
    let run = found.run.as_ref();
    json!({
        "run": sweep.folder(&found.point).to_string_lossy(), "set": set, "state": found.state(),
        "step": run.map(|run| run.log.step()), "best": score(found.best()), "last": score(found.last()),
        "training_seconds": run.map(|run| run.log.seconds_of_steps()),
        "digest": run.and_then(|run| run.log.end.as_ref()).map(|end| &end.digest),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_training_that_never_began_has_a_line() {
        let grid = Grid::parse(&["seed=1,2".into(), "schedule.base_lr=0.1".into()]).unwrap();
        let found = |point: Point| Found { point, outcome: None, run: None };
        let all: Vec<Found> = grid.points().into_iter().map(found).collect();
        let text = table(&grid, &all);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("seed  base_lr  state  steps  best top-1"), "{text}");
        assert_eq!(lines[2], "2     0.1      -      -      -           -           -          -");
        assert_eq!(lines.len(), 3, "nothing is best: {text}");
    }
}
