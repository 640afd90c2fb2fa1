//! `trireme train`: its arguments.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use recipe::{Changes, keys};
use report::Verbosity;
use training::launch;
use training::train::plan::request::{ResumeFrom, TrainRequest};
use training::train::save::folder;

use super::output::{Failure, print};
use super::set_wait_policy;
use super::value::{DeviceName, Stall, natural, search_steps, thread_count};

const EXAMPLE: &str = "\
Example:
  mpirun -n 4 trireme train recipes/cifar10-resnet20.toml \\
      --data data/cifar10 --out runs/r20
  trireme train recipes/fashion-mnist-lenet.toml \\
      --set epochs=1 --set schedule.base_lr=0.02 --out runs/try
  mpirun -n 2 trireme train recipes/cifar10-resnet20.toml \\
      --out runs/r20 --resume auto --time-limit 1h30m
  trireme train recipes/cifar10-resnet20.toml --dry-run";

fn long_help() -> String {
    format!(
        "{EXAMPLE}\n\nKeys of a recipe, each of which --set can change (default in parentheses):\n{}",
        keys::table()
    )
}

#[derive(Clone, Debug, clap::Args)]
#[command(allow_negative_numbers = true, after_help = EXAMPLE, after_long_help = long_help())]
pub struct Args {
    /// Recipe: a TOML file with the network, the data set and the training settings
    pub recipe: PathBuf,
    /// Data set to use instead of the recipe's
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Folder for all files of the run [default: runs/NAME for a recipe NAME.toml; for the recipe.toml in a run's
    /// folder, that folder]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Change a key of the recipe, such as schedule.base_lr=0.4. Can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Remove a key or a section from the recipe, so that it has its default. Can be repeated
    #[arg(long, value_name = "KEY")]
    pub unset: Vec<String>,
    /// Resume from this checkpoint. With `auto`, resume from the newest complete checkpoint under --out, or start a new
    /// run if there is none. The number of ranks may differ from the checkpoint's, up to the number of workers
    #[arg(long, value_name = "auto|PATH")]
    pub resume: Option<ResumeFrom>,
    /// Continue for more epochs than planned, given by --set epochs=N. The schedules cosine, polynomial and one_cycle
    /// are stretched from the checkpoint to N, others stay the same. Not for runs with a length in steps
    #[arg(long, requires = "resume")]
    pub extend_epochs: bool,
    /// Use --out although a run on another host has locked it, if you know that this run has ended
    #[arg(long)]
    pub steal_lock: bool,
    /// Device to compute on
    #[arg(long, value_enum, default_value = "auto")]
    pub device: DeviceName,
    /// Allow ranks to share a GPU. This is slower than one rank, and meant for tests
    #[arg(long)]
    pub share_gpu: bool,
    /// Compute threads per rank [default: from the rank's cores; 1 with a GPU]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub threads: Option<usize>,
    /// Loader threads per rank, like --set loader.threads=N [default: from the cores without compute threads]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub loader_threads: Option<usize>,
    /// Copy the data set to this folder first. It should be on each node's local disk, such as "$TMPDIR". An existing
    /// copy is used again
    #[arg(long, value_name = "DIR")]
    pub stage: Option<PathBuf>,
    /// End after this optimizer step, counted from the start of the run. Schedules do not change. 0 only writes the
    /// initial weights
    #[arg(long, value_name = "N", value_parser = natural::<u64>)]
    pub max_steps: Option<u64>,
    /// Search for a learning rate instead of training. Trains STEPS steps (at least 20, default 100) with rates from
    /// 1e-7 to 10, prints the rate where the loss falls most steeply as an argument for --set, and writes a picture
    /// next to OUT. Nothing in OUT is changed
    #[arg(long, value_name = "STEPS", num_args = 0..=1, require_equals = true, default_missing_value = "100",
          value_parser = search_steps, conflicts_with_all = ["resume", "max_steps", "trace", "dry_run"])]
    pub find_lr: Option<u64>,
    /// Write a trace of all ranks to this file, for ui.perfetto.dev. It shows layers, data, exchange, update and
    /// evaluation
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Number of steps, from the first, that the trace shows in full
    #[arg(long, value_name = "N", default_value = "20", requires = "trace", value_parser = clap::value_parser!(u64).range(1..))]
    pub trace_steps: u64,
    /// Stop before this time, such as 1h30m, with a checkpoint and exit code 75. Counted from the start of the program
    #[arg(long, value_name = "TIME", value_parser = recipe::scoring::duration)]
    pub time_limit: Option<Duration>,
    #[command(flatten)]
    pub stall: Stall,
    /// Print the resolved recipe, the layers and the memory plan without training
    #[arg(long)]
    pub dry_run: bool,
    /// Print all facts: ranks, devices, libraries, memory, waits, files. OUT/run.log always has them
    #[arg(short, long)]
    pub verbose: bool,
    /// Print only warnings and errors
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
}

impl Args {
    /// Returns all changes to the recipe for [`recipe::Recipe::load`], including `--data` and `--loader-threads`.
    pub fn sets(&self) -> Vec<String> {
        // Quoted as TOML, so that any folder name is read as a string.
        let quoted = |dir: &Path| toml::Value::String(dir.display().to_string());
        let data = self.data.iter().map(|dir| format!("data={}", quoted(dir)));
        let threads = self.loader_threads.iter().map(|n| format!("loader.threads={n}"));
        self.set.iter().cloned().chain(data).chain(threads).collect()
    }

    /// Returns the output folder: `--out`, otherwise the folder of the run if the recipe is that run's own copy,
    /// otherwise `runs/` and the recipe's file name without its extension.
    pub fn out(&self) -> PathBuf {
        let of_a_run =
            self.recipe.parent().filter(|out| self.recipe.ends_with("recipe.toml") && folder::is_marked(out));
        if let (None, Some(out)) = (&self.out, of_a_run) {
            return if out.as_os_str().is_empty() { ".".into() } else { out.to_path_buf() };
        }
        let name = self.recipe.file_stem().unwrap_or("run".as_ref());
        self.out.clone().unwrap_or_else(|| Path::new("runs").join(name))
    }
}

pub fn run(args: &Args, started: Instant) -> Result<(), Failure> {
    set_wait_policy()?;
    loaders::sigbus::install().map_err(Failure::failed)?;
    let request = TrainRequest {
        recipe: args.recipe.clone(),
        changes: Changes { sets: args.sets(), unsets: args.unset.clone() },
        out: args.out(),
        resume: args.resume.clone(),
        extend_epochs: args.extend_epochs,
        steal_lock: args.steal_lock,
        device: args.device.0,
        share_gpu: args.share_gpu,
        threads: args.threads,
        max_steps: args.max_steps,
        time_limit: args.time_limit,
        find_lr: args.find_lr,
        dry_run: args.dry_run,
        stage: args.stage.clone(),
        trace: args.trace.clone(),
        trace_steps: args.trace_steps,
        stall: args.stall.limits(),
        verbosity: match (args.quiet, args.verbose) {
            (true, _) => Verbosity::Quiet,
            (_, true) => Verbosity::Verbose,
            _ => Verbosity::Normal,
        },
    };
    match launch::train(&request, started)? {
        Some(plan) => print(plan),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cli, Command};
    use super::*;
    use clap::Parser;

    fn parse(words: &[&str]) -> Args {
        match Cli::try_parse_from([&["trireme", "train"], words].concat()).unwrap().command {
            Some(Command::Train(args)) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn defaults() {
        let args = parse(&["recipes/a.toml"]);
        assert_eq!(
            (args.out(), args.sets(), args.device.0),
            ("runs/a".into(), vec![], training::device::DeviceChoice::Auto)
        );
        assert_eq!((args.resume, args.threads, args.max_steps, args.dry_run), (None, None, None, false));
        let limits = args.stall.limits();
        assert_eq!(limits, training::train::observe::watch::Limits::default());
        let limits = parse(&["recipes/a.toml", "--stall-abort", "20m"]).stall.limits();
        assert_eq!([limits.abort, limits.network], [Some(Duration::from_secs(1200)); 2]);
    }

    #[test]
    fn data_is_one_more_set_whatever_the_folder_is_called() {
        let args = parse(&["a.toml", "--set", "epochs=1", "--data", "it's \"2012\"", "--resume", "auto"]);
        let sets = args.sets();
        assert_eq!(sets[0], "epochs=1");
        let table: toml::Table = sets[1].parse().unwrap();
        assert_eq!(table["data"].as_str(), Some("it's \"2012\""));
        assert_eq!(args.resume, Some(ResumeFrom::Newest));
        assert_eq!(parse(&["a.toml", "--resume", "Auto"]).resume, Some(ResumeFrom::Newest));
        assert_eq!(parse(&["a.toml", "--resume", "c.h5"]).resume, Some(ResumeFrom::File("c.h5".into())));
    }

    #[test]
    fn the_long_help_lists_the_keys() {
        assert!(keys::KEYS.iter().all(|key| long_help().contains(&key.path)));
    }
}
