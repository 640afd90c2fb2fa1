//! Softmax cross-entropy over (rows, classes) scores: f32 values, f64 sums.

use crate::{CrossEntropy, Error, LossSums, TensorDesc};

/// See [`crate::Backend::cross_entropy`]. Target of class c is (1 - s) [c = label] + s / K.
pub(super) fn cross_entropy(
    desc: &TensorDesc,
    ask: CrossEntropy<'_>,
    x: &[f32],
    mut dx: Option<&mut [f32]>,
) -> Result<LossSums, Error> {
    // channels that pad a block lie behind each row
    let (classes, row_elems) = (desc.shape.elems(), desc.sample_elems());
    let scale = ask.scale * ask.weight;
    let mut sums = LossSums { count: ask.labels.len() as u64, ..LossSums::default() };
    for (n, &label) in ask.labels.iter().enumerate() {
        let label = label as usize;
        let row = &x[n * row_elems..][..classes];
        let Some(&own) = row.get(label) else {
            let (expected, got) = (format!("labels below {classes}"), label.to_string());
            return Err(Error::Size { op: "cross-entropy".into(), expected, got });
        };
        let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f32 = row.iter().map(|v| (v - top).exp()).sum();
        let log_total = total.ln();
        let mean: f32 = row.iter().map(|v| v - top).sum::<f32>() / classes as f32;
        let expected = (1.0 - ask.smoothing) * (own - top) + ask.smoothing * mean;
        sums.loss += f64::from(log_total - expected);
        let better = row.iter().enumerate().filter(|&(i, v)| *v > own || (*v == own && i < label)).count();
        if !own.is_nan() {
            sums.top1 += u64::from(better == 0);
            sums.top5 += u64::from(better < 5);
        }
        if let Some(dx) = dx.as_deref_mut() {
            let even = ask.smoothing / classes as f32;
            let (dx, padding) = dx[n * row_elems..][..row_elems].split_at_mut(classes);
            padding.fill(0.0);
            for (d, v) in dx.iter_mut().zip(row) {
                *d = ((v - top).exp() / total - even) * scale;
            }
            dx[label] -= (1.0 - ask.smoothing) * scale;
        }
    }
    Ok(sums)
}
