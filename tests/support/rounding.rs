//! How far f32 arithmetic may be from a result, from the lengths of its sums and from how the result answers to such errors. No
//! expectations of its own.

use super::numerics::{magnitude, noise};

/// Half the distance from 1 to the next f32.
const U: f64 = 1.0 / (1 << 24) as f64;

/// Draws of errors.
const DRAWS: u64 = 3;

/// Relative error of a sum of `n` products in f32, in any order: 4 sqrt(n) u. Rounding errors are as good as independent, and then it is
/// larger once in thousands of sums (Higham and Mary 2019, theorem 2.4); n u, which it never exceeds, would hide the errors that tests
/// are for.
pub fn spread(n: usize) -> f64 {
    4.0 * (n as f64).sqrt() * U
}

/// The values as sums of `n` products may have come out: each times 1 +- [`spread`], by the `k`-th draw.
pub fn shaken(values: &[f32], n: usize, k: u64) -> Vec<f32> {
    let errors = noise(values.len(), 7_000 + k, spread(n));
    values
        .iter()
        .zip(errors)
        .map(|(value, error)| (f64::from(*value) * (1.0 + f64::from(error.signum()) * spread(n))) as f32)
        .collect()
}

/// Results of a computation, and how far f32 may be from each group of them: twice as far as errors in its inputs take it, which are as
/// good as errors in its sums. `compute(None)` gives the results, `compute(Some(k))` those of inputs that [`shaken`] changed.
pub fn with_tolerances(compute: impl Fn(Option<u64>) -> Vec<Vec<f64>>) -> Vec<(Vec<f64>, f64)> {
    let exact = compute(None);
    let mut furthest = vec![0.0f64; exact.len()];
    for k in 0..DRAWS {
        for (furthest, (got, want)) in furthest.iter_mut().zip(compute(Some(k)).iter().zip(&exact)) {
            let distance = got.iter().zip(want).map(|(got, want)| (got - want).abs()).fold(0.0, f64::max);
            *furthest = furthest.max(distance);
        }
    }
    let with = |(results, furthest): (Vec<f64>, f64)| {
        // and the results themselves are f32
        let tolerance = 2.0 * (furthest + U * magnitude(&results));
        (results, tolerance)
    };
    exact.into_iter().zip(furthest).map(with).collect()
}
