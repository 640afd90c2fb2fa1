//! Compares schedules with numbers that were calculated by hand.

use super::*;

fn close(got: f64, want: f64) {
    assert!((got - want).abs() <= 1e-12 * want.abs().max(1e-3), "got {got}, want {want}");
}

/// Checks `(step, rate)` pairs of a run of `epochs` epochs with ten steps each.
fn table(spec: &ScheduleSpec, batch: usize, epochs: u32, rows: &[(u64, f64)]) {
    let schedule = Schedule::new(spec, batch, epochs, 10).unwrap();
    for &(step, want) in rows {
        close(schedule.lr(step), want);
    }
}

fn spec(kind: ScheduleKind, base_lr: f64) -> ScheduleSpec {
    ScheduleSpec { kind, ..ScheduleSpec::constant(base_lr) }
}

fn step(milestones: &[f64]) -> ScheduleKind {
    ScheduleKind::Step(Step { milestones: milestones.to_vec(), gamma: None })
}

fn cosine(end_lr: Option<f64>) -> ScheduleKind {
    ScheduleKind::Cosine(Cosine { end_lr })
}

#[test]
fn constant_schedule_never_changes() {
    table(&ScheduleSpec::constant(0.1), 128, 3, &[(0, 0.1), (17, 0.1), (29, 0.1), (1000, 0.1)]);
}

#[test]
fn milestones_count_from_epoch_0_even_with_a_warmup() {
    let mut spec = spec(step(&[4.0, 6.5]), 0.1);
    let rows = [(0, 0.1), (39, 0.1), (40, 0.01), (64, 0.01), (65, 0.001), (79, 0.001)];
    table(&spec, 128, 8, &rows);
    spec.warmup_epochs = 2.0;
    let warm = [(0, 0.0), (5, 0.025), (10, 0.05), (19, 0.095), (20, 0.1), (39, 0.1), (40, 0.01)];
    table(&spec, 128, 8, &warm);
}

#[test]
fn warmup_of_a_scaled_rate_starts_at_the_base() {
    // Goyal et al.: 0.1 per 256 images. With batch 1024, the rate rises from 0.1 to 0.4.
    let mut spec = ScheduleSpec::constant(0.1);
    spec.reference_batch = Some(256);
    spec.warmup_epochs = 5.0;
    table(&spec, 1024, 10, &[(0, 0.1), (1, 0.106), (25, 0.25), (49, 0.394), (50, 0.4), (99, 0.4)]);
    // At the reference batch, the target equals the base, so the warm-up starts at 0.
    table(&spec, 256, 10, &[(0, 0.0), (25, 0.05), (50, 0.1)]);
    // Below the reference batch, the target is less than the base: 0.05. The warm-up starts at 0, too.
    table(&spec, 128, 10, &[(0, 0.0), (25, 0.025), (50, 0.05)]);
    spec.warmup_from = Some(WarmupFrom::Rate(0.2));
    table(&spec, 1024, 10, &[(0, 0.2), (25, 0.3), (50, 0.4)]);
    spec.warmup_from = Some(WarmupFrom::Base);
    table(&spec, 128, 10, &[(0, 0.1), (25, 0.075), (50, 0.05)]);
}

#[test]
fn cosine_covers_the_epochs_after_the_warmup() {
    let mut spec = spec(cosine(None), 0.4);
    let r = 2f64.sqrt() / 2.0;
    let rows = [(0, 0.4), (10, 0.2 * (1.0 + r)), (20, 0.2), (30, 0.2 * (1.0 - r)), (40, 0.0), (99, 0.0)];
    table(&spec, 64, 4, &rows);
    spec.warmup_epochs = 1.0;
    spec.kind = cosine(Some(0.1));
    table(&spec, 64, 5, &[(0, 0.0), (5, 0.2), (10, 0.4), (30, 0.25), (50, 0.1)]);
}

#[test]
fn end_lr_scales_with_the_batch() {
    let mut spec = spec(cosine(Some(0.01)), 0.1);
    spec.reference_batch = Some(64);
    table(&spec, 256, 2, &[(0, 0.4), (10, 0.22), (20, 0.04)]);
}

#[test]
fn polynomial_matches_hand_computed_rates() {
    let polynomial = |power, end_lr| spec(ScheduleKind::Polynomial(Polynomial { power, end_lr }), 1.0);
    table(&polynomial(None, None), 64, 2, &[(0, 1.0), (5, 0.75), (10, 0.5), (20, 0.0), (21, 0.0)]);
    table(&polynomial(Some(2.0), Some(0.2)), 64, 2, &[(0, 1.0), (5, 0.65), (10, 0.4), (15, 0.25), (20, 0.2)]);
    table(&polynomial(Some(0.5), None), 64, 2, &[(15, 0.5)]);
}

#[test]
fn exponential_decays_smoothly_or_in_stairs() {
    let mut decay = Exponential { gamma: Some(0.25), decay_epochs: Some(2.0), staircase: None };
    let mut spec = spec(ScheduleKind::Exponential(decay.clone()), 0.8);
    table(&spec, 64, 6, &[(0, 0.8), (10, 0.4), (20, 0.2), (40, 0.05)]);
    decay.staircase = Some(true);
    spec.kind = ScheduleKind::Exponential(decay);
    table(&spec, 64, 6, &[(0, 0.8), (19, 0.8), (20, 0.2), (39, 0.2), (40, 0.05)]);
    spec.warmup_epochs = 1.0;
    table(&spec, 64, 6, &[(5, 0.4), (10, 0.8), (29, 0.8), (30, 0.2)]);
    // 0.07 * 100 is 7.000000000000001
    let decay = Exponential { gamma: Some(0.25), decay_epochs: Some(0.07), staircase: Some(true) };
    let stairs = ScheduleSpec { kind: ScheduleKind::Exponential(decay), ..spec.clone() };
    let schedule = Schedule::new(&ScheduleSpec { warmup_epochs: 0.0, ..stairs }, 64, 1, 100).unwrap();
    [(6, 0.8), (7, 0.2), (13, 0.2), (14, 0.05)].iter().for_each(|&(step, want)| close(schedule.lr(step), want));
    // the rate falls twice in each step
    let decay = Exponential { gamma: Some(0.25), decay_epochs: Some(0.5), staircase: None };
    let fast = ScheduleSpec { kind: ScheduleKind::Exponential(decay), warmup_epochs: 0.0, ..spec };
    let schedule = Schedule::new(&fast, 64, 4, 1).unwrap();
    [(0, 0.8), (1, 0.05), (2, 0.003125)].iter().for_each(|&(step, want)| close(schedule.lr(step), want));
}

#[test]
fn the_start_line_says_where_the_rate_comes_from() {
    let mut spec = spec(step(&[30.0, 60.0, 80.0]), 0.1);
    spec.reference_batch = Some(256);
    spec.warmup_epochs = 5.0;
    let schedule = Schedule::new(&spec, 768, 90, 10).unwrap();
    assert_eq!(
        schedule.describe(),
        "lr 0.3 (= 0.1 x batch 768 / 256), warm-up from 0.1 over 5 epochs (50 steps), x0.1 at epochs 30, 60, 80"
    );
    assert_eq!(schedule.total_steps(), 900);
    let cosine = Schedule::new(&super::tests::spec(cosine(None), 0.05), 64, 3, 10).unwrap();
    assert_eq!(cosine.describe(), "lr 0.05, then cosine to 0");
}

#[test]
fn invalid_values_are_refused_with_their_key() {
    let key = |spec: &ScheduleSpec| spec.check(10).unwrap_err().key;
    assert_eq!(key(&ScheduleSpec::constant(-0.1)), "base_lr");
    assert_eq!(key(&ScheduleSpec::constant(f64::NAN)), "base_lr");
    let constant = ScheduleSpec::constant(0.1);
    assert_eq!(key(&ScheduleSpec { warmup_epochs: 10.0, ..constant.clone() }), "warmup_epochs");
    assert_eq!(key(&ScheduleSpec { reference_batch: Some(0), ..constant.clone() }), "reference_batch");
    assert_eq!(key(&spec(cosine(Some(-1.0)), 0.1)), "end_lr");
    let idle = ScheduleSpec { warmup_from: Some(WarmupFrom::Rate(0.1)), ..constant.clone() };
    assert_eq!(key(&idle), "warmup_from");
    let mut falling = spec(step(&[5.0, 5.0]), 0.1);
    let error = falling.check(10).unwrap_err();
    assert!(error.key == "milestones" && error.why.contains("ascend"), "{error}");
    falling.kind = step(&[2.0, 5.0]);
    falling.warmup_epochs = 3.0;
    assert_eq!(key(&falling), "milestones");
    falling.kind = step(&[3.0]);
    assert_eq!(falling.check(10), Ok(()));
    falling.kind = ScheduleKind::Step(Step { milestones: vec![3.0], gamma: Some(0.0) });
    assert_eq!(key(&falling), "gamma");
}
