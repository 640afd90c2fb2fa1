//! `lighting(std)`: adds E (a * l) to every pixel, E and l the eigenvectors and eigenvalues of the colours
//! of ImageNet, a three numbers from N(0, std^2) for each image (Krizhevsky et al. 2012, section 4.1; their
//! std is 0.1). Not clipped.

use std::fmt;

use crate::random::Draws;
use crate::transform::arguments::only_rgb;
use crate::transform::canvas::Canvas;
use crate::transform::op::{Context, Transform};
use crate::transform::planes::rgb;

/// Roots of the eigenvalues of the covariance of RGB over ImageNet, for values 0 to 1.
const EIGENVALUES: [f64; 3] = [0.2175, 0.0188, 0.0045];
/// Eigenvectors in columns; rows are red, green, blue.
const EIGENVECTORS: [[f64; 3]; 3] =
    [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]];

#[derive(Debug)]
struct Lighting {
    std: f64,
}

pub(super) fn build(arguments: &[f64], context: Context<'_>) -> Result<Box<dyn Transform>, String> {
    let [std] = *arguments else {
        return Err(format!("expected 1 argument, got {}", arguments.len()));
    };
    if std < 0.0 {
        return Err(format!("expected at least 0, got {std}"));
    }
    only_rgb(context.input)?;
    Ok(Box::new(Lighting { std }))
}

impl Transform for Lighting {
    fn apply(&self, image: &mut Canvas<'_>, draws: &mut Draws) {
        let ((a, b), (c, _)) = (draws.normals(), draws.normals());
        let alpha = [a, b, c].map(|z| f64::from(z) * self.std);
        for (plane, row) in rgb(image.floats()).into_iter().zip(EIGENVECTORS) {
            let shift: f64 = (0..3).map(|k| row[k] * alpha[k] * EIGENVALUES[k]).sum();
            let shift = (255.0 * shift) as f32;
            for value in plane {
                *value += shift;
            }
        }
    }
}

impl fmt::Display for Lighting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lighting({})", self.std)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ImageSpec;
    use crate::transform::testing::run;

    #[test]
    fn shifts_have_the_covariance_of_the_eigenvectors() {
        let n = 20_000;
        let mut sums = [[0.0; 3]; 3];
        for id in 0..n {
            let out = run(build, "lighting(0.1)", ImageSpec::new(1, 1, 3), &[100; 3], id);
            for (i, row) in sums.iter_mut().enumerate() {
                for (j, sum) in row.iter_mut().enumerate() {
                    *sum += f64::from((out[i] - 100.0) * (out[j] - 100.0));
                }
            }
        }
        for i in 0..3 {
            for j in 0..3 {
                let terms = (0..3).map(|k| EIGENVECTORS[i][k] * EIGENVECTORS[j][k] * (25.5 * EIGENVALUES[k]).powi(2));
                let expected: f64 = terms.sum();
                // About 10 each, with a standard error of 1 %.
                assert!((sums[i][j] / n as f64 - expected).abs() < 0.5, "{i} {j}");
            }
        }
    }
}
