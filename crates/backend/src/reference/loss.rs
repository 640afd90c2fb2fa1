//! Softmax cross-entropy, and losses with soft targets as [`crate::Objective`] defines them. Computed in f64, class by
//! class.

use crate::{CrossEntropy, Distance, Error, LossForm, LossSums, Objective, SoftLoss, Teaching, TensorDesc};

/// The target of class c is (1 - s) [c = label] + s / K for K classes, where s is the smoothing. The gradient of the
/// scores is softmax - target. If scores are equal, the class with the smallest index ranks first. NaN is never the
/// best score.
pub(super) fn cross_entropy(
    desc: &TensorDesc,
    args: CrossEntropy<'_>,
    x: &[f32],
    mut dx: Option<&mut [f32]>,
) -> Result<LossSums, Error> {
    let classes = desc.shape.elems();
    let mut sums = LossSums { count: args.labels.len() as u64, ..LossSums::default() };
    let smooth = args.smoothing as f64;
    for n in 0..args.labels.len() {
        let row = &x[n * classes..][..classes];
        let (label, place) = args.label_and_place(n, row)?;
        sums.count_place(place);
        let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max) as f64;
        let total: f64 = row.iter().map(|v| (*v as f64 - top).exp()).sum();
        let log = |v: f32| v as f64 - top - total.ln();
        let mean_log = row.iter().map(|v| log(*v)).sum::<f64>() / classes as f64;
        sums.loss -= (1.0 - smooth) * log(row[label]) + smooth * mean_log;
        if let Some(dx) = dx.as_deref_mut() {
            for (i, d) in dx[n * classes..][..classes].iter_mut().enumerate() {
                let target = smooth / classes as f64 + if i == label { 1.0 - smooth } else { 0.0 };
                *d = ((log(row[i]).exp() - target) * (args.scale * args.weight) as f64) as f32;
            }
        }
    }
    Ok(sums)
}

/// Lower limit of a probability that is raised to a power.
const LEAST: f64 = 1e-30;

/// The loss of a row and its gradient with respect to each score.
struct Row {
    loss: f64,
    slopes: Vec<f64>,
}

/// Implements [`crate::Backend::soft_loss`].
pub(super) fn soft_loss(
    desc: &TensorDesc,
    args: SoftLoss<'_>,
    x: &[f32],
    teacher: Option<&[f32]>,
    mut dx: Option<&mut [f32]>,
) -> Result<LossSums, Error> {
    let classes = desc.shape.elems();
    args.targets.check(classes)?;
    let mut sums = LossSums { count: args.targets.rows() as u64, ..LossSums::default() };
    for n in 0..args.targets.rows() {
        let scores = &x[n * classes..][..classes];
        let (weight, targets) = args.targets.row(n, classes);
        let factor = args.objective.factor(f64::from(weight), classes);
        let z: Vec<f64> = scores.iter().map(|v| f64::from(*v)).collect();
        let t: Vec<f64> = targets.iter().map(|v| f64::from(*v)).collect();
        let mut row = match args.objective.form {
            LossForm::Softmax => softmax(&z, &t, args.objective),
            LossForm::Sigmoid { alpha, .. } => sigmoid(&z, &t, args.objective, alpha.map(f64::from)),
            LossForm::Distance(distance) => distances(&z, &t, distance),
        };
        row.loss *= factor;
        row.slopes.iter_mut().for_each(|slope| *slope *= factor);
        if let (Some(teaching), Some(teacher)) = (args.objective.teacher, teacher) {
            let taught: Vec<f64> = teacher[n * classes..][..classes].iter().map(|v| f64::from(*v)).collect();
            teach(&mut row, &z, &taught, teaching, f64::from(weight));
        }
        sums.loss += row.loss;
        sums.count_place(args.targets.place(args.objective.form, n, scores));
        if let Some(dx) = dx.as_deref_mut() {
            let scale = f64::from(args.scale * args.weight);
            let dx = &mut dx[n * classes..][..classes];
            dx.iter_mut().zip(&row.slopes).for_each(|(d, slope)| *d = (slope * scale) as f32);
        }
    }
    Ok(sums)
}

fn log_softmax(z: &[f64], temperature: f64) -> Vec<f64> {
    let top = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = z.iter().map(|v| ((v - top) / temperature).exp()).sum();
    z.iter().map(|v| (v - top) / temperature - total.ln()).collect()
}

/// Returns the loss L of scores `z` with targets `t`. With p = softmax(z) and h_c = dL / d log p_c, the gradient of
/// score k is h_k - p_k (sum of h).
fn softmax(z: &[f64], t: &[f64], objective: Objective) -> Row {
    let gamma = f64::from(objective.gamma);
    let logs = log_softmax(z, 1.0);
    let wrong = |log: f64| (1.0 - log.exp()).max(LEAST);
    let loss = |(log, t): (&f64, &f64)| -t * if gamma > 0.0 { wrong(*log).powf(gamma) } else { 1.0 } * log;
    let slope = |(log, t): (&f64, &f64)| match gamma > 0.0 {
        true => t * (gamma * log.exp() * wrong(*log).powf(gamma - 1.0) * log - wrong(*log).powf(gamma)),
        false => -t,
    };
    let own: Vec<f64> = logs.iter().zip(t).map(slope).collect();
    let total: f64 = own.iter().sum();
    let slopes = own.iter().zip(&logs).map(|(own, log)| own - log.exp() * total).collect();
    Row { loss: logs.iter().zip(t).map(loss).sum(), slopes }
}

fn sigmoid(z: &[f64], t: &[f64], objective: Objective, alpha: Option<f64>) -> Row {
    let gamma = f64::from(objective.gamma);
    let mut row = Row { loss: 0.0, slopes: Vec::new() };
    for (z, t) in z.iter().zip(t) {
        // -log(1 + exp(-z)) without overflow
        let log = |z: f64| z.min(0.0) - (-z.abs()).exp().ln_1p();
        let p = log(*z).exp();
        let entropy = -t * log(*z) - (1.0 - t) * log(-z);
        let right = p * t + (1.0 - p) * (1.0 - t);
        let wrong = (1.0 - right).max(LEAST);
        let balance = alpha.map_or(1.0, |alpha| alpha * t + (1.0 - alpha) * (1.0 - t));
        let (focus, focus_slope) = match gamma > 0.0 {
            true => (wrong.powf(gamma), -gamma * wrong.powf(gamma - 1.0) * (2.0 * t - 1.0) * p * (1.0 - p)),
            false => (1.0, 0.0),
        };
        row.loss += balance * focus * entropy;
        row.slopes.push(balance * (focus * (p - t) + focus_slope * entropy));
    }
    row
}

fn distances(z: &[f64], t: &[f64], distance: Distance) -> Row {
    let (losses, slopes): (Vec<f64>, Vec<f64>) = z.iter().zip(t).map(|(z, t)| distance.loss(z - t).into()).unzip();
    Row { loss: losses.iter().sum(), slopes }
}

/// Adds the teacher's part of the loss.
fn teach(row: &mut Row, z: &[f64], taught: &[f64], teaching: Teaching, weight: f64) {
    let (share, temperature) = (f64::from(teaching.share), f64::from(teaching.temperature));
    let (own, taught) = (log_softmax(z, temperature), log_softmax(taught, temperature));
    let divergence: f64 = own.iter().zip(&taught).map(|(p, q)| q.exp() * (q - p)).sum();
    row.loss += weight * share * temperature * temperature * divergence;
    for ((slope, p), q) in row.slopes.iter_mut().zip(&own).zip(&taught) {
        *slope += weight * share * temperature * (p.exp() - q.exp());
    }
}
