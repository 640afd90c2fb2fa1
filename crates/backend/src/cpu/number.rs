//! The numbers of activations in memory: f32, or bf16 where all that read a tensor take it so, which halves what is read and written.
//! Arithmetic is in f32.

use base::bf16;

use super::buf::{halves, halves_of};

/// A number as it lies in memory; bf16 are the upper halves of f32, as u16.
pub(super) trait Number: Copy + Default + Send + Sync + 'static {
    /// Widened.
    fn get(self) -> f32;

    /// The nearest one.
    fn of(x: f32) -> Self;

    /// What lies in these words.
    fn all(words: &[f32]) -> &[Self];

    /// The same, for writing.
    fn all_mut(words: &mut [f32]) -> &mut [Self];
}

impl Number for f32 {
    #[inline(always)]
    fn get(self) -> f32 {
        self
    }

    #[inline(always)]
    fn of(x: f32) -> Self {
        x
    }

    fn all(words: &[f32]) -> &[Self] {
        words
    }

    fn all_mut(words: &mut [f32]) -> &mut [Self] {
        words
    }
}

impl Number for u16 {
    #[inline(always)]
    fn get(self) -> f32 {
        bf16::widen(self)
    }

    #[inline(always)]
    fn of(x: f32) -> Self {
        bf16::round(x)
    }

    fn all(words: &[f32]) -> &[Self] {
        halves_of(words)
    }

    fn all_mut(words: &mut [f32]) -> &mut [Self] {
        halves(words)
    }
}

/// Calls a generic function with the types of two tensors' numbers, by whether each is in bf16.
macro_rules! by_numbers {
    ($x:expr, $y:expr, $f:ident $(. $method:ident)? ($($arg:expr),* $(,)?)) => {
        match ($x, $y) {
            (false, false) => $f $(. $method)? ::<f32, f32>($($arg),*),
            (false, true) => $f $(. $method)? ::<f32, u16>($($arg),*),
            (true, false) => $f $(. $method)? ::<u16, f32>($($arg),*),
            (true, true) => $f $(. $method)? ::<u16, u16>($($arg),*),
        }
    };
}
pub(super) use by_numbers;
