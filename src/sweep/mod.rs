//! A sweep trains a recipe with every combination of some values. Each training is a separate process. A table shows
//! the results.

mod training;

use std::collections::BTreeSet;

use ::training::Error;
use base::text::printable;
use loaders::crc32c::crc32c;
use loaders::safe_create::LONGEST_NAME;
use report::history::{EvalLine, Run, State};
use serde_json::{Value, json};

pub use training::{Outcome, RESUME, Sweep};

/// Maximum number of characters that a value contributes to a folder name.
const LONGEST: usize = 40;

/// Keys of a recipe with the values to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid(Vec<(String, Vec<String>)>);

/// One combination of the values in the grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Name of the training's output folder. It does not depend on the other combinations in the grid.
    pub name: String,
    /// Keys and values, in the order of the grid.
    pub values: Vec<(String, String)>,
}

impl Point {
    /// Returns the values as arguments of `--set`.
    pub fn sets(&self) -> Vec<String> {
        self.values.iter().map(|(key, value)| format!("{key}={value}")).collect()
    }
}

impl Grid {
    /// Parses arguments of the form `KEY=V1,V2`.
    ///
    /// # Errors
    ///
    /// Returns an error if an argument has another form, or if a key occurs twice.
    pub fn parse(words: &[String]) -> Result<Self, Error> {
        let mut axes: Vec<(String, Vec<String>)> = Vec::new();
        for word in words {
            let wrong = |why: &str| Error::Usage(format!("--grid {word}: {why}; expected KEY=V1,V2"));
            let (key, text) = word.split_once('=').ok_or_else(|| wrong("no values"))?;
            let (key, values) = (key.trim().to_string(), split(text));
            if key.is_empty() || values.iter().any(String::is_empty) {
                return Err(wrong("a key or a value is empty"));
            }
            if values.iter().collect::<BTreeSet<_>>().len() < values.len() {
                return Err(wrong("a value occurs twice"));
            }
            if axes.iter().any(|(other, _)| *other == key) {
                return Err(wrong("an earlier --grid has the same key"));
            }
            axes.push((key, values));
        }
        Ok(Self(axes))
    }

    /// Returns the last part of each key, or the whole key if another key has the same last part.
    pub fn titles(&self) -> Vec<String> {
        let short = |key: &str| key.rsplit('.').next().unwrap_or(key).to_string();
        let alike = |name: &str| self.0.iter().filter(|(key, _)| short(key) == name).count() > 1;
        self.0.iter().map(|(key, _)| if alike(&short(key)) { key.clone() } else { short(key) }).collect()
    }

    /// Returns all combinations. The values of the last key change fastest.
    pub fn points(&self) -> Vec<Point> {
        let mut all: Vec<Vec<(String, String)>> = vec![Vec::new()];
        for (key, values) in &self.0 {
            let longer = |point: &Vec<(String, String)>| {
                let with = |value: &String| [point.clone(), vec![(key.clone(), value.clone())]].concat();
                values.iter().map(with).collect::<Vec<_>>()
            };
            all = all.iter().flat_map(longer).collect();
        }
        let titles = self.titles();
        let named = |values: Vec<(String, String)>| {
            let parts = titles.iter().zip(&values).map(|(title, (_, value))| format!("{title}={}", plain(value)));
            Point { name: shorten(parts.collect::<Vec<_>>().join(",")), values }
        };
        all.into_iter().map(named).collect()
    }
}

/// Splits a text at its commas, except inside brackets and quotes.
pub fn split(text: &str) -> Vec<String> {
    let (mut parts, mut depth, mut quoted) = (vec![String::new()], 0, false);
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            '[' | '(' | '{' if !quoted => depth += 1,
            ']' | ')' | '}' if !quoted => depth -= 1,
            _ => {}
        }
        match parts.last_mut() {
            Some(last) if c != ',' || depth > 0 || quoted => last.push(c),
            _ => parts.push(String::new()),
        }
    }
    parts.iter().map(|part| part.trim().to_string()).collect()
}

/// Converts a value to a part of a file name. If characters had to be replaced or cut off, a checksum of the value is
/// added, to distinguish similar values.
fn plain(value: &str) -> String {
    let harmless = |c: char| if c.is_ascii_alphanumeric() || "._+-".contains(c) { c } else { '_' };
    let text: String = value.chars().map(harmless).take(LONGEST).collect();
    if text == value { text } else { format!("{}_{:08x}", text.trim_matches('_'), crc32c(value.as_bytes())) }
}

/// Cuts a folder name that is too long and adds its checksum. All characters are ASCII, so each is a byte.
fn shorten(name: String) -> String {
    let checksum = format!("_{:08x}", crc32c(name.as_bytes()));
    match name.len() > LONGEST_NAME {
        true => name.chars().take(LONGEST_NAME - checksum.len()).chain(checksum.chars()).collect(),
        false => name,
    }
}

/// The current state of a training.
pub struct TrainingState {
    pub point: Point,
    /// How the training ended, if this process ran it.
    pub outcome: Option<Outcome>,
    /// The output folder of the training, if it has begun.
    pub run: Option<Run>,
}

/// Reads the current state of all trainings. `outcomes` are those of the first trainings, which this process ran.
pub fn read_states(sweep: &Sweep, points: &[Point], outcomes: &[Outcome]) -> Vec<TrainingState> {
    let outcome = |index: usize| outcomes.get(index).copied();
    let of = |(index, point): (usize, &Point)| {
        let run = Run::open_summary(&sweep.folder(point)).ok();
        TrainingState { point: point.clone(), outcome: outcome(index), run }
    };
    points.iter().enumerate().map(of).collect()
}

/// Returns a warning if the trainings have different numbers of workers, unless the grid sets `workers`. If the recipe does
/// not set this key, a training has as many workers as ranks at its first start.
pub fn warn_about_workers(all: &[TrainingState]) -> Option<String> {
    let others = all.iter().filter(|found| found.point.values.iter().all(|(key, _)| key != "workers"));
    let workers: BTreeSet<u64> =
        others.filter_map(|found| found.run.as_ref()?.recipe.get("workers")?.parse().ok()).collect();
    let numbers: Vec<String> = workers.iter().map(u64::to_string).collect();
    (numbers.len() > 1).then(|| {
        format!(
            "warning: the trainings have different numbers of workers ({}), so their results are not comparable. Without `workers`, a \
             training has as many as ranks at its first start. Start the sweep in another --out with --set workers=N",
            numbers.join(", ")
        )
    })
}

impl TrainingState {
    fn state(&self) -> &'static str {
        match (self.outcome, self.run.as_ref().map(Run::state)) {
            (Some(Outcome::Failed), _) => "failed",
            // its process has ended
            (Some(_), Some(State::Running)) => State::Stopped.word(),
            (_, Some(state)) => state.word(),
            (_, None) => "-",
        }
    }

    fn best(&self) -> Option<&EvalLine> {
        self.run.as_ref()?.log.best()
    }

    fn last(&self) -> Option<&EvalLine> {
        self.run.as_ref()?.log.evals.last()
    }
}

/// Formats a table with one line per training in the order of the grid, and a line with the best.
pub fn table(grid: &Grid, all: &[TrainingState]) -> String {
    let titles = ["state", "steps", "best top-1", "last top-1", "last loss", "training"].map(String::from);
    let header: Vec<String> = grid.titles().into_iter().chain(titles).collect();
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(all.iter().map(row)).collect();
    let scored = all.iter().filter_map(|found| Some((found, found.best()?)));
    let scored = scored.filter(|(_, eval)| eval.leading().is_finite());
    let best = scored.reduce(|best, next| if next.1.leading() > best.1.leading() { next } else { best });
    let best = best.map(|(found, eval)| {
        let name = if eval.has_several() || eval.has_numbers() { "" } else { "top-1 " };
        format!("best: {}, {name}{}", found.point.sets().join(" "), eval.leading_text())
    });
    std::iter::once(base::text::table(&rows)).chain(best).collect::<Vec<_>>().join("\n")
}

fn row(found: &TrainingState) -> Vec<String> {
    let of = |eval: Option<&EvalLine>, text: &dyn Fn(&EvalLine) -> String| eval.map_or("-".into(), text);
    let run = found.run.as_ref();
    let values = found.point.values.iter().map(|(_, value)| printable(value).to_string());
    let rest = [
        found.state().into(),
        run.map_or("-".into(), |run| run.log.step().to_string()),
        of(found.best(), &EvalLine::leading_text),
        of(found.last(), &EvalLine::leading_text),
        of(found.last(), &|eval| format!("{:.4}", eval.loss)),
        run.map_or("-".into(), |run| format!("{:.1} s", run.log.seconds_of_steps())),
    ];
    values.chain(rest).collect()
}

/// Returns a training as a JSON object.
pub fn object(sweep: &Sweep, found: &TrainingState) -> Value {
    let score = |eval: Option<&EvalLine>| eval.map(EvalLine::to_json);
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

    fn grid(words: &[&str]) -> Result<Grid, Error> {
        Grid::parse(&words.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn all_combinations_have_a_name() {
        let grid = grid(&["optimizer.kind=sgd,adamw", "schedule.base_lr=0.01, 0.1"]).unwrap();
        let names: Vec<String> = grid.points().into_iter().map(|point| point.name).collect();
        let expected =
            ["kind=sgd,base_lr=0.01", "kind=sgd,base_lr=0.1", "kind=adamw,base_lr=0.01", "kind=adamw,base_lr=0.1"];
        assert_eq!(names, expected);
        assert_eq!(grid.points()[3].sets(), ["optimizer.kind=adamw", "schedule.base_lr=0.1"]);
    }

    #[test]
    fn lists_stay_whole_and_names_harmless() {
        let grid =
            grid(&["augment.train=[\"flip\", \"normalize\"],[\"normalize\"]", "shuffle=\"full\",window(2)"]).unwrap();
        let points = grid.points();
        assert_eq!(points.len(), 4);
        assert_eq!(points[1].sets(), ["augment.train=[\"flip\", \"normalize\"]", "shuffle=window(2)"]);
        assert_eq!(points[1].name, "train=flip____normalize_1c962e06,shuffle=window_2_406049de");
        // Keys with the same last part give different names, and so do values that differ only in replaced characters.
        let alike = self::grid(&["optimizer.kind=sgd", "schedule.kind=step,cosine"]).unwrap();
        assert_eq!(alike.points()[0].name, "optimizer.kind=sgd,schedule.kind=step");
        let alike = self::grid(&["data=a/b,a_b"]).unwrap().points();
        assert_eq!([&alike[0].name, &alike[1].name], ["data=a_b_fb0b40a3", "data=a_b"]);
        // The name does not depend on the number and order of the other values.
        let others = self::grid(&["data=a_b,c,a/b"]).unwrap().points();
        assert_eq!([&others[2].name, &others[0].name], [&alike[0].name, &alike[1].name]);
    }

    #[test]
    fn a_folder_name_fits_into_a_file_system() {
        let axes: Vec<String> = (0..9).map(|axis| format!("a{axis}=[{0}1],[{0}2]", "x".repeat(30))).collect();
        let points = Grid::parse(&axes).unwrap().points();
        let names: BTreeSet<&String> = points.iter().map(|point| &point.name).collect();
        assert_eq!((points.len(), names.len()), (512, 512));
        assert!(names.iter().all(|name| name.len() == LONGEST_NAME && name.starts_with("a0=xxx")), "{names:?}");
    }

    #[test]
    fn invalid_grids_are_refused() {
        for words in [&["seed"][..], &["=1,2"], &["seed=1,,2"], &["seed=1,1"], &["seed=1", "seed=2"]] {
            assert!(grid(words).unwrap_err().to_string().contains("KEY=V1,V2"), "{words:?}");
        }
    }

    #[test]
    fn a_training_that_never_began_has_a_line() {
        let grid = Grid::parse(&["seed=1,2".into(), "schedule.base_lr=0.1".into()]).unwrap();
        let found = |point: Point| TrainingState { point, outcome: None, run: None };
        let all: Vec<TrainingState> = grid.points().into_iter().map(found).collect();
        let text = table(&grid, &all);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("seed  base_lr  state  steps  best top-1"), "{text}");
        assert_eq!(lines[2], "2     0.1      -      -      -           -           -          -");
        assert_eq!(lines.len(), 3, "nothing is best: {text}");
    }
}
