//! The number format of the arithmetic.

use schema::words;

/// Type of activations, their gradients and the copies of weights that matrix products take. Parameters, their gradients,
/// statistics and losses are f32 or more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// 32 bits everywhere.
    #[default]
    F32,
    /// 8 bits of exponent, 8 of mantissa.
    Bf16,
    /// 5 bits of exponent, 11 of mantissa; losses are scaled so that small gradients survive.
    F16,
}

words! { Precision { F32 = "f32", Bf16 = "bf16", F16 = "f16" } }
