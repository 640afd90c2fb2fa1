//! The vector sets of ARM (aarch64). Every such processor has NEON.

use std::arch::aarch64::{
    float32x4_t, vaddq_f32, vbslq_f32, vcgtq_f32, vcleq_f32, vdupq_n_f32, vfmaq_f32, vfmsq_f32, vld1q_f32, vmulq_f32,
    vst1q_f32, vsubq_f32,
};
use std::arch::asm;

use super::{Job, SIDE, Vectors};

/// NEON: thirty-two registers of four floats, used in pairs of eight floats.
#[derive(Clone, Copy)]
pub struct Neon(());

/// Eight floats in two registers.
type Pair = [float32x4_t; 2];

impl Neon {
    /// Returns the set. It is part of the baseline of aarch64.
    pub fn detect() -> Option<Self> {
        Some(Self(()))
    }
}

/// Computes both registers of a result.
macro_rules! each {
    (|$i:pat_param| $result:expr) => {{
        // SAFETY: every processor of aarch64 has NEON.
        let one = |$i: usize| unsafe { $result };
        [one(0), one(1)]
    }};
}

impl Vectors for Neon {
    type Lanes = Pair;
    const LANES: usize = 8;
    const FACTORS: usize = 1;
    const REGISTERS: usize = 16;
    const ROWS: usize = 6;

    #[inline(always)]
    fn splat(self, value: f32) -> Pair {
        each!(|_| vdupq_n_f32(value))
    }
    #[inline(always)]
    fn add(self, a: Pair, b: Pair) -> Pair {
        each!(|i| vaddq_f32(a[i], b[i]))
    }
    #[inline(always)]
    fn sub(self, a: Pair, b: Pair) -> Pair {
        each!(|i| vsubq_f32(a[i], b[i]))
    }
    #[inline(always)]
    fn mul(self, a: Pair, b: Pair) -> Pair {
        each!(|i| vmulq_f32(a[i], b[i]))
    }
    #[inline(always)]
    fn mul_add(self, a: Pair, b: Pair, c: Pair) -> Pair {
        each!(|i| vfmaq_f32(c[i], a[i], b[i]))
    }
    #[inline(always)]
    fn sub_mul(self, c: Pair, a: Pair, b: Pair) -> Pair {
        each!(|i| vfmsq_f32(c[i], a[i], b[i]))
    }
    #[inline(always)]
    fn product(self, a: Pair, b: Pair, c: Pair) -> Pair {
        self.mul_add(a, b, c)
    }
    /// `vmaxq_f32` would return NaN if either is NaN.
    #[inline(always)]
    fn max(self, a: Pair, b: Pair) -> Pair {
        each!(|i| vbslq_f32(vcgtq_f32(a[i], b[i]), a[i], b[i]))
    }
    #[inline(always)]
    fn unless_at_most(self, least: Pair, a: Pair, b: Pair) -> Pair {
        each!(|i| vbslq_f32(vcleq_f32(a[i], least[i]), vdupq_n_f32(0.0), b[i]))
    }
    #[inline(always)]
    fn in_order(self, [mut low, mut high]: Pair) -> Pair {
        // SAFETY: the assembly has no instruction, only a comment.
        unsafe { asm!("/* {0:q} {1:q} */", inout(vreg) low, inout(vreg) high, options(nostack, preserves_flags)) };
        [low, high]
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Pair {
        // SAFETY: the caller ensures that eight floats are there.
        unsafe { [vld1q_f32(from), vld1q_f32(from.add(4))] }
    }
    #[inline(always)]
    unsafe fn store(self, lanes: Pair, to: *mut f32) {
        // SAFETY: the caller ensures that there is room for eight floats.
        unsafe {
            vst1q_f32(to, lanes[0]);
            vst1q_f32(to.add(4), lanes[1]);
        }
    }

    #[inline(always)]
    fn run<J: Job>(self, job: J) -> J::Output {
        job.run(self)
    }
}

/// Transposes a square. Rows of `from` and `to` are `step` floats apart.
#[inline(always)]
pub fn transpose(_: Neon, from: &[f32], to: &mut [f32], step: usize) {
    let last = (SIDE - 1) * step + SIDE;
    let (from, to) = (&from[..last], &mut to[..last]);
    for row in 0..SIDE {
        for column in 0..SIDE {
            to[column * step + row] = from[row * step + column];
        }
    }
}
