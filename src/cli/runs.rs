//! `trireme runs` lists the runs below a folder, `trireme diff` shows how two runs differ, and `trireme report` writes
//! a page about runs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base::screen;
use base::text::{printable, table, with_advice};
use loaders::overwrite;
use report::history::{EvalLine, KeyDifference, LossComparison, Run, State, compare};
use report::{history, page};

use super::output::{Failure, print};
use super::value::positive;

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  trireme runs
  trireme runs /scratch/runs --json")]
pub struct Args {
    /// Folder that contains the output folders of runs
    #[arg(value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
    /// Order of the runs: name, date (most recently changed last) or best (best score last)
    #[arg(long, value_name = "ORDER", value_enum, default_value = "name")]
    pub sort: Order,
    /// Print one JSON object per run to stdout
    #[arg(long)]
    pub json: bool,
}

/// The sort order of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Order {
    /// By folder name.
    Name,
    /// By the time of the last write to the log.
    Date,
    /// By best score.
    Best,
}

const HEADER: [&str; 9] = ["run", "network", "state", "best", "last", "training", "ranks", "changed (UTC)", "digest"];

/// Lists the runs, one per line. Returns an error that names the runs that cannot be read.
pub fn run(args: &Args) -> Result<(), Failure> {
    let (mut runs, mut failures) = (Vec::new(), Vec::new());
    let find = |error: history::Error| {
        Failure::failed(with_advice(&error.to_string(), "give the folder that contains your runs"))
    };
    for folder in history::find(&args.dir).map_err(find)? {
        match Run::open_summary(&folder) {
            Ok(run) => {
                run.warnings().iter().for_each(|warning| screen::say(warning));
                runs.push(run);
            }
            Err(error) => failures.push(error.to_string()),
        }
    }
    match args.sort {
        Order::Name => {}
        Order::Date => runs.sort_by_key(|run| run.changed),
        Order::Best => {
            let best = |run: &Run| {
                let score = run.log.best().map(history::EvalLine::leading);
                score.filter(|score| score.is_finite()).unwrap_or(f64::NEG_INFINITY)
            };
            runs.sort_by(|a, b| best(a).total_cmp(&best(b)));
        }
    }
    if runs.is_empty() && failures.is_empty() {
        let dir = args.dir.display();
        return Err(Failure::failed(format!(
            "{dir}: no folder in it has a metrics.jsonl; give the folder that contains your runs"
        )));
    }
    if args.json {
        runs.iter().try_for_each(|run| print(object(run)))?;
    } else {
        let rows = runs.iter().map(|run| row(&args.dir, run));
        print(table(&std::iter::once(HEADER.map(String::from)).chain(rows).collect::<Vec<_>>()))?;
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::failed(failures.join("\n"))) }
}

/// Opens a run that the command line names.
fn open(folder: &Path) -> Result<Run, Failure> {
    Run::open(folder).map_err(|error| match error {
        history::Error::Read { .. } => {
            Failure::failed(with_advice(&error.to_string(), "give the output folder of a run"))
        }
        error @ history::Error::NoRun(_) => Failure::failed(error),
    })
}

fn object(run: &Run) -> serde_json::Value {
    let start = run.log.starts.last();
    let score = |eval: Option<&EvalLine>| eval.map(EvalLine::to_json);
    let changed = run.changed.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    serde_json::json!({
        "run": run.folder.to_string_lossy(), "network": start.map(|s| &s.model), "state": run.state().word(),
        "step": run.log.step(), "last_step": run.last_step(), "best": score(run.log.best()), "last": score(run.log.evals.last()),
        "at_end": score(run.log.at_end.iter().rfind(|eval| !eval.ema)),
        "training_seconds": run.log.seconds_of_steps(), "ranks": start.map(|s| s.ranks), "changed": changed,
        "digest": run.log.end.as_ref().map(|end| &end.digest), "recipe": run.recipe,
    })
}

fn row(root: &Path, run: &Run) -> [String; 9] {
    let start = run.log.starts.last();
    let name = run.folder.strip_prefix(root).ok().filter(|path| !path.as_os_str().is_empty()).unwrap_or(&run.folder);
    let state = match run.state() {
        State::Done => State::Done.word().to_string(),
        state => format!("{}, step {} of {}", state.word(), run.log.step(), run.last_step()),
    };
    let score = |eval: Option<&history::EvalLine>| eval.map_or("-".into(), history::EvalLine::leading_text);
    let digest = run.log.end.as_ref().map_or("-", |end| end.digest.as_str());
    [
        printable(&name.to_string_lossy()).to_string(),
        start.map_or("-".into(), |s| printable(&s.model).to_string()),
        state,
        score(run.log.best()),
        score(run.log.evals.last()),
        duration(run.log.seconds_of_steps()),
        start.map_or("-".into(), |s| s.ranks.to_string()),
        date(run.changed),
        printable(digest).to_string(),
    ]
}

/// Formats a time as `2026-11-27 19:40`, or as `-` if a file system reports one outside the years 1970 to 9999.
fn date(at: SystemTime) -> String {
    const LAST: Duration = Duration::from_secs(253_402_300_799);
    if at.duration_since(SystemTime::UNIX_EPOCH).map_or(true, |since| since > LAST) {
        return "-".into();
    }
    let text = humantime::format_rfc3339_seconds(at).to_string();
    text.get(..16).map_or(String::new(), |minutes| minutes.replace('T', " "))
}

/// Formats a duration like `2 h 05 min`, `3 min 07 s` or `9.1 s`.
fn duration(seconds: f64) -> String {
    match seconds {
        s if s >= 3600.0 => format!("{} h {:02} min", (s / 3600.0) as u64, (s / 60.0) as u64 % 60),
        s if s >= 60.0 => format!("{} min {:02} s", (s / 60.0) as u64, s as u64 % 60),
        s => format!("{s:.1} s"),
    }
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  trireme diff runs/r20 runs/r20-cosine")]
pub struct DiffArgs {
    /// Output folder of the first run
    #[arg(value_name = "RUN")]
    pub first: PathBuf,
    /// Output folder of the second run
    #[arg(value_name = "RUN")]
    pub second: PathBuf,
    /// Print one JSON object to stdout
    #[arg(long)]
    pub json: bool,
}

/// Compares the recipes, circumstances, losses and scores of two runs.
pub fn diff(args: &DiffArgs) -> Result<(), Failure> {
    let [first, second] = [&args.first, &args.second].map(|path| open(path));
    let (first, second) = (first?, second?);
    first.warnings().iter().chain(&second.warnings()).for_each(|warning| screen::say(warning));
    let keys = compare(&first.recipe, &second.recipe);
    let facts = compare(&first.circumstances(), &second.circumstances());
    let comparison = LossComparison::of(&first.log, &second.log);
    if args.json {
        return print(diff_object(&first, &second, &keys, &facts, comparison));
    }
    let mut lines = vec![format!("a  {}", first.folder.display()), format!("b  {}", second.folder.display())];
    lines.extend(section("recipe", &keys));
    lines.extend(section("circumstances", &facts));
    lines.push(String::new());
    lines.push(losses(comparison));
    lines.push(format!("scores: a {}; b {}", score(first.log.evals.last()), score(second.log.evals.last())));
    print(lines.join("\n"))
}

fn section(name: &str, rows: &[KeyDifference]) -> Vec<String> {
    if rows.is_empty() {
        return vec![String::new(), format!("{name}: the same")];
    }
    let value =
        |value: &Option<String>| value.as_deref().map_or("(not given)".into(), |text| printable(text).to_string());
    let pair = |row: &KeyDifference| {
        [
            format!("  {}", printable(&row.key)),
            format!("    a  {}", value(&row.first)),
            format!("    b  {}", value(&row.second)),
        ]
    };
    [String::new(), format!("{name}:")].into_iter().chain(rows.iter().flat_map(pair)).collect()
}

fn losses(comparison: LossComparison) -> String {
    match comparison {
        LossComparison { shared: 0, .. } => "losses: no step is in both logs".into(),
        LossComparison { shared, first_difference: None, .. } => {
            format!("losses: identical in all {shared} steps that are in both logs")
        }
        LossComparison { first_difference: Some(first_difference), first_large_difference: None, .. } => {
            format!("losses: identical before step {first_difference}, within 1 % afterwards")
        }
        LossComparison {
            first_difference: Some(first_difference),
            first_large_difference: Some(first_large_difference),
            ..
        } => {
            format!("losses: identical before step {first_difference}, within 1 % before step {first_large_difference}")
        }
    }
}

fn score(eval: Option<&EvalLine>) -> String {
    eval.map_or("none".into(), |e| {
        if e.has_numbers() {
            let (split, step) = (printable(&e.split), e.step);
            return format!("{}, loss {:.4} on {split} at step {step}", e.leading_text(), e.loss);
        }
        let map = if e.has_several() { format!("{}, ", e.leading_text()) } else { String::new() };
        let top1 = format!("{map}top-1 {:.2} %", 100.0 * e.top1);
        format!("{top1}, loss {:.4} on {} at step {}", e.loss, printable(&e.split), e.step)
    })
}

fn diff_object(
    first: &Run,
    second: &Run,
    keys: &[KeyDifference],
    facts: &[KeyDifference],
    comparison: LossComparison,
) -> serde_json::Value {
    let rows = |rows: &[KeyDifference]| {
        let row = |row: &KeyDifference| (row.key.clone(), serde_json::json!([row.first, row.second]));
        rows.iter().map(row).collect::<serde_json::Map<_, _>>()
    };
    let score = |run: &Run| {
        run.log
            .evals
            .last()
            .map(|e| serde_json::json!({"step": e.step, "top1": e.top1, "loss": e.loss, "map": e.map, "r2": e.r2}))
    };
    serde_json::json!({
        "a": first.folder.to_string_lossy(), "b": second.folder.to_string_lossy(), "recipe": rows(keys), "circumstances": rows(facts),
        "steps_in_both": comparison.shared, "losses_differ_from": comparison.first_difference,
        "losses_differ_by_1_percent_from": comparison.first_large_difference,
        "scores": [score(first), score(second)],
    })
}

/// Seconds between two updates of the page.
const EVERY: u32 = 10;

#[derive(Clone, Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Example:
  trireme report runs/r20
  trireme report runs/r20 runs/r20-cosine -o compare.html
  trireme report runs/r20 --follow"
)]
pub struct ReportArgs {
    /// Output folders of runs. More than one are compared
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// File to write [default: report.html in the folder of the first run]
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Update the page every ten seconds until all runs have ended. The browser reloads it from disk
    #[arg(long)]
    pub follow: bool,
    /// With --follow: seconds between two updates [default: 10]
    #[arg(long, value_name = "SECONDS", requires = "follow", value_parser = positive)]
    pub every: Option<usize>,
}

/// Writes the page once, or with `--follow` repeatedly until no run is running anymore.
pub fn report(args: &ReportArgs) -> Result<(), Failure> {
    let out = args.out.clone().unwrap_or_else(|| args.runs[0].join(page::NAME));
    // Open the runs first, because these errors are clearer than an error about the output file.
    args.runs.iter().try_for_each(|folder| open(folder).map(drop))?;
    overwrite::check(&out, &page::PAGE, &[]).map_err(Failure::usage)?;
    let every = args.every.map_or(EVERY, |seconds| u32::try_from(seconds).unwrap_or(u32::MAX));
    let mut said = BTreeSet::new();
    loop {
        let runs: Result<Vec<Run>, _> = args.runs.iter().map(|folder| Run::open(folder)).collect();
        let runs = runs.map_err(Failure::failed)?;
        let warnings = runs.iter().flat_map(Run::warnings).filter(|warning| said.insert(warning.clone()));
        warnings.for_each(|warning| screen::say(&warning));
        let goes_on = args.follow && runs.iter().any(|run| run.state() == State::Running);
        let text = page::render(&runs, goes_on.then_some(every), recipe::keys::is_default);
        loaders::replace::replace(&out, text.as_bytes()).map_err(Failure::failed)?;
        if !goes_on {
            return print(out.display());
        }
        std::thread::sleep(Duration::from_secs(u64::from(every)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_words() {
        let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_795_808_400);
        assert_eq!(date(at), "2026-11-27 19:40");
        assert_eq!([duration(9.06), duration(187.0), duration(7500.0)], ["9.1 s", "3 min 07 s", "2 h 05 min"]);
    }
}
