//! One loop body, compiled for several instruction sets, chosen at run time.

/// Instruction sets that the loops are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The baseline of the target.
    Base,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F.
    Avx512,
}

/// The best level of this processor.
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

/// Defines a function whose body is compiled once per [`Level`] and dispatched at the call. Products and sums are written
/// with `mul_add`, so every level gives the same bits.
///
/// Generics are in brackets: all of them must follow from the arguments' types.
macro_rules! simd {
    ($(#[$doc:meta])* $vis:vis fn $name:ident [$($generics:tt)+] ($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$doc])*
        $vis fn $name<$($generics)+>($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body<$($generics)+>($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2<$($generics)+>($($arg: $ty),*) $(-> $ret)? { body($($arg),*) }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx2,fma")]
            fn avx512<$($generics)+>($($arg: $ty),*) $(-> $ret)? { body($($arg),*) }
            match $crate::simd::level() {
                // SAFETY: the level was detected on this processor.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Level::Avx512 => unsafe { avx512($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Level::Avx2 => unsafe { avx2($($arg),*) },
                _ => body($($arg),*),
            }
        }
    };
    ($(#[$doc:meta])* $vis:vis fn $name:ident $(<$b:ident: usize>)? ($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name $(<const $b: usize>)? ($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body $(<const $b: usize>)? ($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2 $(<const $b: usize>)? ($($arg: $ty),*) $(-> $ret)? { body $(::<$b>)? ($($arg),*) }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx2,fma")]
            fn avx512 $(<const $b: usize>)? ($($arg: $ty),*) $(-> $ret)? { body $(::<$b>)? ($($arg),*) }
            match $crate::simd::level() {
                // SAFETY: the level was detected on this processor.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Level::Avx512 => unsafe { avx512 $(::<$b>)? ($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Level::Avx2 => unsafe { avx2 $(::<$b>)? ($($arg),*) },
                _ => body $(::<$b>)? ($($arg),*),
            }
        }
    };
}
pub(crate) use simd;
