//! How large images are: counts of their heights, widths and aspect ratios, in memory that does not grow with the images.

use crate::text;
use loaders::ImageSpec;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// Bounds of the bins of width / height.
const ASPECTS: [f64; 8] = [0.5, 0.67, 0.8, 0.95, 1.05, 1.25, 1.5, 2.0];

/// Counts of sizes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sizes {
    heights: BTreeMap<u32, u64>,
    widths: BTreeMap<u32, u64>,
    /// Images by width / height: below the first bound, then from each bound on.
    aspects: [u64; ASPECTS.len() + 1],
}

/// Least, middle (the lower one of two) and greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread {
    /// The least.
    pub min: u32,
    /// Half of all are at most this.
    pub median: u32,
    /// The greatest.
    pub max: u32,
}

impl Sizes {
    pub(crate) fn add(&mut self, spec: ImageSpec) {
        *self.heights.entry(spec.height).or_default() += 1;
        *self.widths.entry(spec.width).or_default() += 1;
        let aspect = f64::from(spec.width) / f64::from(spec.height.max(1));
        self.aspects[ASPECTS.partition_point(|end| *end <= aspect)] += 1;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in [(&mut self.heights, &other.heights), (&mut self.widths, &other.widths)] {
            for (side, count) in theirs {
                *mine.entry(*side).or_default() += count;
            }
        }
        for (mine, theirs) in self.aspects.iter_mut().zip(other.aspects) {
            *mine += theirs;
        }
    }

    /// The spread of the heights; `None` without images.
    pub fn height(&self) -> Option<Spread> {
        spread(&self.heights)
    }

    /// The spread of the widths; `None` without images.
    pub fn width(&self) -> Option<Spread> {
        spread(&self.widths)
    }

    /// Images by width / height: from, to (exclusive), number. The first bin begins at 0, the last has no end.
    pub fn aspects(&self) -> Vec<(f64, Option<f64>, u64)> {
        let from = std::iter::once(0.0).chain(ASPECTS);
        let to = ASPECTS.into_iter().map(Some).chain([None]);
        from.zip(to).zip(self.aspects).map(|((from, to), count)| (from, to, count)).collect()
    }

    /// The same for scripts.
    pub fn to_json(&self) -> Value {
        let spread = |s: Option<Spread>| s.map(|s| json!({"min": s.min, "median": s.median, "max": s.max}));
        let aspect = |(from, to, count): (f64, Option<f64>, u64)| json!({"from": from, "to": to, "count": count});
        json!({
            "height": spread(self.height()),
            "width": spread(self.width()),
            "aspects": self.aspects().into_iter().map(aspect).collect::<Vec<_>>(),
        })
    }
}

fn spread(counts: &BTreeMap<u32, u64>) -> Option<Spread> {
    let half = counts.values().sum::<u64>().div_ceil(2);
    let (&min, &max) = (counts.first_key_value()?.0, counts.last_key_value()?.0);
    let mut sum = 0;
    let median = counts.iter().find(|(_, count)| {
        sum += **count;
        sum >= half
    });
    Some(Spread { min, median: *median?.0, max })
}

/// One line if all are equal, else the spreads and a bar for each bin that is not empty.
impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(height), Some(width)) = (self.height(), self.width()) else {
            return write!(f, "  no images");
        };
        if height.min == height.max && width.min == width.max {
            return write!(f, "  size {} x {} (width x height), all", width.min, height.min);
        }
        for (name, s) in [("width ", width), ("height", height)] {
            writeln!(f, "  {name}  {} to {}, median {}", s.min, s.max, s.median)?;
        }
        write!(f, "  width / height")?;
        let most = self.aspects.iter().copied().max().unwrap_or(0);
        for (from, to, count) in self.aspects().into_iter().filter(|(.., count)| *count > 0) {
            let range = match to {
                Some(to) if from == 0.0 => format!("below {to}"),
                Some(to) => format!("{from} to {to}"),
                None => format!("{from} and up"),
            };
            write!(f, "\n    {range:12} {:>11}  {}", text::count(count), text::bar(count, most))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(of: &[(u32, u32)]) -> Sizes {
        let mut sizes = Sizes::default();
        for &(height, width) in of {
            sizes.add(ImageSpec::new(height, width, 3));
        }
        sizes
    }

    #[test]
    fn medians_and_shapes() {
        let mut all = sizes(&[(375, 500), (500, 375)]);
        all.merge(&sizes(&[(300, 300), (100, 500), (90, 40)]));
        assert_eq!(all.height(), Some(Spread { min: 90, median: 300, max: 500 }));
        assert_eq!(all.width(), Some(Spread { min: 40, median: 375, max: 500 }));
        let counts: Vec<u64> = all.aspects().iter().map(|a| a.2).collect();
        // 0.44; 0.75; 1; 1.33; 5.
        assert_eq!(counts, [1, 0, 1, 0, 1, 0, 1, 0, 1]);
        let text = all.to_string();
        assert!(text.contains("height  90 to 500, median 300") && text.contains("1.25 to 1.5"), "{text}");
        assert_eq!(sizes(&[(1, 9), (2, 9)]).height().unwrap().median, 1);
    }

    #[test]
    fn one_size_is_one_line() {
        assert_eq!(sizes(&[(32, 24); 3]).to_string(), "  size 24 x 32 (width x height), all");
        assert_eq!(sizes(&[]).to_string(), "  no images");
        assert!(sizes(&[]).to_json()["height"].is_null());
    }
}
