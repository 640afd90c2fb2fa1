//! The command line: one file per subcommand or group of subcommands. Each subcommand has its arguments, its help, an example,
//! and a function that runs it. Parsing has no side effects.

pub mod bench;
pub mod data;
pub mod doctor;
pub mod eval;
pub mod exchange;
pub mod manual;
pub mod models;
pub mod ops;
pub mod output;
pub mod predict;
mod reshape;
pub mod runs;
pub mod scale;
pub mod sweep;
pub mod tip;
pub mod train;
pub mod value;

use std::os::unix::process::CommandExt;
use std::time::Instant;

use base::screen;
use clap::{CommandFactory, Parser, Subcommand};
use output::{Failure, print};

use crate::libraries;

/// Trains image classifiers data-parallel over MPI, with one rank per GPU or group of cores
#[derive(Debug, Parser)]
#[command(
    name = "trireme",
    version,
    disable_version_flag = true,
    arg_required_else_help = true,
    after_help = "\
Example:
  trireme data convert cifar10 cifar-10-binary.tar.gz data/cifar10
  mpirun -n 4 trireme train recipes/cifar10-resnet20.toml --out runs/r20
  trireme eval runs/r20/model.h5 --data data/cifar10
  trireme predict runs/r20/model.h5 cat.jpg

Exit codes: 0 done; 1 failed; 2 usage; 75 stopped early, resumable with --resume auto;
130 a training ended by a second Ctrl-C."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Print the version
    #[arg(short = 'V', long)]
    pub version: bool,
    /// With --version: also print the versions of all libraries
    #[arg(long, requires = "version")]
    pub verbose: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a network with a recipe, on all ranks that mpirun or srun started
    Train(train::Args),
    /// Evaluate a model on a split of a data set
    Eval(eval::Args),
    /// Classify image files
    Predict(predict::Args),
    /// Write an HTML page about one run, or a comparison of runs
    Report(runs::ReportArgs),
    /// Train with every combination of some values of a recipe, and print a table
    Sweep(sweep::Args),
    /// List runs with their state and scores
    Runs(runs::Args),
    /// Show how two runs differ, and where their losses diverge
    Diff(runs::DiffArgs),
    /// List the networks, or the layers of one network
    Models(models::Args),
    /// Write a model in the format of another program: ONNX, PyTorch, Keras
    Export(exchange::ExportArgs),
    /// Make a model from the weights of another program
    Import(exchange::ImportArgs),
    /// Read a model file of another program, for the other commands
    #[command(hide = true)]
    RewriteModel(exchange::RewriteArgs),
    /// Read arrays of an HDF5 file, for `trireme data convert`
    #[command(hide = true)]
    ReadArrays(exchange::ArraysArgs),
    /// Print man pages and shell completions
    #[command(hide = true)]
    Manual(manual::Args),
    /// Make, check and describe data sets
    Data(data::Args),
    /// Measure the training step, the loader or the allreduce, with one JSON line per measurement
    Bench(bench::Args),
    /// Check what this machine and this MPI can do, and explain how to fix problems
    Doctor(doctor::Args),
}

/// Runs the subcommand. `started` is the start time of the process.
pub fn run(cli: Cli, started: Instant) -> Result<(), Failure> {
    let Some(command) = cli.command else { return version(cli.verbose) };
    // The prefix is empty if there is only a single rank, so this is rank 0 of a larger job.
    if let Some(name) = single_process_command(&command).filter(|_| comm::rank_prefix() == "rank 0: ") {
        screen::say(&format!(
            "warning: `trireme {name}` does not divide its work among ranks, so every rank does all of it. Start it without mpirun"
        ));
    }
    match command {
        Command::Train(args) => train::run(&args, started),
        Command::Eval(args) => eval::run(&args),
        Command::Predict(args) => predict::run(&args),
        Command::Report(args) => runs::report(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Runs(args) => runs::run(&args),
        Command::Diff(args) => runs::diff(&args),
        Command::Models(args) => models::run(&args),
        Command::Export(args) => exchange::export(&args),
        Command::Import(args) => exchange::import(&args),
        Command::RewriteModel(args) => exchange::rewrite(&args),
        Command::ReadArrays(args) => exchange::read_arrays(&args),
        Command::Manual(args) => manual::run(&args, Cli::command()),
        Command::Data(args) => data::run(&args),
        Command::Bench(args) => bench::run(&args, started),
        Command::Doctor(args) => doctor::run(&args),
    }
}

/// Returns the name of a command that users should start without mpirun, because it does not divide its work among
/// ranks. Returns `None` for all other commands.
fn single_process_command(command: &Command) -> Option<&'static str> {
    match command {
        // With a table to write, the ranks share the images.
        Command::Predict(args) => args.out.is_none().then_some("predict"),
        Command::Report(_) => Some("report"),
        Command::Sweep(_) => Some("sweep"),
        Command::Runs(_) => Some("runs"),
        Command::Diff(_) => Some("diff"),
        Command::Models(_) => Some("models"),
        Command::Export(_) => Some("export"),
        Command::Import(_) => Some("import"),
        Command::Data(_) => Some("data"),
        Command::Bench(args) => args.single_process(),
        // Other commands, which may run as ranks, start the first two as child processes. These inherit the launcher's
        // variables, so a warning would be wrong.
        Command::RewriteModel(_) | Command::ReadArrays(_) | Command::Manual(_) => None,
        Command::Train(_) | Command::Eval(_) | Command::Doctor(_) => None,
    }
}

/// Prints the version. Does not start MPI.
pub fn version(verbose: bool) -> Result<(), Failure> {
    print(format!("trireme {}", env!("CARGO_PKG_VERSION")))?;
    if verbose { libraries::lines().into_iter().try_for_each(print) } else { Ok(()) }
}

/// Number of spins (about 10 microseconds) before a waiting OpenMP thread sleeps.
const SPINS: &str = "20000";

/// Makes OpenMP threads sleep after a short spin, unless the user has set how they wait. By default they spin for
/// milliseconds. If another thread needs the core (a loader thread, MPI, another process), this spinning makes the
/// program three times slower or worse. libgomp reads its variables when it is loaded, so the program sets them and
/// executes itself again.
///
/// Open MPI's waits yield the core for the same reason, because its thread waits most of the time. HDF5 file locking is
/// disabled: only one rank writes, to a temporary name that no other process uses, and many parallel file systems do
/// not support locks.
pub fn set_wait_policy() -> Result<(), Failure> {
    let set = |name: &str| std::env::var_os(name).is_some();
    let mut missing = vec![("OMPI_MCA_mpi_yield_when_idle", "1"), ("HDF5_USE_FILE_LOCKING", "FALSE")];
    if !set("OMP_WAIT_POLICY") && !set("GOMP_SPINCOUNT") {
        missing.extend([("OMP_WAIT_POLICY", "passive"), ("GOMP_SPINCOUNT", SPINS)]);
    }
    missing.retain(|(name, _)| !set(name));
    if missing.is_empty() {
        return Ok(());
    }
    let set: Vec<String> = missing.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let set = set.join(" ");
    let program =
        std::env::current_exe().map_err(|e| Failure::failed(format!("cannot restart trireme with {set}: {e}")))?;
    // `exec` returns only if it fails.
    let error = std::process::Command::new(program).args(std::env::args_os().skip(1)).envs(missing).exec();
    Err(Failure::failed(format!(
        "cannot restart trireme with {set}: {error}. Set these environment variables before you start trireme"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::ErrorKind;
    use support::mentions;

    /// Calls `check` with the path and the long help of the program and all its commands.
    fn each_help(check: &mut dyn FnMut(&str, &str)) {
        fn visit(command: &mut clap::Command, path: &str, check: &mut dyn FnMut(&str, &str)) {
            check(path, &command.render_long_help().to_string());
            for inner in command.get_subcommands_mut().filter(|c| c.get_name() != "help") {
                let path = format!("{path} {}", inner.get_name());
                visit(inner, &path, check);
            }
        }
        visit(&mut Cli::command(), "trireme", check);
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_help_has_examples_and_every_example_parses() {
        let mut seen = 0;
        each_help(&mut |path, help| {
            let examples = help.split_once("Example:").unwrap_or_else(|| panic!("no example in {path} --help")).1;
            // a backslash at the end of a line continues it
            let examples = examples.replace("\\\n", "");
            let lines = examples.lines().skip(1).take_while(|line| line.starts_with("  "));
            for line in lines {
                let words = line.split_whitespace().map(|word| word.trim_matches('\''));
                let from_program: Vec<&str> = words.skip_while(|word| *word != "trireme").collect();
                assert!(from_program.join(" ").starts_with(path), "{path}: {line}");
                Cli::try_parse_from(&from_program).unwrap_or_else(|e| panic!("{line}: {e}"));
                seen += 1;
            }
        });
        assert!(seen >= 15, "{seen} examples");
    }

    #[test]
    fn the_version_needs_no_command() {
        for (line, verbose) in
            [("trireme --version", false), ("trireme -V", false), ("trireme --version --verbose", true)]
        {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert!(cli.command.is_none() && cli.version && cli.verbose == verbose, "{line}");
        }
    }

    #[test]
    fn only_commands_that_divide_no_work_among_ranks_cause_a_warning() {
        for (line, name) in [
            ("bench step", Some("bench step")),
            ("bench ops --model lenet", Some("bench ops")),
            ("bench loader d", Some("bench loader")),
            ("bench loader+step d", Some("bench loader+step")),
            ("bench allreduce", None),
            ("bench scale", None),
            ("predict m.h5 a.png", Some("predict")),
            ("predict m.h5 a.png --out t.csv", None),
            ("train a.toml", None),
        ] {
            let cli = Cli::try_parse_from(format!("trireme {line}").split(' ')).unwrap();
            assert_eq!(single_process_command(&cli.command.unwrap()), name, "{line}");
        }
    }

    /// Negative numbers must not be parsed as options.
    #[test]
    fn negative_numbers_are_values_not_options() {
        for (line, part) in [
            ("predict m.h5 a.png --top", "integer >= 1"),
            ("predict m.h5 a.png --limit-seconds", "seconds > 0"),
            ("predict m.h5 a.png --threshold", "0 to 1"),
            ("eval m.h5 --batch", "integer >= 1"),
            ("train a.toml --threads", "integer >= 1"),
            ("train a.toml --max-steps", "integer >= 0"),
            ("report r --follow --every", "integer >= 1"),
            ("sweep a.toml --grid seed=1 --only", "integer >= 0"),
            ("data extract d -o a.png", "integer >= 0"),
            ("data convert mnist a b --seed", "integer >= 0"),
            ("data verify d --jobs", "integer >= 1"),
            ("data stats d --jobs", "integer >= 1"),
            ("data show d -o a.png --count", "integer >= 1"),
            ("data merge a b c --shards", "integer >= 1"),
            ("data sample a b --fraction", "below 1"),
            ("bench step --seconds", "seconds > 0"),
            ("bench loader d --threads", "integer >= 1"),
            ("bench scale --batch", "integer >= 1"),
            ("bench ops --threads", "integer >= 1"),
        ] {
            for number in ["-1", "x"] {
                let line = format!("trireme {line} {number}");
                let error = Cli::try_parse_from(line.split(' ')).expect_err(&line);
                assert_eq!(error.kind(), ErrorKind::ValueValidation, "{line}: {error}");
                mentions(error, &[&format!("'{number}'"), part]);
            }
        }
    }

    #[test]
    fn the_usage_of_merge_shows_each_argument_once() {
        let said = Cli::try_parse_from(["trireme", "data", "merge", "a", "b"]).unwrap_err().to_string();
        mentions(&said, &["<DIR> <DIR>... <OUT>"]);
        assert!(!said.contains("DIR DIR"), "{said}");
    }

    #[test]
    fn mistakes_are_usage_errors() {
        for line in [
            "trireme",
            "trireme trian x.toml",
            "trireme train",
            "trireme --verbose",
            "trireme train x.toml --version",
            "trireme train x.toml --threads 0",
            "trireme train x.toml --max-steps -1",
            "trireme train x.toml --device tpu",
            "trireme train x.toml --set",
            "trireme eval",
            "trireme eval model.h5 --data d --batch 0",
            "trireme predict model.h5",
            "trireme models resnet50 vgg16",
            "trireme predict model.h5 a.png --top 0",
            "trireme predict model.h5 a.png --csv --json",
            "trireme export model.h5",
            "trireme export model.h5 --to tflite -o x",
            "trireme export model.h5 --to onnx",
            "trireme import a.pth",
            "trireme import a.pth --match a -o b.h5",
            "trireme data convert imagenette a b",
            "trireme data convert mnist a b --shards 0",
            "trireme sweep a.toml",
            "trireme sweep a.toml --grid seed=1,2 --list --json",
            "trireme bench allreduce --sizes 4X",
            "trireme bench step --seconds -1",
        ] {
            let error = Cli::try_parse_from(line.split(' ')).expect_err(line);
            assert_eq!(error.exit_code(), i32::from(output::USAGE), "{line}");
        }
    }
}
