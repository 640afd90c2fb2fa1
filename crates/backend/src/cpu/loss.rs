//! Softmax cross-entropy over (rows, classes) scores, and losses against soft targets, as [`crate::Objective`] defines
//! them. Values are computed in f32 and summed in f64.

use crate::{CrossEntropy, Distance, Error, LossForm, LossSums, Objective, SoftLoss, Teaching, TensorDesc};

/// Implements [`crate::Backend::cross_entropy`]. The target of class c is (1 - s) [c = label] + s / K, with smoothing s
/// and K classes.
pub(super) fn cross_entropy(
    desc: &TensorDesc,
    args: CrossEntropy<'_>,
    x: &[f32],
    mut dx: Option<&mut [f32]>,
) -> Result<LossSums, Error> {
    // Padding channels follow the classes in each row.
    let (classes, row_elems) = (desc.shape.elems(), desc.sample_elems());
    let scale = args.scale * args.weight;
    let mut sums = LossSums { count: args.labels.len() as u64, ..LossSums::default() };
    for n in 0..args.labels.len() {
        let row = &x[n * row_elems..][..classes];
        let (label, place) = args.label_and_place(n, row)?;
        sums.count_place(place);
        let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f32 = row.iter().map(|v| (v - top).exp()).sum();
        let log_total = total.ln();
        let mean: f32 = row.iter().map(|v| v - top).sum::<f32>() / classes as f32;
        let expected = (1.0 - args.smoothing) * (row[label] - top) + args.smoothing * mean;
        sums.loss += f64::from(log_total - expected);
        if let Some(dx) = dx.as_deref_mut() {
            let even = args.smoothing / classes as f32;
            let (dx, padding) = dx[n * row_elems..][..row_elems].split_at_mut(classes);
            padding.fill(0.0);
            for (d, v) in dx.iter_mut().zip(row) {
                *d = ((v - top).exp() / total - even) * scale;
            }
            dx[label] -= (1.0 - args.smoothing) * scale;
        }
    }
    Ok(sums)
}

/// Lower bound for a probability that is the base of a power.
const LEAST: f32 = 1e-30;

/// Implements [`crate::Backend::soft_loss`].
pub(super) fn soft_loss(
    desc: &TensorDesc,
    args: SoftLoss<'_>,
    x: &[f32],
    teacher: Option<(&TensorDesc, &[f32])>,
    mut dx: Option<&mut [f32]>,
) -> Result<LossSums, Error> {
    // Padding channels follow the classes in each row.
    let (classes, row_elems) = (desc.shape.elems(), desc.sample_elems());
    args.targets.check(classes)?;
    let mut sums = LossSums { count: args.targets.rows() as u64, ..LossSums::default() };
    let mut slopes = vec![0.0; classes];
    for n in 0..args.targets.rows() {
        let row = &x[n * row_elems..][..classes];
        let (weight, targets) = args.targets.row(n, classes);
        let factor = args.objective.factor(f64::from(weight), classes);
        let loss = match args.objective.form {
            LossForm::Softmax => softmax(row, targets, args.objective, &mut slopes),
            LossForm::Sigmoid { alpha, .. } => sigmoid(row, targets, args.objective, alpha, &mut slopes),
            LossForm::Distance(distance) => distances(row, targets, distance, &mut slopes),
        };
        slopes.iter_mut().for_each(|slope| *slope *= factor as f32);
        sums.loss += loss * factor;
        if let (Some(teaching), Some((desc, scores))) = (args.objective.teacher, teacher) {
            let taught = &scores[n * desc.sample_elems()..][..classes];
            sums.loss += f64::from(weight) * teach(row, taught, teaching, weight, &mut slopes);
        }
        sums.count_place(args.targets.place(args.objective.form, n, row));
        if let Some(dx) = dx.as_deref_mut() {
            let (dx, padding) = dx[n * row_elems..][..row_elems].split_at_mut(classes);
            padding.fill(0.0);
            let scale = args.scale * args.weight;
            dx.iter_mut().zip(&slopes).for_each(|(d, slope)| *d = slope * scale);
        }
    }
    Ok(sums)
}

/// The largest score, and the logarithm of the sum of exp((z - largest) / temperature) over all scores z.
struct Normalizer {
    top: f32,
    log_total: f32,
    temperature: f32,
}

impl Normalizer {
    fn of(row: &[f32], temperature: f32) -> Self {
        let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f32 = row.iter().map(|v| ((v - top) / temperature).exp()).sum();
        Self { top, log_total: total.ln(), temperature }
    }

    /// Returns the logarithm of a score's probability.
    fn log(&self, score: f32) -> f32 {
        (score - self.top) / self.temperature - self.log_total
    }
}

/// Returns the loss L and writes its gradient with respect to the scores to `slopes`. With p = softmax of the scores
/// and h_c = dL / d log p_c, the gradient of score k is h_k - p_k (sum of h).
fn softmax(row: &[f32], targets: &[f32], objective: Objective, slopes: &mut [f32]) -> f64 {
    let (normalizer, gamma) = (Normalizer::of(row, 1.0), objective.gamma);
    let (mut loss, mut total) = (0.0, 0.0);
    for ((slope, v), t) in slopes.iter_mut().zip(row).zip(targets) {
        let log = normalizer.log(*v);
        (*slope, loss) = match gamma > 0.0 {
            true => {
                let wrong = (-log.exp_m1()).max(LEAST);
                let focus = wrong.powf(gamma);
                (t * (gamma * log.exp() * (focus / wrong) * log - focus), loss - f64::from(t * focus * log))
            }
            false => (-t, loss - f64::from(t * log)),
        };
        total += f64::from(*slope);
    }
    let total = total as f32;
    slopes.iter_mut().zip(row).for_each(|(slope, v)| *slope -= normalizer.log(*v).exp() * total);
    loss
}

fn sigmoid(row: &[f32], targets: &[f32], objective: Objective, alpha: Option<f32>, slopes: &mut [f32]) -> f64 {
    let gamma = objective.gamma;
    let mut loss = 0.0;
    for ((slope, &z), &t) in slopes.iter_mut().zip(row).zip(targets) {
        // log(1 + exp(-|z|)), which both logarithms contain.
        let tail = (-z.abs()).exp().ln_1p();
        let entropy = z.max(0.0) - z * t + tail;
        let p = 1.0 / (1.0 + (-z).exp());
        let balance = alpha.map_or(1.0, |alpha| alpha * t + (1.0 - alpha) * (1.0 - t));
        let (focus, focus_slope) = match gamma > 0.0 {
            true => {
                let wrong = (p * (1.0 - t) + (1.0 - p) * t).max(LEAST);
                let focus = wrong.powf(gamma);
                (focus, -gamma * (focus / wrong) * (2.0 * t - 1.0) * p * (1.0 - p))
            }
            false => (1.0, 0.0),
        };
        loss += f64::from(balance * focus * entropy);
        *slope = balance * (focus * (p - t) + focus_slope * entropy);
    }
    loss
}

fn distances(row: &[f32], targets: &[f32], distance: Distance, slopes: &mut [f32]) -> f64 {
    let mut loss = 0.0;
    for ((slope, z), t) in slopes.iter_mut().zip(row).zip(targets) {
        let [own, derivative] = distance.loss(f64::from(*z) - f64::from(*t));
        loss += own;
        *slope = derivative as f32;
    }
    loss
}

/// Returns the loss of a row against the teacher's scores, without the row's weight. Adds the gradient of this loss to
/// `slopes`, multiplied by the row's weight.
fn teach(row: &[f32], taught: &[f32], teaching: Teaching, weight: f32, slopes: &mut [f32]) -> f64 {
    let Teaching { share, temperature } = teaching;
    let (own, teacher) = (Normalizer::of(row, temperature), Normalizer::of(taught, temperature));
    let mut divergence = 0.0;
    for ((slope, v), w) in slopes.iter_mut().zip(row).zip(taught) {
        let (p, q) = (own.log(*v), teacher.log(*w));
        divergence += f64::from(q.exp() * (q - p));
        *slope += weight * share * temperature * (p.exp() - q.exp());
    }
    f64::from(share * temperature * temperature) * divergence
}
