//! Computes the values of black and white pixels after a list of transforms. Without `normalize` values range from 0 to 255. With it they
//! range from about -2 to 2. If two lists or models disagree, the network gets values that it was not trained on.

use std::fmt;

/// `standardize` gives each image mean 0 and standard deviation 1, so nearly all of its values are in this range.
const PER_IMAGE: [f64; 2] = [-2.0, 2.0];
/// Two ranges are [`Agreement::FarApart`] if their widths differ by more than this factor, or if they are more than this many widths apart.
const FAR: f64 = 8.0;
/// Largest difference between two roundings of the same mean and standard deviation, as a fraction of the range's width.
const ROUNDING: f64 = 0.02;

/// Values of black and white pixels after a list of transforms. Color and geometry transforms are ignored.
#[derive(Clone, Debug, PartialEq)]
pub struct PixelValues {
    /// Values of black and white for each channel, or a single entry if all channels are equal.
    channels: Vec<[f64; 2]>,
    /// True if each image is normalized with its own mean and deviation.
    per_image: bool,
}

/// Result of comparing two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// Equal except for rounding.
    Same,
    /// Different, but similar in magnitude.
    OtherNumbers,
    /// So different that a network trained with one list is useless with the other.
    FarApart,
}

impl PixelValues {
    /// Computes the values from transforms with all arguments, as a pipeline or model file lists them.
    pub fn of(ops: &[String]) -> Self {
        let mut values = Self { channels: vec![[0.0, 255.0]], per_image: false };
        ops.iter().for_each(|op| values.apply(op.trim()));
        values
    }

    fn apply(&mut self, op: &str) {
        if op.starts_with("standardize") {
            *self = Self { channels: vec![PER_IMAGE], per_image: true };
        }
        let Some(arguments) = op.strip_prefix("normalize(").and_then(|rest| rest.strip_suffix(')')) else { return };
        let numbers: Vec<f64> = arguments.split(',').flat_map(|number| number.trim().parse()).collect();
        let (means, stds) = numbers.split_at(numbers.len() / 2);
        if means.is_empty() || means.len() != stds.len() {
            return;
        }
        let count = means.len().max(self.channels.len());
        let scaled = |channel: usize| {
            let (mean, std) = (means[channel % means.len()], stds[channel % stds.len()]);
            self.channels[channel % self.channels.len()].map(|value| (value / 255.0 - mean) / std)
        };
        self.channels = (0..count).map(scaled).collect();
    }

    /// Compares these values with the values after another list.
    pub fn agreement(&self, other: &Self) -> Agreement {
        let count = self.channels.len().max(other.channels.len());
        let mut found = if self.per_image == other.per_image { Agreement::Same } else { Agreement::OtherNumbers };
        for channel in 0..count {
            let [a, b] = [self, other].map(|values| values.channels[channel % values.channels.len()]);
            let [wide, narrow] = {
                let [x, y] = [a, b].map(|[black, white]| (white - black).abs());
                [x.max(y), x.min(y)]
            };
            let apart = (a[0] - b[0]).abs().max((a[1] - b[1]).abs());
            if wide > FAR * narrow || apart > FAR * wide {
                return Agreement::FarApart;
            }
            if apart > ROUNDING * wide {
                found = Agreement::OtherNumbers;
            }
        }
        found
    }

    /// Returns true if the values still range from 0 to 255.
    pub fn are_bytes(&self) -> bool {
        self.channels == [[0.0, 255.0]]
    }
}

impl fmt::Display for PixelValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.per_image {
            return f.write_str("values with mean 0 and deviation 1 in each image");
        }
        let range = |[black, white]: &[f64; 2]| {
            let short = |value: f64| format!("{}", (value * 100.0).round() / 100.0);
            format!("{} to {}", short(*black), short(*white))
        };
        let all: Vec<String> = self.channels.iter().map(range).collect();
        let alike = all.iter().all(|one| *one == all[0]);
        let shown = if alike { all[0].clone() } else { all.join(", ") };
        write!(f, "values of {shown} for black to white")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Agreement::{FarApart, OtherNumbers, Same};

    const IMAGENET: &str = "normalize(0.485, 0.456, 0.406, 0.229, 0.224, 0.225)";

    fn values(ops: &[&str]) -> PixelValues {
        PixelValues::of(&ops.iter().map(|op| (*op).to_string()).collect::<Vec<_>>())
    }

    fn agreement(a: &[&str], b: &[&str]) -> Agreement {
        let [a, b] = [values(a), values(b)];
        assert_eq!(a.agreement(&b), b.agreement(&a));
        a.agreement(&b)
    }

    #[test]
    fn lists_are_compared_by_what_they_make_of_black_and_white() {
        let half = &["flip", "normalize(0.5, 0.5)"][..];
        assert_eq!(agreement(half, &["normalize(0.5, 0.5, 0.5, 0.5, 0.5, 0.5)", "random_erasing(0.5)"]), Same);
        assert_eq!(agreement(&["normalize(0.4914, 0.247)"], &["normalize(0.49139968, 0.24703233)"]), Same);
        assert_eq!(agreement(half, &[IMAGENET]), OtherNumbers);
        assert_eq!(agreement(half, &["standardize"]), OtherNumbers);
        assert_eq!(agreement(&["normalize(0, 1)"], &[IMAGENET]), OtherNumbers);
        for scaled in ["normalize(0.5, 0.5)", IMAGENET, "standardize", "normalize(0, 1)"] {
            assert_eq!(agreement(&["resize(8)"], &[scaled]), FarApart, "{scaled}");
        }
        assert_eq!(agreement(&["resize(8)"], &["center_crop(4)"]), Same);
        assert!(values(&["resize(8)"]).are_bytes() && !values(&[IMAGENET]).are_bytes());
        // the mean is given in bytes, not as a fraction
        assert_eq!(agreement(&["normalize(127.5, 0.5)"], half), FarApart);
    }

    #[test]
    fn values_in_words() {
        assert_eq!(values(&[]).to_string(), "values of 0 to 255 for black to white");
        assert_eq!(values(&["normalize(0.5, 0.25)"]).to_string(), "values of -2 to 2 for black to white");
        let each = "values of -2.12 to 2.25, -2.04 to 2.43, -1.8 to 2.64 for black to white";
        assert_eq!(values(&[IMAGENET]).to_string(), each);
        assert_eq!(values(&["standardize"]).to_string(), "values with mean 0 and deviation 1 in each image");
    }
}
