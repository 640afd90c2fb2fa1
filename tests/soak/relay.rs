//! Training runs one after another. Faults end each run again and again, and it resumes on a random number of ranks until its model is
//! complete. The model must equal the reference byte for byte. Then the next run begins, until the time of the soak test is over.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, SystemTime};

use loaders::Draws;
use serde_json::Value;

use crate::diary::{Diary, PERIOD, Settings};
use crate::place::Place;
use crate::process::{LaunchOptions, Meter, Process};
use crate::reference::Equal;
use crate::strike::{Fault, Target, one_of};
use crate::training::Training;
use loaders::panic_text;
use support::disk::Disk;
use support::program::{Folder, events, run};

const SERIES: &str = "relay";

/// The numbers of ranks from which each start chooses at random. 0 starts the program without mpirun.
const RANKS: [usize; 5] = [0, 1, 2, 3, 4];

/// Size of the disk with the output folder: a few times the size of what a run keeps in this folder.
const DISK: &str = "64m";

/// Warm-up time of a process. Measurements of its memory, descriptors and threads during this time are ignored.
const WARM: Duration = Duration::from_secs(5);

/// State of the series of training runs that faults end.
pub struct Relay<'a> {
    settings: Settings,
    diary: &'a Diary,
    trainings: &'a [Training],
    folder: &'a Folder,
    disk: Option<Disk>,
    out: String,
    /// Number of random choices so far. It is part of the random key, so every choice has independent random numbers.
    choices: u64,
    /// When the next fault is due, as the time since the diary was created.
    due: Duration,
    /// The process with the longest series of samples.
    longest: Option<(String, Meter)>,
}

/// The state of a process after a fault or at its end.
enum AfterFault {
    Running(Box<Process>),
    /// The process has ended, and the run can resume.
    Ended,
    /// The run has reached its last step.
    Finished,
}

/// One training run, from its first start to its model.
struct Lap<'a> {
    training: &'a Training,
    place: Place,
}

impl<'a> Relay<'a> {
    /// Puts the output folder on a small disk if the test may mount one.
    pub fn new(settings: Settings, diary: &'a Diary, trainings: &'a [Training], folder: &'a Folder) -> Self {
        let disk = Disk::mount(folder.at("disk"), DISK);
        if disk.is_none() {
            diary.say(SERIES, "no permission to mount a tmpfs; the preloaded library simulates a full disk");
        }
        let out = disk.as_ref().map_or_else(|| folder.at("relay-out"), |disk| disk.at("out"));
        Self { settings, diary, trainings, folder, disk, out, choices: 0, due: diary.time() + PERIOD, longest: None }
    }

    /// Runs laps until the time is over. A failed check goes into the diary, and the next lap begins.
    pub fn run(&mut self) {
        let mut number = 0;
        while !self.is_over() {
            let training = &self.trainings[number % self.trainings.len()];
            number += 1;
            self.diary.say(SERIES, &format!("lap {number}: {}, to step {}", training.name, training.last));
            let place = Place::new(self.folder, SERIES, training.images.arg(), self.out.clone());
            let lap = Lap { training, place };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.lap(&lap))) {
                self.diary.failed(SERIES, &format!("lap {number}: {}", panic_text(&*panic)));
                self.keep(number);
            }
            let _ = fs::remove_dir_all(&self.out);
        }
        let longest = self.longest.take();
        if let Some((name, resource_use)) = longest.and_then(|(name, meter)| Some((name, meter.resource_use(WARM)?))) {
            self.diary.counts().processes.push((format!("relay's longest, {name}"), resource_use));
        }
    }

    fn is_over(&self) -> bool {
        self.diary.time() >= self.settings.length
    }

    /// Keeps the output folder of a failed lap for inspection.
    fn keep(&self, number: usize) {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("soak-{}-{number}", self.settings.seed));
        let done = std::process::Command::new("cp").arg("-r").args([Path::new(&self.out), &kept]).status();
        if done.is_ok_and(|status| status.success()) {
            self.diary.say(SERIES, &format!("the output folder was copied to {}", kept.display()));
        }
        if let Some(disk) = &self.disk {
            let _ = fs::remove_file(disk.at("filler"));
        }
    }

    fn draws(&mut self) -> Draws {
        self.choices += 1;
        Draws::new(self.settings.seed, self.choices, 0, 0)
    }

    fn lap(&mut self, lap: &Lap<'_>) {
        let mut process = self.start(lap);
        loop {
            self.until_due(&mut process);
            let (options, since) = (process.options, process.begun);
            let after = if process.has_ended() { self.ended(process) } else { self.strike(lap, process) };
            if let AfterFault::Running(same) = after {
                process = *same;
                continue;
            }
            self.check(lap, since);
            if matches!(after, AfterFault::Finished) {
                break self.finish(lap);
            }
            process = self.resume(lap, options);
            // a start takes long on a busy machine, so the next fault waits until the run has done some steps
            self.due = self.due.max(self.diary.time() + PERIOD / 2);
        }
    }

    fn strike(&mut self, lap: &Lap<'_>, mut process: Process) -> AfterFault {
        self.due = self.diary.time().max(self.due + PERIOD);
        let mut draws = self.draws();
        let (options, fault) = (process.options, self.draw(lap, &process, &mut draws));
        if Fault::SURVIVABLE.contains(&fault) {
            let outcome = self.target(lap).survive(fault, &mut process, &mut draws);
            self.diary.struck(SERIES, fault, outcome.took, &outcome.what);
            process.survived = Some(fault);
            return if process.has_ended() { self.ended(process) } else { AfterFault::Running(Box::new(process)) };
        }
        self.keep_longest(&mut process);
        let outcome = self.target(lap).end(fault, process, &mut draws);
        self.diary.struck(SERIES, fault, outcome.took, &format!("{}; {}", options.text(), outcome.what));
        if outcome.ended.is_some_and(|ended| ended.status.success()) { AfterFault::Finished } else { AfterFault::Ended }
    }

    fn target<'b>(&'b self, lap: &'b Lap<'_>) -> Target<'b> {
        Target { training: lap.training, place: &lap.place, disk: self.disk.as_ref() }
    }

    /// Handles a process that has ended by itself: at its last step, or because there was no space for the model.
    fn ended(&mut self, mut process: Process) -> AfterFault {
        self.keep_longest(&mut process);
        let fault = process.survived;
        let ended = process.end();
        // the fault is over, but the model may have been written while there was no space
        let no_room = fault == Some(Fault::NoRoomForCheckpoints) && ended.stderr.contains("o space left");
        assert!(ended.status.success() || no_room, "after {fault:?}: {}\n{}", ended.status, ended.stderr);
        if ended.status.success() { AfterFault::Finished } else { AfterFault::Ended }
    }

    /// Chooses a random fault that can occur in this process. For example, slow reads need a process that does not map its data.
    fn draw(&self, lap: &Lap<'_>, process: &Process, draws: &mut Draws) -> Fault {
        let LaunchOptions { ranks, reads } = process.options;
        let can = |fault: &Fault| match fault {
            Fault::CorruptShard => !lap.training.skips,
            Fault::SlowReads => reads,
            Fault::TerminateLauncher | Fault::KillRank => ranks > 0,
            _ => true,
        };
        let all = Fault::FATAL.into_iter().chain(Fault::SURVIVABLE);
        one_of(draws, &all.filter(can).collect::<Vec<_>>())
    }

    fn start(&mut self, lap: &Lap<'_>) -> Process {
        let mut draws = self.draws();
        let options = LaunchOptions { ranks: one_of(&mut draws, &RANKS), reads: draws.below(2) == 0 };
        let last = lap.training.last.to_string();
        Process::start(lap.training, options, &lap.place, &["--max-steps", &last])
    }

    /// Starts the run again. One time in three, kills it within two seconds after the start and starts it once more.
    fn resume(&mut self, lap: &Lap<'_>, before: LaunchOptions) -> Process {
        loop {
            let mut process = self.start(lap);
            let options = process.options;
            let mut draws = self.draws();
            if !self.is_over() && draws.below(3) == 0 {
                let time = Duration::from_millis(draws.below(2000).into());
                std::thread::sleep(time);
                let target = Target { training: lap.training, place: &lap.place, disk: None };
                let outcome = target.end(Fault::KillEarly, process, &mut draws);
                let what = format!("{}; after {:.1} s; {}", options.text(), time.as_secs_f64(), outcome.what);
                self.diary.struck(SERIES, Fault::KillEarly, outcome.took, &what);
                continue;
            }
            self.first_step(&mut process);
            let mut counts = self.diary.counts();
            counts.resumes += 1;
            counts.resumes_on_others += u64::from(options.ranks != before.ranks);
            drop(counts);
            let start = events(&self.out, "start").last().map_or(Value::Null, |start| start["step"].clone());
            self.diary.say(SERIES, &format!("continues from step {start}: {}", options.text()));
            return process;
        }
    }

    fn first_step(&self, process: &mut Process) {
        process.until("first step", |process| {
            process.ranks();
            process.steps()
        });
    }

    /// Samples resources until the next fault is due or the process ends. Waits only for the end of the process if the
    /// time of the soak test is over.
    fn until_due(&mut self, process: &mut Process) {
        self.first_step(process);
        while !process.has_ended() && (self.is_over() || self.diary.time() < self.due) {
            process.sample();
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn keep_longest(&mut self, process: &mut Process) {
        let name = process.options.text();
        for meter in process.take_meters() {
            if self.longest.as_ref().is_none_or(|(_, longest)| meter.age() > longest.age()) {
                self.longest = Some((name.clone(), meter));
            }
        }
    }

    /// Compares the output folder with the reference. Counts only checkpoints written since `since`.
    fn check(&self, lap: &Lap<'_>, since: SystemTime) -> Equal {
        let equal = lap.training.reference.check(&self.out, since).unwrap_or_else(|difference| panic!("{difference}"));
        let mut counts = self.diary.counts();
        counts.checkpoints += equal.checkpoints;
        counts.others += equal.others;
        equal
    }

    /// Checks a finished run: its model equals the reference, and its score equals the logged one.
    fn finish(&mut self, lap: &Lap<'_>) {
        let lines = self.check(lap, SystemTime::now()).lines;
        lap.training.reference.check_end(&self.out).unwrap_or_else(|difference| panic!("{difference}"));
        let mut draws = self.draws();
        let ranks = one_of(&mut draws, &RANKS);
        let model = format!("{}/model.h5", self.out);
        let args = ["eval", &model, "--data", &lap.place.data, "--json", "--threads", "1"];
        let score = run(ranks, &args).succeeded().json();
        // not the score of the averages, which `eval` computes only with --ema
        let last = events(&self.out, "eval").into_iter().rfind(|eval| eval["ema"] != true).expect("a score");
        for key in ["top1", "top5", "loss", "count"] {
            assert_eq!(score[key], last[key], "{key}: eval on {ranks} ranks, and the log");
        }
        let mut counts = self.diary.counts();
        (counts.laps, counts.models, counts.lines) = (counts.laps + 1, counts.models + 1, counts.lines + lines);
        drop(counts);
        self.diary.say(SERIES, &format!("the model equals the reference; eval on {ranks} ranks confirms its score"));
    }
}
