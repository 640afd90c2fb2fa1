//! Compiles a loop for several instruction sets and selects one at run time.

/// An instruction set that loops are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The baseline of the compilation target.
    Base,
    Avx2,
    Avx512,
}

/// Returns the best level that this processor supports.
pub fn level() -> Level {
    use std::sync::OnceLock;
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f") {
            return Level::Avx512;
        } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return Level::Avx2;
        }
        Level::Base
    })
}

/// Returns the nearest integer, ties to even. Returns 0 for NaN and for values whose magnitude is 2^31 or more. In a
/// [`simd!`](crate::simd!) loop this takes a few instructions per vector. `as i32` saturates instead, which costs a
/// branch per element.
#[inline(always)]
pub fn nearest(x: f32) -> i32 {
    let x = if x.abs() < 2_147_483_648.0 { x.round_ties_even() } else { 0.0 };
    // SAFETY: the value is not NaN and is an integer in the range of i32, because the largest f32 below 2^31 is an
    // integer.
    unsafe { x.to_int_unchecked() }
}

/// Loads the cache line of an address into the processor's caches without waiting. The address may be invalid.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    // SAFETY: a prefetch is a hint. It neither faults nor returns data.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
}

/// Defines a function whose body is compiled once per [`Level`] and dispatched at the call. Use `mul_add` for a product
/// that is added, so that every level gives the same bits.
///
/// Generics are in brackets. All of them must be inferable from the types of the arguments, unless a constant in angle
/// brackets follows.
#[macro_export]
macro_rules! simd {
    (
        $(#[$doc:meta])* $vis:vis fn $name:ident [$($t:ident: $bound:ident),+] <$b:ident: usize> ($($args:tt)*) $($rest:tt)*
    ) => {
        $crate::simd! {
            @levels $(#[$doc])* [$vis] $name [<$($t: $bound,)+ const $b: usize>] [::<$($t,)+ $b>] ($($args)*) $($rest)*
        }
    };
    ($(#[$doc:meta])* $vis:vis fn $name:ident [$($generics:tt)+] ($($args:tt)*) $($rest:tt)*) => {
        $crate::simd! { @levels $(#[$doc])* [$vis] $name [<$($generics)+>] [] ($($args)*) $($rest)* }
    };
    ($(#[$doc:meta])* $vis:vis fn $name:ident $(<$b:ident: usize>)? ($($args:tt)*) $($rest:tt)*) => {
        $crate::simd! {
            @levels $(#[$doc])* [$vis] $name [$(<const $b: usize>)?] [$(::<$b>)?] ($($args)*) $($rest)*
        }
    };
    // the generics as they are declared, and as they are passed to a function
    (
        @levels $(#[$doc:meta])* [$vis:vis] $name:ident [$($generics:tt)*] [$($passed:tt)*]
        ($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block
    ) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name $($generics)* ($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body $($generics)* ($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2 $($generics)* ($($arg: $ty),*) $(-> $ret)? { body $($passed)* ($($arg),*) }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx2,fma")]
            fn avx512 $($generics)* ($($arg: $ty),*) $(-> $ret)? { body $($passed)* ($($arg),*) }
            match $crate::simd::level() {
                // SAFETY: the level was detected on this processor.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Level::Avx512 => unsafe { avx512 $($passed)* ($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Level::Avx2 => unsafe { avx2 $($passed)* ($($arg),*) },
                _ => body $($passed)* ($($arg),*),
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn integers_are_the_nearest_and_ties_even() {
        let cases = [(0.5, 0), (1.5, 2), (2.5, 2), (-0.5, 0), (-1.5, -2), (-1.75, -2), (8_388_607.5, 8_388_608)];
        assert!(cases.iter().all(|(x, q)| nearest(*x) == *q));
        assert_eq!(
            [1_073_741_824.0, 2_147_483_520.0, -2_147_483_520.0].map(nearest),
            [1 << 30, 2_147_483_520, -2_147_483_520]
        );
        let none = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 2_147_483_648.0, -2_147_483_648.0, f32::MAX];
        assert_eq!(none.map(nearest), [0; 6]);
    }
}
