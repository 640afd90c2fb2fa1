//! `trireme sweep`: its arguments.

use std::path::{Path, PathBuf};

use base::screen;
use clap::Parser;
use recipe::Changes;

use super::output::{FAILED, Failure, RESUMABLE, print};
use super::value::natural;
use super::{Cli, Command};
use crate::sweep::{Grid, Outcome, Point, RESUME, Sweep, object, read_states, table, warn_about_workers};

#[derive(Clone, Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Example:
  trireme sweep recipes/fashion-mnist-lenet.toml \\
      --grid optimizer.kind=sgd,adamw --grid schedule.base_lr=0.001,0.01
  trireme sweep recipes/cifar10-resnet20.toml --grid seed=1,2,3 \\
      --out runs/seeds -- --max-steps 5000
  trireme sweep recipes/cifar10-resnet20.toml --grid seed=1,2,3 \\
      --out runs/seeds --table --json

To continue a sweep, run the same command again: finished trainings are skipped, stopped ones are resumed. Exit codes: 75 if it was \
stopped, 1 if a training failed."
)]
pub struct Args {
    /// Recipe
    pub recipe: PathBuf,
    /// Key of the recipe with the values to try, such as schedule.base_lr=0.01,0.1. Repeat the option to try every
    /// combination
    #[arg(long, value_name = "KEY=V1,V2", required = true)]
    pub grid: Vec<String>,
    /// Data set to use instead of the recipe's
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Folder for the output folders of the trainings [default: runs/NAME-sweep for the recipe NAME.toml]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Change a key of the recipe in all trainings. Can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Remove a key from the recipe in all trainings. Can be repeated
    #[arg(long, value_name = "KEY")]
    pub unset: Vec<String>,
    /// Command that starts each training with more than one rank [default: one rank without a launcher]
    #[arg(long, value_name = "'mpirun -n N'")]
    pub launch: Option<String>,
    /// Train only combination I, counted from 0, for job arrays
    #[arg(long, value_name = "I", value_parser = natural::<usize>)]
    pub only: Option<usize>,
    /// Print the command line of each training, without training
    #[arg(long, conflicts_with_all = ["table", "json"])]
    pub list: bool,
    /// Print the table of existing results, without training
    #[arg(long)]
    pub table: bool,
    /// Print one JSON object per training instead of the table
    #[arg(long)]
    pub json: bool,
    /// Further arguments of `trireme train`
    #[arg(last = true, value_name = "TRAIN ARGUMENTS")]
    pub more: Vec<String>,
}

impl Args {
    fn sweep(&self) -> Sweep {
        let quoted = |dir: &Path| toml::Value::String(dir.display().to_string());
        let data = self.data.iter().map(|dir| format!("data={}", quoted(dir)));
        let name = self.recipe.file_stem().unwrap_or("run".as_ref()).to_string_lossy();
        let out = self.out.clone().unwrap_or_else(|| Path::new("runs").join(format!("{name}-sweep")));
        // without `./`, `trireme train` would read such a folder as an option
        let out = if out.as_os_str().as_encoded_bytes().starts_with(b"-") { Path::new(".").join(out) } else { out };
        Sweep {
            recipe: self.recipe.clone(),
            changes: Changes { sets: self.set.iter().cloned().chain(data).collect(), unsets: self.unset.clone() },
            out,
            launcher: self.launch.iter().flat_map(|line| line.split_whitespace()).map(String::from).collect(),
            more: self.more.clone(),
        }
    }

    /// Returns the combinations to train.
    fn points(&self, grid: &Grid) -> Result<Vec<Point>, Failure> {
        let points = grid.points();
        let Some(index) = self.only else { return Ok(points) };
        let all = points.len();
        let point = points.into_iter().nth(index);
        point.map(|point| vec![point]).ok_or_else(|| Failure::usage(format!("--only {index}: {}", numbers(all))))
    }
}

/// Returns the changes to the recipe in a training, as `trireme train` will read them from its command line.
fn changes(sweep: &Sweep, point: &Point) -> Result<Changes, Failure> {
    let line = [&["trireme".to_string()][..], &sweep.arguments(point), &RESUME.map(String::from)].concat();
    let cli = Cli::try_parse_from(line).map_err(|error| {
        let text = error.to_string();
        let lines: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
        let what = lines.join(" ");
        let what = what.trim_start_matches("error: ");
        Failure::usage(format!("the arguments after `--`: {what}; `trireme train --help` lists its arguments"))
    })?;
    match cli.command {
        Some(Command::Train(args)) => Ok(Changes { sets: args.sets(), unsets: args.unset }),
        _ => Ok(sweep.changes.clone()),
    }
}

/// Describes the valid numbers of combinations.
fn numbers(all: usize) -> String {
    match all {
        1 => "the sweep has only one combination; use --only 0".into(),
        _ => format!("the sweep has {all} combinations; expected a number from 0 to {}", all.saturating_sub(1)),
    }
}

/// Trains all combinations one after another, and prints the results.
pub fn run(args: &Args) -> Result<(), Failure> {
    let (sweep, grid) = (args.sweep(), Grid::parse(&args.grid)?);
    let points = args.points(&grid)?;
    // All mistakes are reported before anything is trained.
    let mut sets_workers = true;
    for point in &points {
        sets_workers &= sweep.check(point, &changes(&sweep, point)?)?.workers.is_some();
    }
    if args.list {
        let program = [sweep.launcher.clone(), vec!["trireme".into()]].concat();
        let line = |point: &Point| [program.clone(), sweep.arguments(point)].concat();
        let quoted = |words: Vec<String>| words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ");
        return points.iter().try_for_each(|point| print(quoted(line(point))));
    }
    if !(args.table || sets_workers || sweep.launcher.is_empty()) {
        screen::say(
            "note: the recipe does not set `workers`, so each training has as many workers as ranks at its first start. If you continue \
             this sweep with another number of ranks, the results are not comparable; --set workers=N prevents this",
        );
    }
    let outcomes = if args.table { Vec::new() } else { sweep.train(&points)? };
    let all = read_states(&sweep, &points, &outcomes);
    warn_about_workers(&all).iter().for_each(|warning| screen::say(warning));
    match args.json {
        true => all.iter().try_for_each(|found| print(object(&sweep, found)))?,
        false => print(table(&grid, &all))?,
    }
    if args.table { Ok(()) } else { conclude(&outcomes, points.len()) }
}

/// Returns an error with the exit code and a message, unless all trainings are done.
fn conclude(outcomes: &[Outcome], all: usize) -> Result<(), Failure> {
    let count = |wanted: Outcome| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    let (done, failed) = (count(Outcome::Done), count(Outcome::Failed));
    // If there are fewer outcomes than combinations, the sweep was stopped before the others.
    if outcomes.len() < all || count(Outcome::Stopped) > 0 {
        let message = format!("stopped: {done} of {all} trainings are done; run the same command again to continue");
        return Err(Failure { code: RESUMABLE, message });
    }
    match failed {
        0 => Ok(()),
        failed => Err(Failure {
            code: FAILED,
            message: format!("{failed} of {all} trainings failed; each has printed its error above"),
        }),
    }
}

/// Quotes a word for a POSIX shell.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._+-=/:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.into() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quote("schedule.base_lr=0.1"), "schedule.base_lr=0.1");
        assert_eq!(quote("augment.train=[\"flip\"]"), "'augment.train=[\"flip\"]'");
        assert_eq!(quote("data=it's"), "'data=it'\\''s'");
    }

    /// `trireme train` must accept the sweep's arguments.
    #[test]
    fn a_folder_may_begin_with_a_dash() {
        let line = ["trireme", "sweep", "a.toml", "--grid", "seed=1", "--out=-x"];
        let Some(Command::Sweep(args)) = Cli::try_parse_from(line).unwrap().command else { panic!("{line:?}") };
        let (sweep, grid) = (args.sweep(), Grid::parse(&args.grid).unwrap());
        let words = [vec!["trireme".to_string()], sweep.arguments(&grid.points()[0])].concat();
        let Some(Command::Train(train)) = Cli::try_parse_from(&words).unwrap().command else { panic!("{words:?}") };
        assert_eq!(train.out(), Path::new("./-x/seed=1"));
    }

    #[test]
    fn the_exit_code_says_what_is_left() {
        let code = |outcomes: &[Outcome]| conclude(outcomes, 3).err().map(|failure| failure.code);
        assert_eq!(code(&[Outcome::Done; 3]), None);
        assert_eq!(code(&[Outcome::Done, Outcome::Failed, Outcome::Done]), Some(FAILED));
        assert_eq!(code(&[Outcome::Failed, Outcome::Stopped]), Some(RESUMABLE));
        assert_eq!(code(&[Outcome::Done, Outcome::Done]), Some(RESUMABLE), "a signal came while the second one ended");
    }
}
