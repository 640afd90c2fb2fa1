//! Eigenvectors of a small symmetric matrix.

/// Sweeps over all pairs of rows; a matrix of 64 rows takes less than ten.
const SWEEPS: usize = 60;

/// One eigenvalue and its vector, of length 1, whose largest component is positive.
#[derive(Clone, Debug, PartialEq)]
pub struct Eigen {
    /// The value.
    pub value: f64,
    /// The vector.
    pub vector: Vec<f64>,
}

/// Eigenvalues, the largest first, of a symmetric matrix of `n` rows, by Jacobi's rotations (Golub and Van Loan, Matrix Computations,
/// 8.5): slow for large matrices, exact to the last bits for small ones.
pub fn eigen(mut a: Vec<f64>, n: usize) -> Vec<Eigen> {
    let mut v: Vec<f64> = (0..n * n).map(|i| f64::from(u8::from(i / n == i % n))).collect();
    for _ in 0..SWEEPS {
        let off: f64 = (0..n * n).filter(|i| i / n != i % n).map(|i| a[i] * a[i]).sum();
        let all: f64 = a.iter().map(|x| x * x).sum();
        if off <= all * 1e-30 {
            break;
        }
        for p in 0..n {
            for q in p + 1..n {
                rotate(&mut a, &mut v, n, (p, q));
            }
        }
    }
    let mut found: Vec<Eigen> =
        (0..n).map(|k| oriented(a[k * n + k], (0..n).map(|i| v[i * n + k]).collect())).collect();
    found.sort_by(|x, y| y.value.total_cmp(&x.value));
    found
}

/// Makes element (p, q) of `a` zero, and turns the columns of `v` along.
fn rotate(a: &mut [f64], v: &mut [f64], n: usize, (p, q): (usize, usize)) {
    let apq = a[p * n + q];
    if apq == 0.0 {
        return;
    }
    let tau = (a[q * n + q] - a[p * n + p]) / (2.0 * apq);
    let t = tau.signum() / (tau.abs() + tau.hypot(1.0));
    let c = 1.0 / t.hypot(1.0);
    let s = t * c;
    let turn = |m: &mut [f64], i: usize, j: usize| (m[i], m[j]) = (c * m[i] - s * m[j], s * m[i] + c * m[j]);
    for k in 0..n {
        turn(a, k * n + p, k * n + q);
        turn(v, k * n + p, k * n + q);
    }
    for k in 0..n {
        turn(a, p * n + k, q * n + k);
    }
}

fn oriented(value: f64, vector: Vec<f64>) -> Eigen {
    let largest = vector.iter().copied().max_by(|x, y| x.abs().total_cmp(&y.abs())).unwrap_or(1.0);
    Eigen { value, vector: vector.iter().map(|x| x * largest.signum()).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_rows_by_hand() {
        let [first, second] = eigen(vec![2.0, 1.0, 1.0, 2.0], 2).try_into().unwrap();
        let half = 0.5f64.sqrt();
        assert!((first.value - 3.0).abs() < 1e-14 && (second.value - 1.0).abs() < 1e-14);
        assert!(first.vector.iter().all(|x| (x - half).abs() < 1e-14), "{first:?}");
        assert!(second.vector.iter().sum::<f64>().abs() < 1e-14, "{second:?}");
    }

    /// A v = l v, vectors of length 1 at right angles, also where values are equal.
    #[test]
    fn values_and_vectors_of_larger_matrices() {
        for n in [1, 3, 12, 48] {
            let mut a = vec![0.0; n * n];
            for i in 0..n {
                for j in 0..=i {
                    let x = if i == j { 1.0 } else { ((i * 7 + j * 3) % 5) as f64 * 0.25 };
                    (a[i * n + j], a[j * n + i]) = (x, x);
                }
            }
            let found = eigen(a.clone(), n);
            assert!(found.windows(2).all(|pair| pair[0].value >= pair[1].value));
            for (k, Eigen { value, vector }) in found.iter().enumerate() {
                for (i, x) in vector.iter().enumerate() {
                    let product: f64 = (0..n).map(|j| a[i * n + j] * vector[j]).sum();
                    assert!((product - value * x).abs() < 1e-12, "{n} rows, value {k}");
                }
                for other in &found[k + 1..] {
                    let dot: f64 = vector.iter().zip(&other.vector).map(|(x, y)| x * y).sum();
                    assert!(dot.abs() < 1e-12);
                }
                let length: f64 = vector.iter().map(|x| x * x).sum();
                assert!((length - 1.0).abs() < 1e-12);
            }
        }
    }
}
