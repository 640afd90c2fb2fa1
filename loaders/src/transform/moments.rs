//! Mean and variance of floats, in f64 and in one fixed order of summation.

/// Values that are summed in parallel, so that additions need not wait for each other.
const LANES: usize = 8;

/// The mean; 0 for no values.
pub(super) fn mean(values: &[f32]) -> f64 {
    sum(values, |x| x) / (values.len().max(1)) as f64
}

/// The mean square distance from `mean` (population variance); 0 for no values.
pub(super) fn variance(values: &[f32], mean: f64) -> f64 {
    sum(values, |x| (x - mean) * (x - mean)) / (values.len().max(1)) as f64
}

fn sum(values: &[f32], term: impl Fn(f64) -> f64) -> f64 {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane += term(f64::from(value));
        }
    }
    let rest: f64 = rest.iter().map(|&value| term(f64::from(value))).sum();
    lanes.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_one_to_eleven() {
        let values: Vec<f32> = (1..=11).map(|i| i as f32).collect();
        assert_eq!(mean(&values), 6.0);
        assert_eq!(variance(&values, 6.0), 10.0);
        assert_eq!(mean(&[]), 0.0);
    }
}
