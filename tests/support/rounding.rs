//! Bounds for the rounding errors of f32 arithmetic. They depend on the lengths of the sums and on how the result reacts to such errors.

use super::numerics::{largest, magnitude, noise};

/// The unit roundoff of f32: half the distance from 1 to the next value.
const U: f64 = 1.0 / (1 << 24) as f64;

/// Number of random draws of errors.
const DRAWS: u64 = 3;

/// Returns the relative error of a sum of `n` products in f32, in any order: 4 sqrt(n) u.
///
/// Rounding errors behave as if they were independent, so only one in thousands of sums has a larger error (Higham and
/// Mary 2019, theorem 2.4). The worst case n u would hide the errors that the tests look for.
pub fn spread(n: usize) -> f64 {
    4.0 * (n as f64).sqrt() * U
}

/// Returns the values with random errors, as if each were a sum of `n` products: each value times 1 ± [`spread`], from draw `k`.
pub fn shaken(values: &[f32], n: usize, k: u64) -> Vec<f32> {
    let errors = noise(values.len(), 7_000 + k, spread(n));
    values
        .iter()
        .zip(errors)
        .map(|(value, error)| (f64::from(*value) * (1.0 + f64::from(error.signum()) * spread(n))) as f32)
        .collect()
}

/// Returns each group of results of a computation with the tolerance for f32.
///
/// The tolerance is twice the largest effect of errors in the inputs, which stand for errors in the sums. `compute(None)` returns the exact
/// results, `compute(Some(k))` the results for inputs that [`shaken`] has changed with draw `k`.
pub fn with_tolerances(compute: impl Fn(Option<u64>) -> Vec<Vec<f64>>) -> Vec<(Vec<f64>, f64)> {
    let exact = compute(None);
    let mut furthest = vec![0.0f64; exact.len()];
    for k in 0..DRAWS {
        for (furthest, (got, want)) in furthest.iter_mut().zip(compute(Some(k)).iter().zip(&exact)) {
            let distance = largest(got.iter().zip(want).map(|(got, want)| got - want));
            *furthest = furthest.max(distance);
        }
    }
    let with = |(results, furthest): (Vec<f64>, f64)| {
        // the results themselves are rounded to f32
        let tolerance = 2.0 * (furthest + U * magnitude(&results));
        (results, tolerance)
    };
    exact.into_iter().zip(furthest).map(with).collect()
}
