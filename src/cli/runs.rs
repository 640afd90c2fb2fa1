//! `trireme runs`: the runs below a folder.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use base::screen;
use loaders::printable;
use report::history;
use report::history::{Run, State};

use super::exit::Failure;
use super::output::print;

/// Arguments of `trireme runs`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Example:
  trireme runs
  trireme runs /scratch/runs --json")]
pub struct Args {
    /// Folder with folders of runs in it
    #[arg(value_name = "DIR", default_value = "runs")]
    pub dir: PathBuf,
    /// Order of the runs: name, date (most recently changed last) or best (best score last)
    #[arg(long, value_name = "ORDER", value_enum, default_value = "name")]
    pub sort: Order,
    /// Print one JSON object a run to stdout
    #[arg(long)]
    pub json: bool,
}

/// The sort order of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Order {
    /// By folder name.
    Name,
    /// By the time of the last write.
    Date,
    /// By best score.
    Best,
}

const HEADER: [&str; 9] = ["run", "network", "state", "best", "last", "training", "ranks", "changed (UTC)", "digest"];

/// Lists them, one a line; those that cannot be read are named and make it fail.
pub fn run(args: &Args) -> Result<(), Failure> {
    let (mut runs, mut failures) = (Vec::new(), Vec::new());
    let find = |error| Failure::failed(format!("{error}; name the folder where your runs lie"));
    for folder in history::find(&args.dir).map_err(find)? {
        match Run::open(&folder) {
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
            let best = |run: &Run| run.log.best().map_or(f64::NEG_INFINITY, history::EvalLine::leading);
            runs.sort_by(|a, b| best(a).total_cmp(&best(b)));
        }
    }
    if runs.is_empty() && failures.is_empty() {
        let dir = args.dir.display();
        return Err(Failure::failed(format!("{dir}: no folder with a metrics.jsonl in it; name where your runs lie")));
    }
    if args.json {
        runs.iter().try_for_each(|run| print(object(run)))?;
    } else {
        let rows: Vec<[String; 9]> = runs.iter().map(|run| row(&args.dir, run)).collect();
        print(aligned(&rows))?;
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::failed(failures.join("\n"))) }
}

fn object(run: &Run) -> serde_json::Value {
    let start = run.log.starts.last();
    let score = |eval: Option<&history::EvalLine>| {
        eval.map(
            |e| serde_json::json!({"step": e.step, "split": e.split, "top1": e.top1, "top5": e.top5, "loss": e.loss, "map": e.map}),
        )
    };
    let changed = run.changed.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    serde_json::json!({
        "run": run.folder.to_string_lossy(), "network": start.map(|s| &s.model), "state": word(run.state()),
        "step": run.log.step(), "last_step": run.last_step(), "best": score(run.log.best()), "last": score(run.log.evals.last()),
        "at_end": score(run.log.at_end.iter().rfind(|eval| !eval.ema)),
        "training_seconds": run.log.seconds_of_steps(), "ranks": start.map(|s| s.ranks), "changed": changed,
        "digest": run.log.end.as_ref().map(|end| &end.digest), "recipe": run.recipe,
    })
}

fn word(state: State) -> &'static str {
    match state {
        State::Done => "done",
        State::Running => "running",
        State::Diverged => "diverged",
        State::Stopped => "stopped",
    }
}

fn row(root: &Path, run: &Run) -> [String; 9] {
    let start = run.log.starts.last();
    let name = run.folder.strip_prefix(root).ok().filter(|path| !path.as_os_str().is_empty()).unwrap_or(&run.folder);
    let state = match run.state() {
        State::Done => "done".to_string(),
        state => format!("{}, step {} of {}", word(state), run.log.step(), run.last_step()),
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

/// Formats a time as `2026-11-27 19:40`.
fn date(at: SystemTime) -> String {
    let text = humantime::format_rfc3339_seconds(at).to_string();
    text.get(..16).map_or(String::new(), |minutes| minutes.replace('T', " "))
}

/// `2 h 05 min`, `3 min 07 s`, `9.1 s`.
fn duration(seconds: f64) -> String {
    match seconds {
        s if s >= 3600.0 => format!("{} h {:02} min", (s / 3600.0) as u64, (s / 60.0) as u64 % 60),
        s if s >= 60.0 => format!("{} min {:02} s", (s / 60.0) as u64, s as u64 % 60),
        s => format!("{s:.1} s"),
    }
}

/// A table with its header, columns as wide as they must be.
fn aligned(rows: &[[String; 9]]) -> String {
    let header = HEADER.map(String::from);
    let all: Vec<&[String; 9]> = std::iter::once(&header).chain(rows).collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEADER.len()).map(width).collect();
    let line = |row: &&[String; 9]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    all.iter().map(line).collect::<Vec<_>>().join("\n")
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

    #[test]
    fn columns_stand_below_each_other() {
        let row =
            |name: &str| [name, "lenet", "done", "9 %", "9 %", "1 s", "2", "2026-11-27 17:00", "ab"].map(String::from);
        let text = aligned(&[row("a"), row("a-long-name")]);
        let columns: Vec<Option<usize>> =
            text.lines().map(|line| line.find("lenet").or(line.find("network"))).collect();
        assert_eq!(columns, [Some(13); 3], "{text}");
    }
}
