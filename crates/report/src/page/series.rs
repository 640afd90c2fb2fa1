//! Curves thinned out to what a screen can show.

use serde_json::{Value, json};

/// Curves of a run that are drawn from its steps.
pub(super) const CURVES: usize = 7;

/// `{x, y}` of a curve over the steps; where there are more than `most`, means of runs of neighbours with their least and most as `lo`
/// and `hi`. Values that are no numbers are null, and left out of means. A curve without any number is null.
pub(super) fn thinned(points: impl Iterator<Item = (u64, f64)>, most: usize) -> Value {
    let points: Vec<(u64, f64)> = points.collect();
    if !points.iter().any(|(_, y)| y.is_finite()) {
        return Value::Null;
    }
    if points.len() <= most {
        let (x, y): (Vec<u64>, Vec<f64>) = points.into_iter().unzip();
        return json!({ "x": x, "y": y });
    }
    let groups: Vec<Group> = (0..most).map(|k| Group::of(group(&points, k, most))).collect();
    json!({
        "x": groups.iter().map(|group| group.x).collect::<Vec<_>>(),
        "y": groups.iter().map(|group| group.mean).collect::<Vec<_>>(),
        "lo": groups.iter().map(|group| group.least).collect::<Vec<_>>(),
        "hi": groups.iter().map(|group| group.most).collect::<Vec<_>>(),
    })
}

/// The k-th of `parts` parts that differ by one point at most.
fn group(points: &[(u64, f64)], k: usize, parts: usize) -> &[(u64, f64)] {
    &points[k * points.len() / parts..(k + 1) * points.len() / parts]
}

/// Neighbours as one point.
struct Group {
    /// The last step.
    x: u64,
    mean: f64,
    least: f64,
    most: f64,
}

impl Group {
    fn of(points: &[(u64, f64)]) -> Self {
        let known = || points.iter().map(|(_, y)| *y).filter(|y| y.is_finite());
        Self {
            x: points.last().map_or(0, |(x, _)| *x),
            mean: known().sum::<f64>() / known().count() as f64,
            least: known().fold(f64::NAN, f64::min),
            most: known().fold(f64::NAN, f64::max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_points_stay_and_many_become_means() {
        assert_eq!(thinned([(1, 0.5), (3, f64::NAN)].into_iter(), 4), json!({"x": [1, 3], "y": [0.5, null]}));
        let many = thinned((1..=9).map(|step| (step, step as f64)), 3);
        assert_eq!(many, json!({"x": [3, 6, 9], "y": [2.0, 5.0, 8.0], "lo": [1.0, 4.0, 7.0], "hi": [3.0, 6.0, 9.0]}));
        let holes = thinned([(1, f64::NAN), (2, f64::NAN), (3, 1.0), (4, f64::INFINITY)].into_iter(), 2);
        assert_eq!(holes, json!({"x": [2, 4], "y": [null, 1.0], "lo": [null, 1.0], "hi": [null, 1.0]}));
        assert_eq!(thinned([(1, f64::NAN)].into_iter(), 2), Value::Null);
    }
}
