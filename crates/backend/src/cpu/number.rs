//! The number types of activations in memory: f32, or bf16 if all readers of a tensor accept it. bf16 halves the memory
//! traffic. Arithmetic is always f32.

use base::{bf16, simd};

use super::buf::{AlignedBuf, as_u16, as_u16_mut};
use super::layout::Md;
use super::threads::Threads;
use crate::Error;

/// A number in memory. u16 stands for bf16, the upper half of an f32.
pub(super) trait Number: Copy + Default + Send + Sync + 'static {
    fn to_f32(self) -> f32;

    /// Rounds to the nearest number of this type.
    fn from_f32(x: f32) -> Self;

    /// Reinterprets memory as numbers of this type.
    fn from_words(words: &[f32]) -> &[Self];

    /// Works like [`Number::from_words`], for writing.
    fn from_words_mut(words: &mut [f32]) -> &mut [Self];
}

impl Number for f32 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }

    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        x
    }

    fn from_words(words: &[f32]) -> &[Self] {
        words
    }

    fn from_words_mut(words: &mut [f32]) -> &mut [Self] {
        words
    }
}

impl Number for u16 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        bf16::widen(self)
    }

    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        bf16::round(x)
    }

    fn from_words(words: &[f32]) -> &[Self] {
        as_u16(words)
    }

    fn from_words_mut(words: &mut [f32]) -> &mut [Self] {
        as_u16_mut(words)
    }
}

/// Calls a generic function with the number types of two tensors. Each is selected by whether the tensor is bf16.
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

// Convolutions and matrix products in bf16: how their operands are rounded, and where the rounded operands are stored if
// the tensors themselves are not bf16. Sums, weights and their gradients are f32. The bias gradient is the sum of the rounded dy.

/// How the bf16 operands of convolutions and linear layers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bf16 {
    /// 16-bit numbers, for processors that multiply pairs of them.
    Native,
    /// f32 numbers that are rounded to bf16. This gives the same products on any processor, but saves nothing.
    Emulated,
}

/// The workspace is divided at multiples of this number of f32 words, a cache line.
const LINE: usize = 16;

simd! {
    /// Rounds all of `from` to the nearest bf16, stored as f32.
    fn round_all(into: &mut [f32], from: &[f32]) {
        for (to, x) in into.iter_mut().zip(from) {
            *to = bf16::widen(bf16::round(*x));
        }
    }
}

impl Bf16 {
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => ", products in bf16",
            Self::Emulated => ", f32 products of factors rounded to bf16",
        }
    }

    /// Returns the layout of an operand of a convolution or matrix product. `md` is its layout in f32.
    pub fn factor(bf16: Option<Self>, md: Md) -> Result<Md, Error> {
        match bf16 {
            Some(Self::Native) => md.in_bf16(),
            Some(Self::Emulated) | None => Ok(md),
        }
    }

    /// Returns the number of f32 words that store an operand of `elems` elements, rounded up to cache lines.
    fn words(self, elems: usize) -> usize {
        let words = if self == Self::Native { elems.div_ceil(2) } else { elems };
        words.next_multiple_of(LINE)
    }

    fn round(self, threads: Threads, from: &[f32], into: &mut [f32]) {
        let n = from.len();
        match self {
            Self::Native => {
                threads.split_both(&mut as_u16_mut(into)[..n], from, LINE, |into, from| bf16::narrow_all(from, into));
            }
            Self::Emulated => threads.split_both(&mut into[..n], from, LINE, round_all),
        }
    }
}

/// A layer's tensors and weights rounded to bf16. During a pass, they are in the shared workspace: first x or dy, then
/// the weights.
pub(super) struct Rounded {
    bf16: Bf16,
    threads: Threads,
    /// Number of elements of x, w and y.
    elems: [usize; 3],
    /// First: true if x is already bf16. Second: true if y and its gradient are.
    narrow: [bool; 2],
    /// The rounded x, kept from the forward pass for backward. Empty in evaluation and if x is already bf16.
    x: AlignedBuf,
}

impl Rounded {
    /// `elems` are the sizes of x, w and y. `narrow` tells whether x and whether y are already bf16.
    pub fn new(
        bf16: Bf16,
        threads: Threads,
        elems: [usize; 3],
        narrow: [bool; 2],
        train: bool,
        name: &str,
    ) -> Result<Self, Error> {
        let x = AlignedBuf::zeroed(if train && !narrow[0] { bf16.words(elems[0]) } else { 0 }, name)?;
        Ok(Self { bf16, threads, elems, narrow, x })
    }

    /// Returns the words of shared workspace that a pass needs.
    pub fn scratch(&self) -> usize {
        self.weights_at() + self.bf16.words(self.elems[1])
    }

    /// Returns true if [`Self::backward`] returns the rounded x of the forward pass and does not read its argument x.
    pub fn keeps_x(&self) -> bool {
        !self.x.as_slice().is_empty()
    }

    /// Returns the bytes of private memory.
    pub fn bytes(&self) -> usize {
        self.x.as_slice().len() * 4
    }

    /// Returns the offset of the weights in the workspace.
    fn weights_at(&self) -> usize {
        let taken = |elems: usize, narrow: bool| if narrow { 0 } else { self.bf16.words(elems) };
        taken(self.elems[0], self.narrow[0]).max(taken(self.elems[2], self.narrow[1]))
    }

    /// Returns rounded x and w for the forward pass.
    pub fn forward<'a>(&'a mut self, x: &'a [f32], w: &[f32], scratch: &'a mut [f32]) -> (&'a [f32], &'a [f32]) {
        let (activations, weights) = scratch.split_at_mut(self.weights_at());
        self.bf16.round(self.threads, &w[..self.elems[1]], weights);
        if self.narrow[0] {
            return (x, weights);
        }
        let kept = if self.x.as_slice().is_empty() { activations } else { self.x.as_mut_slice() };
        self.bf16.round(self.threads, &x[..self.elems[0]], kept);
        (kept, weights)
    }

    /// Returns rounded x, dy and w for the backward passes.
    pub fn backward<'x, 'a: 'x>(
        &'a self,
        (x, dy): (&'x [f32], &'a [f32]),
        w: &[f32],
        scratch: &'a mut [f32],
    ) -> (&'x [f32], &'a [f32], &'a [f32]) {
        let (gradient, weights) = scratch.split_at_mut(self.weights_at());
        self.bf16.round(self.threads, &w[..self.elems[1]], weights);
        let x = if self.narrow[0] { x } else { self.x.as_slice() };
        if self.narrow[1] {
            return (x, dy, weights);
        }
        self.bf16.round(self.threads, &dy[..self.elems[2]], gradient);
        (x, gradient, weights)
    }
}

#[cfg(test)]
mod tests {
    use super::super::onednn::{Data, Engine, arg, reorder};
    use super::*;

    /// Returns values that test ties, signs, and tiny, huge and infinite numbers. There are enough for several units of
    /// work, of which the last is incomplete.
    fn values() -> Vec<f32> {
        let special = [0.0, -0.0, 1e-42, f32::MAX, f32::MIN, f32::INFINITY, f32::NEG_INFINITY, f32::MIN_POSITIVE];
        let spread = (0..3000u32).map(|i| f32::from_bits(i.wrapping_mul(0x9e37_79b9))).filter(|x| !x.is_nan());
        let ties = (0..100u32).map(|i| f32::from_bits(0x3f80_8000 + (i << 16)));
        special.into_iter().chain(ties).chain(spread).collect()
    }

    #[test]
    fn bf16_rounding_agrees_with_onednn() {
        let x = values();
        let (threads, n) = (Threads(3), x.len());
        let engine = Engine::new(1).unwrap();
        let plain = Md::plain(&[n]).unwrap();
        let rounded = plain.in_bf16().unwrap();
        let copy = reorder(&engine, &plain, &rounded, "test").unwrap();
        let mut theirs = vec![0.0; rounded.elems()];
        copy.run(&engine, &mut [(arg::SRC, Data::Read(&x)), (arg::DST, Data::Write(&mut theirs))]).unwrap();
        let mut ours = vec![0.0; Bf16::Native.words(n)];
        Bf16::Native.round(threads, &x, &mut ours);
        let want: Vec<u16> = x.iter().map(|&x| half::bf16::from_f32(x).to_bits()).collect();
        assert_eq!(as_u16_mut(&mut ours)[..n], want);
        let normal = |h: u16| bf16::widen(h).is_normal();
        for (theirs, want) in as_u16_mut(&mut theirs).iter().zip(&want).filter(|(_, want)| normal(**want)) {
            assert_eq!(theirs, want);
        }
        let mut widened = vec![0.0; Bf16::Emulated.words(n)];
        Bf16::Emulated.round(threads, &x, &mut widened);
        assert!(widened.iter().zip(&want).all(|(got, want)| got.to_bits() == u32::from(*want) << 16));
    }

    #[test]
    fn rounded_tensors_for_backward_are_kept() {
        for bf16 in [Bf16::Native, Bf16::Emulated] {
            let (x, w, dy, elems) = ([1.0; 40], [2.0; 17], [3.0; 55], [40, 17, 55]);
            let ones = |of: &[f32], value: f32, n: usize| {
                let mut of = of.to_vec();
                match bf16 {
                    Bf16::Native => as_u16_mut(&mut of)[..n].iter().all(|h| bf16::widen(*h) == value),
                    Bf16::Emulated => of[..n].iter().all(|v| *v == value),
                }
            };
            let mut training = Rounded::new(bf16, Threads(1), elems, [false; 2], true, "test").unwrap();
            let mut scratch = vec![0.0; training.scratch()];
            training.forward(&x, &w, &mut scratch);
            scratch.fill(9.0);
            let (x16, dy16, w16) = training.backward((&[], &dy), &w, &mut scratch);
            assert!(ones(x16, 1.0, 40) && ones(dy16, 3.0, 55) && ones(w16, 2.0, 17));
            let mut evaluation = Rounded::new(bf16, Threads(1), elems, [false; 2], false, "test").unwrap();
            let (x16, w16) = evaluation.forward(&x, &w, &mut scratch);
            assert!(ones(x16, 1.0, 40) && ones(w16, 2.0, 17));
            assert_eq!((evaluation.bytes(), training.bytes()), (0, bf16.words(40) * 4));
            let narrow = Rounded::new(bf16, Threads(1), elems, [true, false], true, "test").unwrap();
            assert!(training.keeps_x() && !evaluation.keeps_x() && !narrow.keeps_x());
        }
    }
}
