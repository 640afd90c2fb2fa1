//! Test values from formulas that the scripts in `tests/golden` compute too, and a reproducible random choice.

use serde::Deserialize;

/// A tensor whose values a formula spreads uniformly over `shift ± scale`.
#[derive(Clone, Debug, Deserialize)]
pub struct Formula {
    /// Empty if the context determines the shape.
    #[serde(default)]
    pub shape: Vec<usize>,
    /// Number of the sequence. Different numbers give different values.
    pub k: u64,
    /// Half the width of the interval that the values fill.
    pub scale: f64,
    /// The middle of the interval.
    pub shift: f64,
}

/// Recorded values of a formula at some positions.
#[derive(Deserialize)]
pub struct Example {
    #[serde(flatten)]
    formula: Formula,
    at: Vec<usize>,
    values: Vec<f64>,
}

impl Example {
    /// Compares the recorded values with the results of `f(formula, elements)`.
    pub fn check(&self, f: impl Fn(&Formula, usize) -> Vec<f32>) {
        let got = f(&self.formula, self.at.iter().max().unwrap() + 1);
        for (&i, want) in self.at.iter().zip(&self.values) {
            assert!((f64::from(got[i]) - want).abs() < 1e-8, "element {i}: expected {want}, got {}", got[i]);
        }
    }
}

fn sequence(i: u64, k: u64) -> u32 {
    i.wrapping_mul(2_654_435_761).wrapping_add(k.wrapping_mul(40_503)) as u32
}

fn scramble(h: u32) -> u32 {
    let h = (h ^ (h >> 15)).wrapping_mul(2_246_822_519);
    let h = (h ^ (h >> 13)).wrapping_mul(3_266_489_917);
    h ^ (h >> 16)
}

impl Formula {
    /// Creates a formula for uniform values in `shift ± scale`.
    pub fn new(k: u64, scale: f64, shift: f64) -> Self {
        Self { shape: Vec::new(), k, scale, shift }
    }

    fn value(&self, h: u32) -> f32 {
        (f64::from(h >> 8) / 16_777_216.0 * 2.0 * self.scale - self.scale + self.shift) as f32
    }

    /// Returns `n` values of the plain sequence.
    pub fn fill_n(&self, n: usize) -> Vec<f32> {
        (0..n as u64).map(|i| self.value(sequence(i, self.k))).collect()
    }

    /// Returns `n` values of the scrambled sequence.
    pub fn noise_n(&self, n: usize) -> Vec<f32> {
        (0..n as u64).map(|i| self.value(scramble(sequence(i, self.k)))).collect()
    }

    /// Returns the tensor with values of the plain sequence.
    pub fn fill(&self) -> Vec<f32> {
        self.fill_n(self.shape.iter().product())
    }

    /// Returns the tensor with values of the scrambled sequence.
    pub fn noise(&self) -> Vec<f32> {
        self.noise_n(self.shape.iter().product())
    }
}

/// Returns `n` uniform values in ±`scale`, from sequence number `k`.
pub fn noise(n: usize, k: u64, scale: f64) -> Vec<f32> {
    Formula::new(k, scale, 0.0).noise_n(n)
}

/// Makes reproducible choices. The field is the state.
pub struct Chooser(pub u64);

impl Chooser {
    /// Returns a number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 += 1;
        scramble(sequence(self.0, 77)) as usize % n
    }

    /// Returns one element of `of`.
    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}
