//! `[[optimizer.groups]]`: parameters that are updated by numbers of their own.

use schema::{Range, matches, section};

section! {
    /// Parameters with a rate or a weight decay of their own; the first group that names a parameter counts.
    pub struct Group {
        /// Parameters, as patterns, such as "fc.*".
        required r#match: Vec<String>;
        /// Factor on the learning rate.
        default lr: f64 = 1.0, in Range::NonNegativeF32;
        /// Weight decay; absent: that of all other parameters.
        absent weight_decay: f64 = "that of the optimizer", in Range::AtLeast(0.0);
    }
}

impl Group {
    /// Whether it names a parameter.
    pub fn names(&self, parameter: &str) -> bool {
        self.r#match.iter().any(|pattern| matches(pattern, parameter))
    }
}
