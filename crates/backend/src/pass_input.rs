//! The inputs of a pass: images, keys of the random draws, labels, statistics.

use loaders::Mix;

use super::loss::CrossEntropy;
use super::soft_loss::SoftTargets;
use crate::DrawKey;

/// The images of a pass on the host.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Plain NCHW, ready for the first layer.
    Values(&'a [f32]),
    /// Pixels, channels side by side (NHWC); byte b of channel c is the value `tables[c][b]`.
    Bytes {
        /// N times H times W times C.
        pixels: &'a [u8],
        /// One a channel.
        tables: &'a [[f32; 256]],
        /// How the values are mixed with each other, if they are.
        mix: Option<Mix>,
    },
    /// Crops of pictures that [`Queue::keep`](super::Queue::keep) has copied to the device.
    Kept {
        /// One a row.
        views: &'a [CropRect],
        /// As for bytes; pixels outside a picture are bytes of 0.
        tables: &'a [[f32; 256]],
        /// As for bytes.
        mix: Option<Mix>,
    },
    /// The batch that [`Queue::hold`](super::Queue::hold) has copied to the device, of so many rows.
    Held(usize),
}

impl Input<'_> {
    /// How the device is to mix the images with each other, if it is.
    pub fn mix(&self) -> Option<Mix> {
        match self {
            Input::Bytes { mix, .. } | Input::Kept { mix, .. } => *mix,
            Input::Values(_) | Input::Held(_) => None,
        }
    }
}

/// A crop of a kept picture, of the size of the network's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CropRect {
    /// Which picture.
    pub picture: u32,
    /// Row of the picture that becomes the first; outside of it below 0 and beyond its height.
    pub top: i32,
    /// Column of the picture that becomes the first (or, mirrored, the last).
    pub left: i32,
    /// 1: the columns run from right to left.
    pub mirrored: u32,
}

/// Everything that differs between passes of the same kind. A device with a queue copies what its operations
/// need to fixed places: [`Queue::repeat`](super::Queue::repeat) replays them.
#[derive(Clone, Copy, Debug)]
pub struct PassInput<'a> {
    /// One image a row.
    pub images: Input<'a>,
    /// Keys of the random draws; one id per row.
    pub key: DrawKey<'a>,
    /// Arguments of the loss; none if only scores are wanted.
    pub loss: Option<CrossEntropy<'a>>,
    /// Targets, where the loss is one against targets; `loss` then says labels and scale.
    pub targets: Option<SoftTargets<'a>>,
    /// Running means and variances of all batch normalisations, see [`Pass::running_at`](super::Pass::running_at).
    pub running: &'a [f32],
    /// Whether every batch normalisation takes the statistics of this batch, so that `running` is not read.
    pub training: bool,
}
