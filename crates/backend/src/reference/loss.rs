//! Softmax cross-entropy in f64.

use crate::{CrossEntropy, Error, LossSums, TensorDesc};

/// Target of class c is (1 - s) [c = label] + s / K; the gradient of the scores is softmax - target.
/// A score counts as the best only if no other is as high at a smaller index, and never if it is NaN.
pub(super) fn cross_entropy(
    desc: &TensorDesc,
    ask: CrossEntropy<'_>,
    x: &[f32],
    mut dx: Option<&mut [f32]>,
) -> Result<LossSums, Error> {
    let classes = desc.shape.elems();
    let mut sums = LossSums { count: ask.labels.len() as u64, ..LossSums::default() };
    let smooth = ask.smoothing as f64;
    for (n, &label) in ask.labels.iter().enumerate() {
        let (row, label) = (&x[n * classes..][..classes], label as usize);
        if label >= classes {
            return Err(Error::Size {
                op: "cross-entropy".into(),
                expected: format!("labels below {classes}"),
                got: label.to_string(),
            });
        }
        let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max) as f64;
        let total: f64 = row.iter().map(|v| (*v as f64 - top).exp()).sum();
        let log = |v: f32| v as f64 - top - total.ln();
        let mean_log = row.iter().map(|v| log(*v)).sum::<f64>() / classes as f64;
        sums.loss -= (1.0 - smooth) * log(row[label]) + smooth * mean_log;
        let rank = row.iter().enumerate().filter(|&(i, v)| *v > row[label] || (*v == row[label] && i < label)).count();
        if !row[label].is_nan() {
            sums.top1 += u64::from(rank == 0);
            sums.top5 += u64::from(rank < 5);
        }
        if let Some(dx) = dx.as_deref_mut() {
            for (i, d) in dx[n * classes..][..classes].iter_mut().enumerate() {
                let target = smooth / classes as f64 + if i == label { 1.0 - smooth } else { 0.0 };
                *d = ((log(row[i]).exp() - target) * (ask.scale * ask.weight) as f64) as f32;
            }
        }
    }
    Ok(sums)
}
