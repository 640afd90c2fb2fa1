//! One training run that lasts as long as the soak test, with only faults that it must survive. Memory, descriptors and
//! threads must not grow.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use loaders::Draws;

use crate::diary::{Diary, PERIOD, Settings};
use crate::place::Place;
use crate::process::{LaunchOptions, Process};
use crate::reference::content;
use crate::strike::{Fault, Target, one_of};
use crate::training::Training;
use loaders::panic_text;
use support::program::signal;

const SERIES: &str = "steady";

/// Epochs until memory no longer grows. Each epoch starts new threads, and malloc assigns each new thread to the next
/// of its arenas. Memory grows until every arena has been used.
const WARM: usize = 80;

/// Time after a fault during which samples are ignored.
const REST: Duration = Duration::from_secs(3);

/// Trains until the time is over. A failed check goes into the diary.
pub fn run(settings: &Settings, diary: &Diary, training: &Training, place: &Place) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| train(settings, diary, training, place))) {
        diary.failed(SERIES, &panic_text(&*panic));
    }
}

fn train(settings: &Settings, diary: &Diary, training: &Training, place: &Place) {
    let mut process = Process::start(training, LaunchOptions { ranks: 2, reads: true }, place, &[]);
    process.until("first step", |process| process.steps());
    let ranks = process.ranks();
    diary.say(SERIES, &format!("{}, processes {ranks:?}", process.options.text()));
    // the first fault is due half a period later than in the relay, so that the faults of both series alternate
    let (mut due, mut calm, mut number) = (diary.time() + PERIOD / 2, settings.warm_up(), 0);
    let mut warm = false;
    while diary.time() < settings.length {
        assert!(!process.has_ended(), "it ended by itself: {}", process.stderr());
        if diary.time() >= due {
            number += 1;
            let mut draws = Draws::new(settings.seed, number, 0, 1);
            let fault = one_of(&mut draws, &Fault::SURVIVABLE);
            let outcome = Target { training, place, disk: None }.survive(fault, &mut process, &mut draws);
            diary.struck(SERIES, fault, outcome.took, &outcome.what);
            calm = calm.max(diary.time() + REST);
            due = diary.time().max(due + PERIOD);
            if !warm && epochs(place) >= WARM {
                warm = true;
                diary.say(SERIES, &format!("warm-up complete after {} epochs: samples count from here", epochs(place)));
            }
        }
        if warm && diary.time() >= calm {
            process.sample();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    finish(settings, diary, training, place, process);
}

fn epochs(place: &Place) -> usize {
    std::fs::read_to_string(place.log()).unwrap_or_default().matches("\"event\":\"epoch\"").count()
}

/// Stops the run regularly and evaluates the samples.
fn finish(settings: &Settings, diary: &Diary, training: &Training, place: &Place, mut process: Process) {
    let meters = process.take_meters();
    process.ranks().first().iter().for_each(|&&rank| signal(rank as i32, libc::SIGTERM));
    process.end().failed(75, &["stopped after step", "--resume auto"]);
    diary.say(SERIES, &format!("stopped regularly after {} epochs", epochs(place)));
    for (number, meter) in meters.iter().enumerate() {
        match meter.resource_use(Duration::ZERO) {
            Some(resource_use) => {
                if !resource_use.is_flat() {
                    diary.failed(
                        SERIES,
                        &format!("process {number} uses more resources than at first: {resource_use:?}"),
                    );
                }
                diary.counts().processes.push((format!("steady, process {number} of 2"), resource_use));
            }
            None if settings.is_long() => diary.failed(SERIES, "too few samples to check that memory is constant"),
            None => support::skip("constant memory: the test is shorter than ten minutes"),
        }
    }
    let lines = compare(training, place).unwrap_or_else(|difference| panic!("{difference}"));
    assert!(lines > 0, "the reference has none of the steps");
    diary.counts().lines += lines;
}

/// Compares this run's log lines of steps and scores with the reference's, up to the reference's last step. Returns the
/// number of lines compared.
fn compare(training: &Training, place: &Place) -> Result<u64, String> {
    let log = File::open(place.log()).map_err(|e| format!("{}: {e}", place.log().display()))?;
    let mut lines = 0;
    for line in BufReader::new(log).lines() {
        let line = line.map_err(|e| e.to_string())?;
        let value = serde_json::from_str(&line).map_err(|e| format!("{e}: {line}"))?;
        if let Some(((event, step), what)) = content(&value) {
            lines += u64::from(training.reference.line(&event, step, &what)?);
            if step > training.last {
                break;
            }
        }
    }
    Ok(lines)
}
