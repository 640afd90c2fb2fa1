//! Soak test: faults in training runs, one every 15 seconds in each of two series. `make soak MINUTES=60` runs it for an hour.
//!
//! - [`relay`]: training runs that are killed, stopped, run out of disk space or meet damaged data. Each time they
//!   resume on a random number of ranks. Every step, score, checkpoint and model must equal a [`reference`] without
//!   faults bit for bit.
//! - [`steady`]: one training run with only faults that it must survive. Its memory must not grow by more than 1 %, and
//!   descriptors and threads must not grow at all.
//!
//! The test prints a line for each fault and a table at the end. The environment variables MINUTES and SEED are read, and the
//! seed is printed.

mod diary;
mod place;
mod process;
mod reference;
mod relay;
mod steady;
mod strike;
mod training;

use diary::{Diary, PERIOD, Settings};
use place::Place;
use relay::Relay;
use support::program::Folder;
use training::Training;

#[test]
#[ignore = "as long as one likes: make soak MINUTES=60"]
fn soak() {
    let settings = Settings::of_environment();
    let Settings { length, seed } = settings;
    eprintln!("soak: {:.1} minutes; repeat the same faults with SEED={seed}", length.as_secs_f64() / 60.0);
    let folder = Folder::new();
    let trainings = Training::all(&folder, &settings);
    for Training { name, last, reference, .. } in &trainings {
        eprintln!("reference {name}, on 2 ranks without faults: {}, to step {last}", reference.size());
    }
    trainings[0].images.copy_to(&folder.path().join("steady-data"));
    let place = Place::new(&folder, "steady", folder.at("steady-data"), folder.at("steady-out"));
    let diary = Diary::new();
    std::thread::scope(|scope| {
        scope.spawn(|| steady::run(&settings, &diary, &trainings[0], &place));
        scope.spawn(|| Relay::new(settings, &diary, &trainings, &folder).run());
    });
    eprintln!("{}", diary.table());
    let counts = diary.counts();
    assert!(counts.failures.is_empty(), "SEED={seed}: {} failures", counts.failures.len());
    let faults: u64 = counts.faults.values().map(|struck| struck.count).sum();
    let least = length.as_secs() / PERIOD.as_secs();
    assert!(faults >= least && counts.resumes > 0 && counts.models > 0, "{faults} faults, expected at least {least}");
}
