//! The vector sets of x86-64.

use std::arch::{asm, x86_64 as x86};

use super::{Grid, GridMut, Job, SIDE, Vectors};

macro_rules! vectors {
    ($(#[$doc:meta])* $name:ident, $features:literal, $detected:expr, $lanes:ty, $register:ident,
     $count:literal, $factors:literal, $registers:literal, $rows:literal,
     $splat:ident $add:ident $sub:ident $mul:ident $fmadd:ident $fnmadd:ident $max:ident $load:ident $store:ident,
     |$least:ident, $a:ident, $b:ident| $unless_at_most:expr,
     |$p:ident, $q:ident, $sum:ident| $product:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name(());

        impl $name {
            /// Returns the set if the processor supports it.
            pub fn detect() -> Option<Self> {
                $detected.then_some(Self(()))
            }
        }

        // SAFETY: for all operations, a value of this type exists only if the processor supports the set.
        impl Vectors for $name {
            type Lanes = $lanes;
            const LANES: usize = $count;
            const FACTORS: usize = $factors;
            const REGISTERS: usize = $registers;
            const ROWS: usize = $rows;

            vectors! { @each
                fn splat(value: f32) = x86::$splat(value);
                fn add(a: $lanes, b: $lanes) = x86::$add(a, b);
                fn sub(a: $lanes, b: $lanes) = x86::$sub(a, b);
                fn mul(a: $lanes, b: $lanes) = x86::$mul(a, b);
                fn max(a: $lanes, b: $lanes) = x86::$max(a, b);
                fn mul_add(a: $lanes, b: $lanes, c: $lanes) = x86::$fmadd(a, b, c);
                fn sub_mul(c: $lanes, a: $lanes, b: $lanes) = x86::$fnmadd(a, b, c);
                fn product($p: $lanes, $q: $lanes, $sum: $lanes) = $product;
                fn unless_at_most($least: $lanes, $a: $lanes, $b: $lanes) = $unless_at_most;
            }
            #[inline(always)]
            fn in_order(self, a: Self::Lanes) -> Self::Lanes {
                #[inline]
                #[target_feature(enable = $features)]
                fn in_order(mut a: $lanes) -> $lanes {
                    // SAFETY: the assembly has no instruction, only a comment.
                    unsafe { asm!("/* {0} */", inout($register) a, options(nostack, preserves_flags)) };
                    a
                }
                // SAFETY: the processor supports the set.
                unsafe { in_order(a) }
            }
            #[inline(always)]
            unsafe fn load(self, from: *const f32) -> Self::Lanes {
                // SAFETY: the processor supports the set, and the caller ensures that the floats are there.
                unsafe { x86::$load(from) }
            }
            #[inline(always)]
            unsafe fn store(self, lanes: Self::Lanes, to: *mut f32) {
                // SAFETY: the processor supports the set, and the caller ensures that there is room.
                unsafe { x86::$store(to, lanes) }
            }

            #[inline(always)]
            fn run<J: Job>(self, job: J) -> J::Output {
                #[target_feature(enable = $features)]
                fn compiled<J: Job>(job: J, set: $name) -> J::Output {
                    job.run(set)
                }
                // SAFETY: the processor supports the set.
                unsafe { compiled(job, self) }
            }
        }
    };
    (@each $(fn $name:ident($($value:ident: $of:ty),*) = $result:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, $($value: $of),*) -> Self::Lanes {
            // SAFETY: the processor supports the set.
            unsafe { $result }
        }
    )*};
}

vectors!(
    /// AVX2 with FMA: sixteen registers of eight floats.
    Avx2, "avx2,fma", (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")), x86::__m256, ymm_reg, 8, 1, 16, 6,
    _mm256_set1_ps _mm256_add_ps _mm256_sub_ps _mm256_mul_ps _mm256_fmadd_ps _mm256_fnmadd_ps _mm256_max_ps
    _mm256_loadu_ps _mm256_storeu_ps,
    |least, a, b| x86::_mm256_and_ps(x86::_mm256_cmp_ps::<{ x86::_CMP_NLE_UQ }>(a, least), b),
    |a, b, c| x86::_mm256_fmadd_ps(a, b, c)
);

vectors!(
    /// AVX-512: thirty-two registers of sixteen floats.
    Avx512, "avx512f,avx2,fma", is_x86_feature_detected!("avx512f"), x86::__m512, zmm_reg, 16, 1, 32, 8,
    _mm512_set1_ps _mm512_add_ps _mm512_sub_ps _mm512_mul_ps _mm512_fmadd_ps _mm512_fnmadd_ps _mm512_max_ps
    _mm512_loadu_ps _mm512_storeu_ps,
    |least, a, b| x86::_mm512_maskz_mov_ps(x86::_mm512_cmp_ps_mask::<{ x86::_CMP_NLE_UQ }>(a, least), b),
    |a, b, c| x86::_mm512_fmadd_ps(a, b, c)
);

vectors!(
    /// AVX-512 with products of bf16 pairs. Each lane of a factor has a pair, and all other operations are f32.
    Avx512Bf16, "avx512f,avx512bw,avx512bf16,avx2,fma",
    (is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512bf16")), x86::__m512, zmm_reg, 16, 2, 32, 8,
    _mm512_set1_ps _mm512_add_ps _mm512_sub_ps _mm512_mul_ps _mm512_fmadd_ps _mm512_fnmadd_ps _mm512_max_ps
    _mm512_loadu_ps _mm512_storeu_ps,
    |least, a, b| x86::_mm512_maskz_mov_ps(x86::_mm512_cmp_ps_mask::<{ x86::_CMP_NLE_UQ }>(a, least), b),
    |a, b, c| x86::_mm512_dpbf16_ps(c, pairs(a), pairs(b))
);

/// Reinterprets the bits as pairs of bf16.
#[inline(always)]
fn pairs(lanes: x86::__m512) -> x86::__m512bh {
    // SAFETY: both types have 512 bits, and every bit pattern is valid.
    unsafe { std::mem::transmute(lanes) }
}

/// Transposes a square. Rows of `from` and `to` are `step` floats apart.
#[inline(always)]
pub fn transpose(set: Avx2, from: &[f32], to: &mut [f32], step: usize) {
    let (from, mut to) = (Grid::new(set, from, [step, 0]), GridMut::new(set, to, [step, 0]));
    // SAFETY: a value of `Avx2` exists only if the processor has AVX2.
    unsafe { square(from, &mut to) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn square(from: Grid<'_, Avx2, SIDE, 1>, to: &mut GridMut<'_, Avx2, SIDE, 1>) {
    let rows: [x86::__m256; SIDE] = std::array::from_fn(|i| from.get(i, 0));
    let mut pairs = rows;
    for i in (0..SIDE).step_by(2) {
        pairs[i] = x86::_mm256_unpacklo_ps(rows[i], rows[i + 1]);
        pairs[i + 1] = x86::_mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
    let mut fours = rows;
    for i in (0..SIDE).step_by(4) {
        for odd in 0..2 {
            let (a, b) = (pairs[i + odd], pairs[i + odd + 2]);
            fours[i + 2 * odd] = x86::_mm256_shuffle_ps::<0x44>(a, b);
            fours[i + 2 * odd + 1] = x86::_mm256_shuffle_ps::<0xee>(a, b);
        }
    }
    for i in 0..SIDE / 2 {
        let (a, b) = (fours[i], fours[i + SIDE / 2]);
        to.put(i, 0, x86::_mm256_permute2f128_ps::<0x20>(a, b));
        to.put(i + SIDE / 2, 0, x86::_mm256_permute2f128_ps::<0x31>(a, b));
    }
}
