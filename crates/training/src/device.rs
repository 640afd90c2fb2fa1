//! The choice of a device. Only [`launch`](crate::launch) names concrete devices. All other code is generic over
//! [`Device`].

pub use backend::{DeviceKind as Device, DeviceSettings, Gpu};

/// The kind of device that `--device` requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A usable GPU if available, otherwise the CPU.
    #[default]
    Auto,
    /// The kind of device with this name.
    Kind(&'static str),
}
