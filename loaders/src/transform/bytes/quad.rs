//! Perspective maps: those that take four corners to four points.

/// Unknowns of a map.
const UNKNOWNS: usize = 8;

/// Four points (x, y): top left, top right, bottom right, bottom left.
pub(in crate::transform) type Quad = [(f64, f64); 4];

/// The coefficients of the map that takes the points `to` back to the points `from`:
/// x' = (a x + b y + c) / (g x + h y + 1), y' = (d x + e y + f) / (g x + h y + 1). `None` if three points of `to` lie on a line.
pub(in crate::transform) fn coefficients(from: Quad, to: Quad) -> Option<[f64; UNKNOWNS]> {
    let mut rows = [[0.0; UNKNOWNS + 1]; UNKNOWNS];
    for (i, ((x, y), (u, v))) in to.into_iter().zip(from).enumerate() {
        rows[2 * i] = [x, y, 1.0, 0.0, 0.0, 0.0, -u * x, -u * y, u];
        rows[2 * i + 1] = [0.0, 0.0, 0.0, x, y, 1.0, -v * x, -v * y, v];
    }
    solve(rows)
}

/// Gauss's elimination with the largest pivots; the last column is the right side.
fn solve(mut rows: [[f64; UNKNOWNS + 1]; UNKNOWNS]) -> Option<[f64; UNKNOWNS]> {
    for k in 0..UNKNOWNS {
        let pivot = (k..UNKNOWNS).max_by(|&a, &b| rows[a][k].abs().total_cmp(&rows[b][k].abs()))?;
        rows.swap(k, pivot);
        if rows[k][k].abs() < 1e-12 {
            return None;
        }
        let top = rows[k];
        for row in rows.iter_mut().skip(k + 1) {
            let factor = row[k] / top[k];
            row.iter_mut().zip(top).skip(k).for_each(|(value, above)| *value -= factor * above);
        }
    }
    let mut solution = [0.0; UNKNOWNS];
    for k in (0..UNKNOWNS).rev() {
        let known: f64 = (k + 1..UNKNOWNS).map(|i| rows[k][i] * solution[i]).sum();
        solution[k] = (rows[k][UNKNOWNS] - known) / rows[k][k];
    }
    Some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corners_go_to_their_points() {
        let from: Quad = [(0.0, 0.0), (31.0, 0.0), (31.0, 23.0), (0.0, 23.0)];
        let to: Quad = [(3.0, 2.0), (28.0, 5.0), (30.0, 20.0), (1.0, 22.0)];
        let [a, b, c, d, e, f, g, h] = coefficients(from, to).unwrap();
        for ((x, y), (u, v)) in to.into_iter().zip(from) {
            let below = g * x + h * y + 1.0;
            assert!(((a * x + b * y + c) / below - u).abs() < 1e-9 && ((d * x + e * y + f) / below - v).abs() < 1e-9);
        }
        assert_eq!(coefficients(from, [(0.0, 0.0), (1.0, 1.0), (2.0, 2.0), (5.0, 0.0)]), None);
    }
}
