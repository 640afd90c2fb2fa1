//! 64 ranks on few cores: start, steps, checkpoints, a kill and a resume.
//!
//! Also measures what grows with the number of ranks: the messages that a rank sends at the start and in a step, its
//! memory, and the time to the first step. `make test-many-ranks` runs this.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use support::images::DIGITS;
use support::program::{PATIENCE, PATIENT_MPIRUN, Running, assert_gone, events, signal, start};
use support::setting::Setting;

const RECIPE: &str = r#"
epochs = 1000
batch = 64
workers = 64
optimizer.momentum = 0.9
schedule.base_lr = 0.001
reduce.codec = "exact"
checkpoint.every = "5 steps"
"#;

/// A long limit, because many processes share few cores.
const LONG: Duration = Duration::from_secs(10 * PATIENCE.as_secs());

/// Limits for the number of messages that a rank sends, per doubling of the number of ranks. `AT_START` is for the
/// messages before the first step (measured: 125 on 2 ranks, 329 on 8, 620 on 16, 647 on 32, 900 on 64; Open MPI changes
/// its algorithms above 8 ranks). `IN_A_STEP` is for the small sums of a step, and includes the step's share of messages
/// sent once per epoch. The gradient sum is counted separately, because it may go around a ring.
const AT_START: f64 = 170.0;
const IN_A_STEP: f64 = 16.0;
/// Limit for the growth of a rank's anonymous memory, in KB per rank of the run. Includes MPI's own memory.
const FOR_EACH: f64 = 128.0;

fn ranks() -> usize {
    std::env::var("RANKS").ok().and_then(|text| text.parse().ok()).unwrap_or(64)
}

#[derive(Debug)]
struct RankCosts {
    ranks: usize,
    /// The largest number of messages that a rank has sent in a run without steps.
    at_start: f64,
    /// The largest number of messages that a rank sends per step.
    a_step: f64,
    memory: u64,
    first_step: f64,
}

/// Reads the number of messages that each rank has sent from the output of Open MPI's monitoring.
fn sent(folder: &Path, ranks: usize) -> Vec<u64> {
    let of = |rank: usize| {
        let path = folder.join(format!("sent.{rank}.prof"));
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        // a line consists of I or E, source, destination, "N bytes", "M msgs sent" and sizes
        let messages =
            |line: &str| line.split('\t').find_map(|word| word.strip_suffix(" msgs sent")?.parse::<u64>().ok());
        text.lines().filter(|line| line.starts_with(['I', 'E'])).filter_map(messages).sum()
    };
    (0..ranks).map(of).collect()
}

fn monitored(setting: &Setting, name: &str, ranks: usize, steps: usize) -> Running {
    let folder = setting.out(&format!("{name}-sent"));
    fs::create_dir_all(&folder).unwrap();
    let mut command = setting.command(name, ranks, &["--threads", "1", "--max-steps", &steps.to_string()]);
    let monitoring =
        [("enable", "2".to_string()), ("enable_output", "3".into()), ("filename", format!("{folder}/sent"))];
    command.envs(monitoring.map(|(name, value)| (format!("OMPI_MCA_pml_monitoring_{name}"), value)));
    start(command)
}

/// Returns the anonymous memory of the largest process in KB.
fn largest(processes: &[u32]) -> u64 {
    let anonymous = |process: &u32| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).map(str::trim).unwrap_or_default();
        line.trim_end_matches(" kB").parse::<u64>().unwrap_or(0)
    };
    processes.iter().map(anonymous).max().unwrap_or(0)
}

fn counted(setting: &Setting, ranks: usize) -> RankCosts {
    let (none, some) = (format!("none-{ranks}"), format!("some-{ranks}"));
    monitored(setting, &none, ranks, 0).wait(LONG).succeeded();
    let mut running = monitored(setting, &some, ranks, 20);
    let out = setting.out(&some);
    let mut memory = 0;
    while !running.has_ended() {
        memory = memory.max(largest(&running.ranks()));
        std::thread::sleep(Duration::from_millis(100));
    }
    running.wait(LONG).succeeded();
    let most = |name: &str| {
        let sent = sent(Path::new(&setting.out(&format!("{name}-sent"))), ranks);
        sent.into_iter().max().unwrap_or(0) as f64
    };
    let (at_start, whole) = (most(&none), most(&some));
    let first_step = events(&out, "step")[0]["t"].as_f64().unwrap();
    RankCosts { ranks, at_start, a_step: (whole - at_start) / 20.0, memory, first_step }
}

/// The number of messages grows with the logarithm of the number of ranks, except for the ring of the gradient sum.
/// Memory hardly grows.
#[test]
#[ignore = "64 ranks on few cores take minutes: make test-many-ranks"]
fn costs_per_rank_stay_within_limits() {
    let setting = Setting::new(RECIPE, DIGITS, [320, 64]);
    let counts = [2, 8, ranks()].map(|ranks| counted(&setting, ranks));
    println!(
        "{:>6}{:>20}{:>20}{:>16}{:>16}",
        "ranks", "sent at the start", "sent in a step", "memory MB", "first step s"
    );
    for RankCosts { ranks, at_start, a_step, memory, first_step } in &counts {
        let memory = *memory as f64 / 1e3;
        println!("{ranks:>6}{at_start:>20}{a_step:>20.1}{memory:>16.1}{first_step:>16.2}");
    }
    let few = &counts[0];
    for RankCosts { ranks, at_start, a_step, memory, .. } in &counts {
        let doublings = (*ranks as f64).log2();
        assert!(*at_start <= AT_START * doublings, "{ranks} ranks: {at_start} messages before the first step");
        let ring = 2.0 * (*ranks as f64 - 1.0);
        assert!(*a_step <= ring + IN_A_STEP * doublings, "{ranks} ranks: a rank sent {a_step} messages per step");
        let bound = few.memory as f64 + FOR_EACH * *ranks as f64;
        assert!((*memory as f64) <= bound, "{ranks} ranks: a rank needs {memory} KB, {} KB with two ranks", few.memory);
    }
}

/// A run is killed and resumed, first on the same number of ranks, then on few. It ends with the same bits as an
/// undisturbed run.
#[test]
#[ignore = "64 ranks on few cores take minutes: make test-many-ranks"]
fn many_ranks_are_killed_and_resume() {
    let setting = Setting::new(RECIPE, DIGITS, [320, 64]);
    let (ranks, out) = (ranks(), setting.out("parts"));
    let mut command = setting.command("parts", ranks, &["--threads", "1"]);
    command.env(PATIENT_MPIRUN.0, PATIENT_MPIRUN.1);
    let running = start(command);
    let since = Instant::now();
    while events(&out, "checkpoint").is_empty() {
        assert!(since.elapsed() < LONG, "no checkpoint");
        std::thread::sleep(Duration::from_millis(50));
    }
    let processes = running.ranks();
    assert_eq!(processes.len(), ranks);
    let killed = processes[ranks / 3];
    signal(killed as i32, libc::SIGKILL);
    let ended = running.wait(LONG);
    assert!(!ended.status.success());
    ended.says(&[&format!("(process {killed}) is gone"), "--resume auto", "/checkpoints/step-"]);
    assert_gone(&processes);
    let at = events(&out, "checkpoint").last().unwrap()["step"].as_u64().unwrap();
    let [some, last] = [at + 3, at + 10].map(|step| step.to_string());
    setting.start("parts", ranks, &["--resume", "auto", "--max-steps", &some]).wait(LONG).succeeded();
    setting.start("parts", 7, &["--resume", "auto", "--max-steps", &last]).wait(LONG).succeeded();
    setting.start("whole", 1, &["--max-steps", &last]).wait(LONG).succeeded();
    assert_eq!(setting.digest("whole"), setting.digest("parts"));
}
