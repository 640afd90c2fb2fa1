//! The scale of the losses, for activations of a type with a short range (f16).

use super::device_memory::DeviceMemory;
use super::error::Error;

/// A device that scales its losses.
pub trait LossScaling<D: DeviceMemory> {
    /// Takes the scale out of all gradients of a step, before its update; where one is Inf or NaN, the device skips the update and
    /// lowers the scale.
    fn inspect(&self, gradients: &[D::Buf]) -> Result<(), Error>;

    /// The scale, once everything enqueued is done.
    fn scale(&self) -> Result<LossScale, Error>;

    /// Continues with this scale.
    fn set_scale(&self, scale: LossScale) -> Result<(), Error>;
}

/// The factor of the losses, and its history.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossScale {
    /// The factor.
    pub scale: f32,
    /// Steps without Inf or NaN since it last grew.
    pub good: u32,
    /// Steps in a row, up to the last one, that were skipped because a gradient was Inf or NaN.
    pub bad: u32,
    /// Steps that were skipped in all.
    pub lost: u32,
}

impl LossScale {
    /// Below this, halving the scale has not helped: the values themselves are not finite.
    pub const LEAST: f32 = 1.0 / 1024.0;
}
