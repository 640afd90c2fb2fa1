//! The range of a numeric key.

/// Which numbers a key allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Range {
    /// All that its type holds.
    Any,
    /// This number or more.
    AtLeast(f64),
    /// From the first to the second.
    Between(f64, f64),
    /// 0 or more, and a number that f32 holds.
    NonNegativeF32,
    /// More than 0.
    Positive,
    /// More than 0 and a normal number in f32, in which the optimizers compute.
    PositiveF32,
    /// From 0 to below 1.
    Fraction,
    /// From 0 to 1.
    Probability,
    /// Between 0 and 1, both excluded; with an example for error messages.
    OpenFraction(f64),
}

/// A number in a message: a huge one with its power of ten.
pub fn number_text(number: f64) -> String {
    if number.abs() < 1e16 || !number.is_finite() { number.to_string() } else { format!("{number:e}") }
}

impl Range {
    /// `>= 1`, `in [0, 1)`; empty for [`Range::Any`].
    pub fn text(&self) -> String {
        match self {
            Range::Any => String::new(),
            Range::AtLeast(least) => format!(">= {least}"),
            Range::Between(least, most) => format!("from {least} to {most}"),
            Range::NonNegativeF32 => ">= 0".into(),
            Range::Positive | Range::PositiveF32 => "> 0".into(),
            Range::Fraction => "in [0, 1)".into(),
            Range::Probability => "in [0, 1]".into(),
            Range::OpenFraction(_) => "in (0, 1)".into(),
        }
    }

    /// Checks a number; the error says what it must be.
    pub fn check(&self, got: f64) -> Result<(), String> {
        let inside = match self {
            Range::Any => true,
            Range::AtLeast(least) => got >= *least,
            Range::Between(least, most) => (*least..=*most).contains(&got),
            Range::NonNegativeF32 => got >= 0.0,
            Range::Positive | Range::PositiveF32 => got > 0.0,
            Range::Fraction => (0.0..1.0).contains(&got),
            Range::Probability => (0.0..=1.0).contains(&got),
            Range::OpenFraction(_) => got > 0.0 && got < 1.0,
        };
        let shown = number_text(got);
        match self {
            Range::OpenFraction(example) if !inside => {
                Err(format!("must be {}, as {example}, got {shown}", self.text()))
            }
            _ if !inside => Err(format!("must be {}, got {shown}", self.text())),
            Range::NonNegativeF32 if got > f64::from(f32::MAX) => {
                Err(format!("must be a number that f32 holds, got {got:e}"))
            }
            // a smaller one would become 0 in f32
            Range::PositiveF32 if !(f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX)).contains(&got) => {
                Err(format!("must be a number that f32 holds, got {got:e}"))
            }
            _ => Ok(()),
        }
    }
}
