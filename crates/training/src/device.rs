//! The choice of a device. [`launch`](crate::launch) names the kinds; all else is written for any [`Device`].

pub use backend::{DeviceKind as Device, DeviceSettings, Gpu};

/// What `--device` takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A GPU if there is one that can be used, else the CPU.
    #[default]
    Auto,
    /// The kind of this name.
    Kind(&'static str),
}
