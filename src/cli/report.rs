//! `trireme report`: one page of runs.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use base::screen;
use loaders::overwrite;
use report::history::{Run, State};
use report::page;

use super::exit::Failure;
use super::output::print;
use super::value::positive;

/// Seconds between two looks at runs that go on.
const EVERY: u32 = 10;

/// Arguments of `trireme report`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Example:
  trireme report runs/r20
  trireme report runs/r20 runs/r20-cosine -o compare.html
  trireme report runs/r20 --follow"
)]
pub struct Args {
    /// Output folders of runs; several are shown side by side
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// The page to write [default: report.html in the folder of the first run]
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write it anew every ten seconds while a run goes on; the page loads itself anew, from disk
    #[arg(long)]
    pub follow: bool,
    /// With --follow: write it so often, in seconds [default: 10]
    #[arg(long, value_name = "SECONDS", requires = "follow", value_parser = positive)]
    pub every: Option<usize>,
}

/// Writes the page, once or as long as one of the runs goes on.
pub fn run(args: &Args) -> Result<(), Failure> {
    let out = args.out.clone().unwrap_or_else(|| args.runs[0].join(page::NAME));
    // what is no run has better words than its folder
    args.runs.iter().try_for_each(|folder| Run::open(folder).map(drop)).map_err(Failure::failed)?;
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
