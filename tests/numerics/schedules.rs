//! Learning-rate schedules compared step by step with PyTorch's recorded rates (`golden/schedules.json`).

use base::run_state::PlateauState;
use engine::optim::schedule::ScheduleKind;
use engine::optim::{Schedule, ScheduleSpec};
use serde::Deserialize;

use support::numerics::golden;

#[derive(Deserialize)]
struct Golden {
    steps_per_epoch: u64,
    epochs: u32,
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    name: String,
    schedule: ScheduleSpec,
    lrs: Vec<f64>,
    /// The momentum of each step, if the schedule sets it.
    #[serde(default)]
    momenta: Vec<f64>,
    /// The scores after each epoch that the plateau schedule reads.
    #[serde(default)]
    scores: Vec<f64>,
}

#[track_caller]
fn close(what: &str, got: f64, want: f64) {
    assert!((got - want).abs() <= 1e-12, "{what}: got {got}, want {want}");
}

#[test]
fn rates_equal_pytorchs() {
    let file: Golden = golden("schedules.json");
    for run in &file.runs {
        let mut schedule = Schedule::new(&run.schedule, 64, file.epochs, file.steps_per_epoch).unwrap();
        if let ScheduleKind::Plateau(plateau) = &run.schedule.kind {
            let mut state: Option<PlateauState> = None;
            for (epoch, (want, score)) in run.lrs.iter().zip(&run.scores).enumerate() {
                close(&format!("{}, epoch {epoch}", run.name), schedule.lr(0), *want);
                schedule.set_drops(state.insert(plateau.after(state, *score)).drops);
            }
            assert!(schedule.drops() > 1, "{}: the rate never falls, so nothing is tested", run.name);
            continue;
        }
        assert_eq!(run.lrs.len() as u64, schedule.total_steps());
        for (step, want) in (0..).zip(&run.lrs) {
            close(&format!("{}, step {step}", run.name), schedule.lr(step), *want);
        }
        for step in 0..schedule.total_steps() {
            let (got, want) = (schedule.momentum(step), run.momenta.get(step as usize));
            assert_eq!(got.is_some(), want.is_some(), "{}", run.name);
            close(&format!("momentum of {}, step {step}", run.name), got.unwrap_or(0.0), want.copied().unwrap_or(0.0));
        }
    }
    let cycled = file.runs.iter().filter(|run| !run.momenta.is_empty()).count();
    assert_eq!(cycled, 2, "two schedules must set the momentum");
    let named = |kind: &str| file.runs.iter().any(|run| run.schedule.kind.name() == kind);
    assert!(["one_cycle", "warm_restarts", "plateau"].into_iter().all(named));
}

/// A run limited by steps may end within an epoch. Its schedule ends at the same step.
#[test]
fn a_limit_of_steps_shortens_the_schedule() {
    let spec: ScheduleSpec = toml::from_str("kind = \"cosine\"\nbase_lr = 0.1\nwarmup_epochs = 1").unwrap();
    let schedule = Schedule::over(&spec, 64, 25, 10).unwrap();
    assert_eq!((schedule.total_steps(), schedule.epochs()), (25, 2.5));
    close("start", schedule.lr(10), 0.1);
    close("end", schedule.lr(25), 0.0);
    let error = Schedule::over(&spec, 64, 8, 10).unwrap_err();
    assert_eq!(error.key, "warmup_epochs");
    assert!(error.why.contains("epochs = 0.8") && error.why.contains("got 1"), "{error}");
}
